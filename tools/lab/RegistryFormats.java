import com.amazonaws.services.schemaregistry.common.configs.GlueSchemaRegistryConfiguration;
import com.amazonaws.services.schemaregistry.serializers.SerializationDataEncoder;
import io.apicurio.registry.resolver.ParsedSchemaImpl;
import io.apicurio.registry.resolver.SchemaLookupResult;
import io.apicurio.registry.resolver.SchemaResolver;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.serde.avro.AvroSchemaParser;
import io.apicurio.registry.serde.avro.DefaultAvroDatumProvider;
import java.io.ByteArrayOutputStream;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.UUID;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;

/** Prints what the serializers of Apicurio and of AWS Glue write: a name, the bytes, and the headers, one per line. */
public class RegistryFormats {
    static final Schema SCHEMA = new Schema.Parser().parse("{\"type\":\"record\",\"name\":\"Order\",\"fields\":["
        + "{\"name\":\"id\",\"type\":\"long\"},{\"name\":\"note\",\"type\":\"string\"}]}");

    public static void main(String[] args) throws Exception {
        GenericRecord order = new GenericData.Record(SCHEMA);
        order.put("id", 4711L);
        order.put("note", "a".repeat(60));
        for (boolean inHeaders : new boolean[] {false, true}) {
            RecordHeaders headers = new RecordHeaders();
            print(inHeaders ? "apicurio-headers" : "apicurio", apicurio(inHeaders).serialize("t", headers, order), headers);
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        var encoder = EncoderFactory.get().directBinaryEncoder(out, null);
        new GenericDatumWriter<GenericRecord>(SCHEMA).write(order, encoder);
        UUID version = UUID.fromString("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63");
        for (String compression : new String[] {"NONE", "ZLIB"}) {
            var settings = new GlueSchemaRegistryConfiguration(Map.of("region", "eu-west-1", "compression", compression));
            byte[] data = new SerializationDataEncoder(settings).write(out.toByteArray(), version);
            print("glue-" + compression.toLowerCase(), data, new RecordHeaders());
        }
    }

    @SuppressWarnings("unchecked")
    static AvroKafkaSerializer<GenericRecord> apicurio(boolean inHeaders) {
        AvroSchemaParser<GenericRecord> parser = new AvroSchemaParser<>(new DefaultAvroDatumProvider<>());
        var found = SchemaLookupResult.<Schema>builder().globalId(42).contentId(43).artifactId("t-value").version("1")
            .parsedSchema(new ParsedSchemaImpl<Schema>().setParsedSchema(SCHEMA)).build();
        // A resolver without a registry.
        var resolver = (SchemaResolver<Schema, GenericRecord>) Proxy.newProxyInstance(
            RegistryFormats.class.getClassLoader(), new Class<?>[] {SchemaResolver.class}, (proxy, method, given) ->
                method.getName().startsWith("resolve") ? found : method.getName().equals("getSchemaParser") ? parser : null);
        AvroKafkaSerializer<GenericRecord> serializer = new AvroKafkaSerializer<>(resolver);
        Map<String, Object> settings = new HashMap<>();
        settings.put("apicurio.registry.headers.enabled", inHeaders);
        serializer.configure(settings, false);
        return serializer;
    }

    static void print(String name, byte[] data, RecordHeaders headers) {
        StringBuilder line = new StringBuilder(name + " " + HexFormat.of().formatHex(data));
        for (Header header : headers) line.append(" " + header.key() + "=" + HexFormat.of().formatHex(header.value()));
        System.out.println(line);
    }
}
