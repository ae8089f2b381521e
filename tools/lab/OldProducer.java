import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Produces what a script on stdin says, with the producer client of whatever Kafka is on the class path (0.8.2 or later).
 *
 * Lines, fields parted by tabs: {@code producer name=value...} opens a producer (and closes the one before) ·
 * {@code send topic timestamp key value header=value...} · {@code flush} waits for what was sent, so it ends a batch ·
 * {@code sleep ms} · any other word is a method of the producer, such as {@code beginTransaction}.
 * Keys and values are hexadecimal; {@code -} stands for null, or for no timestamp.
 */
public class OldProducer {
    // Long enough that only a flush ends a batch. 0.8.2 has no flush(): there the linger itself does.
    private static final String LINGER_MS = "500";

    private static KafkaProducer<byte[], byte[]> producer;
    private static final List<Future<?>> sent = new ArrayList<>();

    public static void main(String[] arguments) throws Exception {
        var script = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = script.readLine(); line != null; line = script.readLine()) {
            String[] fields = line.split("\t", -1);
            switch (fields[0]) {
                case "producer" -> open(arguments[0], fields);
                case "send" -> sent.add(producer.send(record(fields)));
                case "flush" -> flush();
                case "sleep" -> Thread.sleep(Long.parseLong(fields[1]));
                default -> KafkaProducer.class.getMethod(fields[0]).invoke(producer);
            }
        }
        flush();
        close();
    }

    private static void open(String servers, String[] fields) throws Exception {
        close();
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", servers);
        config.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        config.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        config.put("acks", "all");
        config.put("linger.ms", LINGER_MS);
        for (int i = 1; i < fields.length; i++) {
            String[] pair = fields[i].split("=", 2);
            config.put(pair[0], pair[1]);
        }
        producer = new KafkaProducer<>(config);
    }

    private static void close() throws Exception {
        if (producer != null) {
            flush();
            producer.close();
        }
    }

    private static void flush() throws Exception {
        try {
            KafkaProducer.class.getMethod("flush").invoke(producer);
        } catch (NoSuchMethodException before0_9) {
            // Waiting for the futures is all that can be done.
        }
        for (Future<?> future : sent) {
            future.get(30, TimeUnit.SECONDS);
        }
        sent.clear();
    }

    /** Timestamps came with 0.10 (KIP-32) and headers with 0.11 (KIP-82): neither may be named in this source. */
    @SuppressWarnings("unchecked")
    private static ProducerRecord<byte[], byte[]> record(String[] fields) throws Exception {
        byte[] key = bytes(fields[3]);
        byte[] value = bytes(fields[4]);
        if (fields[2].equals("-")) {
            return withHeaders(new ProducerRecord<>(fields[1], 0, key, value), fields);
        }
        Constructor<?> constructor = ProducerRecord.class.getConstructor(
                String.class, Integer.class, Long.class, Object.class, Object.class);
        Object made = constructor.newInstance(fields[1], 0, Long.valueOf(fields[2]), key, value);
        return withHeaders((ProducerRecord<byte[], byte[]>) made, fields);
    }

    private static ProducerRecord<byte[], byte[]> withHeaders(ProducerRecord<byte[], byte[]> record, String[] fields)
            throws Exception {
        for (int i = 5; i < fields.length; i++) {
            String[] pair = fields[i].split("=", 2);
            Object headers = ProducerRecord.class.getMethod("headers").invoke(record);
            Class.forName("org.apache.kafka.common.header.Headers")
                    .getMethod("add", String.class, byte[].class)
                    .invoke(headers, pair[0], bytes(pair[1]));
        }
        return record;
    }

    private static byte[] bytes(String hex) {
        return hex.equals("-") ? null : HexFormat.of().parseHex(hex);
    }
}
