import java.math.BigDecimal;
import java.util.Date;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.streams.kstream.SessionWindowedSerializer;
import org.apache.kafka.streams.kstream.TimeWindowedSerializer;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.kstream.internals.SessionWindow;
import org.apache.kafka.streams.kstream.internals.TimeWindow;
import org.apache.kafka.streams.state.ValueAndTimestamp;
import org.apache.kafka.streams.state.internals.ValueAndTimestampSerializer;
import org.apache.kafka.streams.state.internals.WindowKeySchema;

/** Prints what Kafka Streams and Connect write: the type of kseg and the bytes, one per line. */
public class StreamsFormats {
    public static void main(String[] args) throws Exception {
        StringSerializer text = new StringSerializer();
        print("time-windowed:string", new TimeWindowedSerializer<>(text).serialize("t",
            new Windowed<>("k1", new TimeWindow(1_700_000_000_000L, 1_700_000_060_000L))));
        print("session-windowed:string", new SessionWindowedSerializer<>(text).serialize("t",
            new Windowed<>("k2", new SessionWindow(1_700_000_000_000L, 1_700_000_005_000L))));
        print("window-store:string",
            WindowKeySchema.toStoreKeyBinary(Bytes.wrap("k3".getBytes()), 1_700_000_000_000L, 7).get());
        var constructor = ValueAndTimestampSerializer.class.getDeclaredConstructor(Serializer.class);
        constructor.setAccessible(true);
        @SuppressWarnings("unchecked")
        Serializer<ValueAndTimestamp<String>> stored = (Serializer<ValueAndTimestamp<String>>) constructor.newInstance(text);
        print("value-and-timestamp:string", stored.serialize("t", ValueAndTimestamp.make("v", 1_700_000_000_001L)));
        connect();
    }

    static void connect() {
        Schema line = SchemaBuilder.struct().field("price", Decimal.schema(2)).build();
        Schema order = SchemaBuilder.struct().name("Order")
            .field("id", Schema.INT64_SCHEMA)
            .field("day", org.apache.kafka.connect.data.Date.SCHEMA)
            .field("time", org.apache.kafka.connect.data.Time.SCHEMA)
            .field("placed", org.apache.kafka.connect.data.Timestamp.SCHEMA)
            .field("lines", SchemaBuilder.array(line))
            .field("sizes", SchemaBuilder.map(Schema.STRING_SCHEMA, Schema.INT32_SCHEMA))
            .field("limits", SchemaBuilder.map(Schema.INT32_SCHEMA, Decimal.schema(0)))
            .field("raw", Schema.BYTES_SCHEMA)
            .field("note", Schema.OPTIONAL_STRING_SCHEMA)
            .build();
        Struct value = new Struct(order)
            .put("id", 5L)
            .put("day", new Date(19_675L * 86_400_000))
            .put("time", new Date(3_661_001))
            .put("placed", new Date(1_700_000_000_001L))
            .put("lines", List.of(new Struct(line).put("price", new BigDecimal("-12.50"))))
            .put("sizes", Map.of("a", 1))
            .put("limits", Map.of(3, new BigDecimal("77")))
            .put("raw", new byte[] {0, (byte) 255});
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", true), false);
        print("connect-json", converter.fromConnectData("t", order, value));
        print("connect-json", converter.fromConnectData("t", Schema.OPTIONAL_STRING_SCHEMA, "text"));
    }

    static void print(String type, byte[] data) {
        System.out.println(type + " " + HexFormat.of().formatHex(data));
    }
}
