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
import io.apicurio.registry.serde.protobuf.ProtobufKafkaSerializer;
import io.apicurio.registry.serde.protobuf.ProtobufSchemaParser;
import io.apicurio.registry.utils.protobuf.schema.ProtobufSchema;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;

/**
 * Prints what the serializers of Apicurio and of AWS Glue write for the messages of a file: a name with the message, the
 * bytes, and the headers, one per line. Each message has its position in MESSAGES as its id.
 */
public class RegistryProtobuf {
    static final List<String> MESSAGES = List.of("Zebra", "Order", "Order.Line", "Order.Line.Part", "Order.Address", "Apple");

    public static void main(String[] args) throws Exception {
        FileDescriptor file = FileDescriptor.buildFrom(FileDescriptorProto.newBuilder().setName("shop.proto").setPackage("shop")
            .setSyntax("proto3").addMessageType(message("Zebra"))
            .addMessageType(message("Order", message("Line", message("Part")), message("Address")))
            .addMessageType(message("Apple")).build(), new FileDescriptor[0]);
        UUID version = UUID.fromString("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63");
        var settings = new GlueSchemaRegistryConfiguration(Map.of("region", "eu-west-1", "compression", "NONE"));
        for (String name : MESSAGES) {
            DynamicMessage message = DynamicMessage.newBuilder(find(file, name))
                .setField(find(file, name).findFieldByName("id"), (long) MESSAGES.indexOf(name)).build();
            byte[] data = new ProtobufSerializer(settings).serialize(message);
            print("glue-protobuf:" + name, new SerializationDataEncoder(settings).write(data, version), new RecordHeaders());
            if (name.contains(".")) continue; // Apicurio names messages of the file only
            for (boolean inHeaders : new boolean[] {false, true}) {
                RecordHeaders headers = new RecordHeaders();
                byte[] found = apicurio(file, inHeaders).serialize("t", headers, message);
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

    @SuppressWarnings("unchecked")
    static ProtobufKafkaSerializer<DynamicMessage> apicurio(FileDescriptor file, boolean inHeaders) {
        ProtobufSchemaParser<DynamicMessage> parser = new ProtobufSchemaParser<>();
        // The parsed text of the schema is needed for a registry only.
        ProtobufSchema schema = new ProtobufSchema(file, ProtoParser.Companion.parse(Location.get("shop.proto"), ""));
        var found = SchemaLookupResult.<ProtobufSchema>builder().globalId(42).contentId(43).artifactId("t-value").version("1")
            .parsedSchema(new ParsedSchemaImpl<ProtobufSchema>().setParsedSchema(schema)).build();
        // A resolver without a registry.
        var resolver = (SchemaResolver<ProtobufSchema, DynamicMessage>) Proxy.newProxyInstance(
            RegistryProtobuf.class.getClassLoader(), new Class<?>[] {SchemaResolver.class}, (proxy, method, given) ->
                method.getName().startsWith("resolve") ? found : method.getName().equals("getSchemaParser") ? parser : null);
        ProtobufKafkaSerializer<DynamicMessage> serializer = new ProtobufKafkaSerializer<>(resolver);
        Map<String, Object> settings = new HashMap<>();
        settings.put("apicurio.registry.headers.enabled", inHeaders);
        settings.put("apicurio.registry.serde.validation-enabled", false);
        serializer.configure(settings, false);
        return serializer;
    }

    static void print(String name, byte[] data, RecordHeaders headers) {
        StringBuilder line = new StringBuilder(name + " " + HexFormat.of().formatHex(data));
        for (Header header : headers) line.append(" " + header.key() + "=" + HexFormat.of().formatHex(header.value()));
        System.out.println(line);
    }
}
