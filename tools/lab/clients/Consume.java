import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints the records that Kafka's Java client reads of partition 0 of topics, as consume.py does.
 * Needs the jars of Kafka 4.3: java -cp 'libs/*' Consume.java HOST:PORT TOPIC...
 */
public class Consume {
    private static final int WAITS = 15;
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] args) throws Exception {
        for (int i = 1; i < args.length; i++) {
            MessageDigest rows = MessageDigest.getInstance("SHA-256");
            int[] records = {0};
            String error = null;
            try {
                read(args[0], new TopicPartition(args[i], 0), rows, records);
            } catch (Exception e) {
                Throwable cause = e;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                error = e.getClass().getSimpleName() + (cause == e ? "" : ": " + cause.getClass().getSimpleName());
            }
            String end = error == null ? "" : ", \"error\": \"" + error + "\"";
            System.out.printf("{\"topic\": \"%s\", \"records\": %d, \"sha256\": \"%s\"%s}%n",
                args[i], records[0], HEX.formatHex(rows.digest()), end);
        }
    }

    private static void read(String bootstrap, TopicPartition partition, MessageDigest rows, int[] records) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", false, "auto.offset.reset", "earliest");
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings, bytes, bytes)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            int waits = 0;
            while (consumer.position(partition) < end) {
                long before = consumer.position(partition);
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    rows.update(row(record).getBytes(StandardCharsets.US_ASCII));
                    records[0]++;
                }
                if (consumer.position(partition) > before) {
                    waits = 0;
                } else if (++waits > WAITS) {
                    throw new IllegalStateException(null, new java.util.concurrent.TimeoutException());
                }
            }
        }
    }

    private static String row(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder headers = new StringBuilder();
        for (Header header : record.headers()) {
            headers.append(headers.isEmpty() ? "" : ",").append(hex(header.key().getBytes(StandardCharsets.UTF_8)));
            headers.append("=").append(hex(header.value()));
        }
        return record.offset() + "\t" + record.timestamp() + "\t" + hex(record.key()) + "\t" + hex(record.value()) + "\t" + headers + "\n";
    }

    private static String hex(byte[] data) {
        return data == null ? "-" : HEX.formatHex(data);
    }
}
