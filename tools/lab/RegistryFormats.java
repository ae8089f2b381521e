import com.amazonaws.services.schemaregistry.common.configs.GlueSchemaRegistryConfiguration;
import com.amazonaws.services.schemaregistry.serializers.SerializationDataEncoder;
import com.amazonaws.services.schemaregistry.serializers.protobuf.ProtobufSerializer;
import com.google.protobuf.DescriptorProtos.DescriptorProto;
import com.google.protobuf.DescriptorProtos.FieldDescriptorProto;
import com.google.protobuf.DescriptorProtos.FileDescriptorProto;
import com.google.protobuf.Descriptors.Descriptor;
import com.google.protobuf.Descriptors.FileDescriptor;
import com.google.protobuf.DynamicMessage;
import com.squareup.wire.schema.Location;
import com.squareup.wire.schema.internal.parser.ProtoParser;
import io.apicurio.registry.resolver.ParsedSchemaImpl;
import io.apicurio.registry.resolver.SchemaLookupResult;
import io.apicurio.registry.resolver.SchemaResolver;
import io.apicurio.registry.serde.avro.AvroKafkaSerializer;
import io.apicurio.registry.serde.avro.AvroSchemaParser;
import io.apicurio.registry.serde.avro.DefaultAvroDatumProvider;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaSerializer;
import io.apicurio.registry.serde.protobuf.ProtobufSchemaParser;
import io.apicurio.registry.utils.protobuf.schema.ProtobufSchema;
import java.io.ByteArrayOutputStream;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.io.EncoderFactory;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.common.serialization.Serializer;

/**
 * Prints what the serializers of Apicurio and of AWS Glue write: a name, the bytes, and the headers, one per line. The name
 * of Protobuf's lines has the message; each message has its position in MESSAGES as its id.
 */
public class RegistryFormats {
    static final Schema SCHEMA = new Schema.Parser().parse("{\"type\":\"record\",\"name\":\"Order\",\"fields\":["
        + "{\"name\":\"id\",\"type\":\"long\"},{\"name\":\"note\",\"type\":\"string\"}]}");
    static final List<String> MESSAGES = List.of("Zebra", "Order", "Order.Line", "Order.Line.Part", "Order.Address", "Apple");
    static final UUID VERSION = UUID.fromString("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63");

    public static void main(String[] args) throws Exception {
        avro();
        protobuf();
    }

    static void avro() throws Exception {
        AvroSchemaParser<GenericRecord> parser = new AvroSchemaParser<>(new DefaultAvroDatumProvider<>());
        GenericRecord order = new GenericData.Record(SCHEMA);
        order.put("id", 4711L);
        order.put("note", "a".repeat(60));
        for (boolean inHeaders : new boolean[] {false, true}) {
            RecordHeaders headers = new RecordHeaders();
            byte[] data = configured(new AvroKafkaSerializer<>(resolver(SCHEMA, parser)), inHeaders).serialize("t", headers, order);
            print(inHeaders ? "apicurio-headers" : "apicurio", data, headers);
        }
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        var encoder = EncoderFactory.get().directBinaryEncoder(out, null);
        new GenericDatumWriter<GenericRecord>(SCHEMA).write(order, encoder);
        for (String compression : new String[] {"NONE", "ZLIB"}) {
            var settings = glue(compression);
            byte[] data = new SerializationDataEncoder(settings).write(out.toByteArray(), VERSION);
            print("glue-" + compression.toLowerCase(), data, new RecordHeaders());
        }
    }

    static void protobuf() throws Exception {
        FileDescriptor file = FileDescriptor.buildFrom(FileDescriptorProto.newBuilder().setName("shop.proto").setPackage("shop")
            .setSyntax("proto3").addMessageType(message("Zebra"))
            .addMessageType(message("Order", message("Line", message("Part")), message("Address")))
            .addMessageType(message("Apple")).build(), new FileDescriptor[0]);
        ProtobufSchemaParser<DynamicMessage> parser = new ProtobufSchemaParser<>();
        // The parsed text of the schema is needed for a registry only.
        ProtobufSchema schema = new ProtobufSchema(file, ProtoParser.Companion.parse(Location.get("shop.proto"), ""));
        var settings = glue("NONE");
        for (String name : MESSAGES) {
            DynamicMessage message = DynamicMessage.newBuilder(find(file, name))
                .setField(find(file, name).findFieldByName("id"), (long) MESSAGES.indexOf(name)).build();
            byte[] data = new ProtobufSerializer(settings).serialize(message);
            print("glue-protobuf:" + name, new SerializationDataEncoder(settings).write(data, VERSION), new RecordHeaders());
            if (name.contains(".")) continue; // Apicurio names messages of the file only
            for (boolean inHeaders : new boolean[] {false, true}) {
                RecordHeaders headers = new RecordHeaders();
                var serializer = configured(new ProtobufKafkaSerializer<>(resolver(schema, parser)), inHeaders);
                byte[] found = serializer.serialize("t", headers, message);
                print((inHeaders ? "apicurio-protobuf-headers:" : "apicurio-protobuf:") + name, found, headers);
            }
        }
    }

    static DescriptorProto message(String name, DescriptorProto... nested) {
        return DescriptorProto.newBuilder().setName(name).addAllNestedType(List.of(nested)).addField(
            FieldDescriptorProto.newBuilder().setName("id").setNumber(1).setType(FieldDescriptorProto.Type.TYPE_INT64)
                .setLabel(FieldDescriptorProto.Label.LABEL_OPTIONAL)).build();
    }

    static Descriptor find(FileDescriptor file, String name) {
        List<String> parts = new ArrayList<>(List.of(name.split("\\.")));
        Descriptor found = file.findMessageTypeByName(parts.remove(0));
        for (String part : parts) found = found.findNestedTypeByName(part);
        return found;
    }

    static GlueSchemaRegistryConfiguration glue(String compression) {
        return new GlueSchemaRegistryConfiguration(Map.of("region", "eu-west-1", "compression", compression));
    }

    /** A resolver without a registry. */
    @SuppressWarnings("unchecked")
    static <S, T> SchemaResolver<S, T> resolver(S schema, Object parser) {
        var found = SchemaLookupResult.<S>builder().globalId(42).contentId(43).artifactId("t-value").version("1")
            .parsedSchema(new ParsedSchemaImpl<S>().setParsedSchema(schema)).build();
        return (SchemaResolver<S, T>) Proxy.newProxyInstance(
            RegistryFormats.class.getClassLoader(), new Class<?>[] {SchemaResolver.class}, (proxy, method, given) ->
                method.getName().startsWith("resolve") ? found : method.getName().equals("getSchemaParser") ? parser : null);
    }

    static <T> Serializer<T> configured(Serializer<T> serializer, boolean inHeaders) {
        serializer.configure(Map.of(
            "apicurio.registry.headers.enabled", inHeaders, "apicurio.registry.serde.validation-enabled", false), false);
        return serializer;
    }

    static void print(String name, byte[] data, RecordHeaders headers) {
        StringBuilder line = new StringBuilder(name + " " + HexFormat.of().formatHex(data));
        for (Header header : headers) line.append(" " + header.key() + "=" + HexFormat.of().formatHex(header.value()));
        System.out.println(line);
    }
}
