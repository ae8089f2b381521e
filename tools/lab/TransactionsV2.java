import java.nio.charset.StandardCharsets;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes transactions with Kafka's own client, which speaks version 2 of them (KIP-890) to brokers since 4.0: committed,
 * aborted, several batches in one, by two producers in turns.
 */
public class TransactionsV2 {
    private static final long T0 = 1_700_000_000_000L;

    public static void main(String[] args) {
        try (KafkaProducer<byte[], byte[]> one = producer(args[0], args[1] + "-one");
             KafkaProducer<byte[], byte[]> two = producer(args[0], args[1] + "-two")) {
            one.initTransactions();
            two.initTransactions();
            for (int turn = 0; turn < 4; turn++) {
                one.beginTransaction();
                batch(one, args[1], turn, 4);
                two.beginTransaction();
                batch(two, args[1], turn + 10, 3);
                batch(one, args[1], turn + 20, 2);
                one.commitTransaction();
                if (turn % 2 == 0) {
                    two.abortTransaction();
                } else {
                    two.commitTransaction();
                }
            }
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String bootstrap, String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("client.id", "kseg-lab");
        settings.put("linger.ms", "10000");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static void batch(KafkaProducer<byte[], byte[]> producer, String topic, int turn, int count) {
        for (int i = 0; i < count; i++) {
            byte[] key = ("key-" + i).getBytes(StandardCharsets.UTF_8);
            byte[] value = ("turn " + turn + ", record " + i).getBytes(StandardCharsets.UTF_8);
            producer.send(new ProducerRecord<>(topic, 0, T0 + turn * 1000L + i, key, value));
        }
        producer.flush();
    }
}
