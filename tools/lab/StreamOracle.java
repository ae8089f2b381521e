import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.RequestHeader;

/**
 * What Kafka's own classes read in streams, for each two arguments, a file of requests and one of responses: a line of
 * JSON for each frame. Records are told by their size only.
 */
public class StreamOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);

    public static void main(String[] files) throws Exception {
        for (int i = 0; i < files.length; i += 2) {
            Map<Integer, Deque<RequestHeader>> asked = new HashMap<>();
            ByteBuffer requests = ByteBuffer.wrap(Files.readAllBytes(Path.of(files[i])));
            while (requests.hasRemaining()) {
                int position = requests.position();
                ByteBuffer frame = frame(requests);
                RequestHeader header = RequestHeader.parse(frame);
                // The controller of 0.8 numbers all that it sends at a time alike: answers come in the order of requests.
                asked.computeIfAbsent(header.correlationId(), id -> new ArrayDeque<>()).add(header);
                ObjectNode row = row("request", files[i], position, header, header.apiVersion());
                row.put("client_id", header.clientId());
                print(row, request(header, frame), header.apiVersion());
            }
            ByteBuffer responses = ByteBuffer.wrap(Files.readAllBytes(Path.of(files[i + 1])));
            while (responses.hasRemaining()) {
                int position = responses.position();
                ByteBuffer frame = frame(responses);
                RequestHeader header = asked.get(frame.getInt(frame.position())).remove();
                short version = header.apiVersion();
                if (header.apiKey() == ApiKeys.API_VERSIONS && frame.getShort(frame.position() + 4) == 35) {
                    version = 0;
                }
                ApiMessage body = AbstractResponse.parseResponse(frame, header).data();
                print(row("response", files[i + 1], position, header, version), body, version);
            }
        }
        OUT.flush();
    }

    private static ByteBuffer frame(ByteBuffer stream) {
        int size = stream.getInt();
        ByteBuffer frame = stream.slice(stream.position(), size);
        stream.position(stream.position() + size);
        return frame;
    }

    private static ObjectNode row(String kind, String file, int position, RequestHeader header, short version) {
        ObjectNode row = JSON.createObjectNode();
        row.put("kind", kind).put("file", Path.of(file).getFileName().toString()).put("position", position);
        row.put("api_key", header.apiKey().id).put("api_name", header.apiKey().messageType.name.replace("Request", ""));
        return row.put("api_version", version).put("correlation_id", header.correlationId());
    }

    /** The buffer became a Readable between 3.9 and 4.3. */
    private static ApiMessage request(RequestHeader header, ByteBuffer frame) throws Exception {
        for (Method method : AbstractRequest.class.getMethods()) {
            if (method.getName().equals("parseRequest")) {
                boolean buffer = method.getParameterTypes()[2] == ByteBuffer.class;
                Object bytes = buffer ? frame : new ByteBufferAccessor(frame);
                Object parsed = method.invoke(null, header.apiKey(), header.apiVersion(), bytes);
                return ((AbstractRequest) parsed.getClass().getField("request").get(parsed)).data();
            }
        }
        throw new IllegalStateException("no parseRequest");
    }

    private static void print(ObjectNode row, ApiMessage body, short version) throws Exception {
        Class<?> converter = Class.forName(body.getClass().getName() + "JsonConverter");
        JsonNode json;
        try {
            Method write = converter.getMethod("write", body.getClass(), short.class, boolean.class);
            json = (JsonNode) write.invoke(null, body, version, false);
        } catch (NoSuchMethodException hasNoRecords) {
            json = (JsonNode) converter.getMethod("write", body.getClass(), short.class).invoke(null, body, version);
        }
        row.set("body", json);
        OUT.println(JSON.writeValueAsString(row));
    }
}
