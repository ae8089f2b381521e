// What Kafka's own classes do with records of internal topics when they load them.
// Reads lines "topic key value" from standard input: key and value in base 64, or "-" for null. Prints one line for each:
// "read", "skipped" (with a warning in the broker's log), or "failed" and the exception.
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Base64;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde;
import org.apache.kafka.coordinator.common.runtime.Deserializer;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde;
import org.apache.kafka.coordinator.transaction.TransactionLog;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;

public class InternalRecords {
    private static String read(String topic, byte[] key, byte[] value) {
        return switch (topic) {
            case "__consumer_offsets" -> coordinator(new GroupCoordinatorRecordSerde(), key, value);
            case "__share_group_state" -> coordinator(new ShareCoordinatorRecordSerde(), key, value);
            case "__transaction_state" -> {
                if (key == null) throw new IllegalArgumentException("key is null"); // TransactionStateManager requires a key
                TransactionLog.ReadResult found = TransactionLog.read(buffer(key), buffer(value));
                yield found.getClass().getSimpleName().startsWith("Unknown") ? "skipped" : "read";
            }
            case "__cluster_metadata" -> {
                MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(buffer(value)), value.length);
                yield "read";
            }
            default -> {
                new RemoteLogMetadataSerde().deserialize(value);
                yield "read";
            }
        };
    }

    private static String coordinator(CoordinatorRecordSerde serde, byte[] key, byte[] value) {
        try {
            serde.deserialize(buffer(key), buffer(value));
            return "read";
        } catch (Deserializer.UnknownRecordTypeException unknown) {
            return "skipped"; // as CoordinatorLoaderImpl does
        }
    }

    private static ByteBuffer buffer(byte[] data) {
        return data == null ? null : ByteBuffer.wrap(data);
    }

    private static byte[] decoded(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text.substring(1));
    }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ");
            try {
                System.out.println(read(parts[0], decoded(parts[1]), decoded(parts[2])));
            } catch (Throwable failed) {
                System.out.println("failed " + failed.toString().replace("\n", " "));
            }
        }
    }
}
