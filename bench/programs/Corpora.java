import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.SplittableRandom;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;

/**
 * Writes one segment with Kafka's own MemoryRecordsBuilder, the class that its producer fills batches with, and prints
 * {"batches":…,"records":…,"bytes":…}. The same arguments give the same events; only the timestamps' base is fixed too.
 * Needs the jars of Kafka 4.3: java -cp 'libs/*' Corpora.java FILE MAGIC CODEC RECORDS BATCH_SIZE KIND PRODUCERS
 * BATCH_SIZE as the producer's batch.size; 0 gives a batch to each record. KIND: events (JSON of about 260 bytes),
 * lines (100 bytes), large (JSON of 64 KiB to 1 MiB), or a number (text of this many bytes). PRODUCERS: how many
 * idempotent producers take turns, a batch each; 0 for a producer without an id.
 */
public class Corpora {
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;
    private static final String[] ACTIONS = {"view", "click", "add_to_cart", "purchase", "search", "logout", "refund"};
    private static final String[] AGENTS = {"Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (Macintosh)", "okhttp/4.9.3"};
    private static final String[] COUNTRIES = {"DE", "US", "BR", "IN", "JP", "FR", "ZA"};

    private final SplittableRandom random = new SplittableRandom(20);
    private final byte magic;
    private final CompressionType codec;
    private final int batchSize;
    private final String kind;
    private final int[] sequences;
    private int producer = -1;

    private Corpora(byte magic, CompressionType codec, int batchSize, String kind, int producers) {
        this.magic = magic;
        this.codec = codec;
        this.batchSize = batchSize;
        this.kind = kind;
        this.sequences = new int[producers];
    }

    public static void main(String[] args) throws IOException {
        Corpora corpora = new Corpora(
            Byte.parseByte(args[1]), CompressionType.forName(args[2]), Integer.parseInt(args[4]), args[5], Integer.parseInt(args[6]));
        try (OutputStream out = new BufferedOutputStream(Files.newOutputStream(Path.of(args[0])), 1 << 20)) {
            corpora.write(out, Integer.parseInt(args[3]));
        }
    }

    private void write(OutputStream out, int records) throws IOException {
        long batches = 0;
        long bytes = 0;
        // The producer begins with the worst estimate and learns the ratio from the batches it has closed.
        float ratio = 1.0f;
        int i = 0;
        while (i < records) {
            int first = i;
            MemoryRecordsBuilder builder = builder(i);
            builder.setEstimatedCompressionRatio(ratio);
            do {
                long timestamp = FIRST_TIMESTAMP + i;
                byte[] key = kind.equals("lines") ? null : ("user-" + random.nextInt(50_000)).getBytes(StandardCharsets.UTF_8);
                builder.append(timestamp, key, value(timestamp));
                i++;
            } while (i < records && batchSize > 0 && builder.hasRoomFor(FIRST_TIMESTAMP + i, new byte[10], new byte[260], new org.apache.kafka.common.header.Header[0]));
            if (producer >= 0) {
                sequences[producer] += i - first;
            }
            MemoryRecords built = builder.build();
            ratio = codec == CompressionType.NONE ? 1.0f : (float) builder.compressionRatio() * 1.05f;
            ByteBuffer buffer = built.buffer();
            bytes += buffer.remaining();
            // Without a codec each old message is an entry.
            batches += magic < 2 && codec == CompressionType.NONE ? i - first : 1;
            out.write(buffer.array(), buffer.arrayOffset() + buffer.position(), buffer.remaining());
        }
        System.out.printf("{\"batches\":%d,\"records\":%d,\"bytes\":%d}%n", batches, records, bytes);
    }

    private MemoryRecordsBuilder builder(long baseOffset) {
        ByteBuffer buffer = ByteBuffer.allocate(Math.max(batchSize, 512));
        if (magic < 2) {
            return MemoryRecords.builder(buffer, magic, Compression.of(codec).build(),
                magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : TimestampType.CREATE_TIME, baseOffset);
        }
        if (sequences.length > 0) {
            producer = (producer + 1) % sequences.length;
        }
        return MemoryRecords.builder(buffer, magic, Compression.of(codec).build(), TimestampType.CREATE_TIME,
            baseOffset, -1L, producer, (short) (producer < 0 ? -1 : 0), producer < 0 ? -1 : sequences[producer], false, 0);
    }

    private byte[] value(long timestamp) {
        StringBuilder text = new StringBuilder(512);
        switch (kind) {
            case "lines":
                for (int i = 0; i < 100; i++) {
                    text.append((char) ('a' + random.nextInt(26)));
                }
                break;
            case "large":
                int size = 64 * 1024 + random.nextInt(960 * 1024);
                for (text.append('['); text.length() < size - 400; text.append(',')) {
                    event(text, timestamp);
                }
                event(text, timestamp);
                text.append(']');
                break;
            case "events":
                event(text, timestamp);
                break;
            default:
                int length = Integer.parseInt(kind);
                while (text.length() < length) {
                    event(text, timestamp);
                }
                text.setLength(length);
        }
        return text.toString().getBytes(StandardCharsets.UTF_8);
    }

    private void event(StringBuilder text, long timestamp) {
        text.append("{\"event_id\":\"").append(Long.toHexString(random.nextLong() >>> 4))
            .append("\",\"ts\":").append(timestamp)
            .append(",\"user\":{\"id\":").append(random.nextInt(50_000))
            .append(",\"country\":\"").append(one(COUNTRIES)).append("\"},\"action\":\"").append(one(ACTIONS))
            .append("\",\"session\":\"").append(Integer.toHexString(random.nextInt()))
            .append("\",\"agent\":\"").append(one(AGENTS))
            .append("\",\"path\":\"/shop/item/").append(random.nextInt(9_000))
            .append("\",\"price\":").append(random.nextInt(100_000) / 100.0)
            .append(",\"ms\":").append(random.nextInt(900)).append(",\"ok\":").append(random.nextInt(20) > 0)
            .append(",\"tags\":[\"web\",\"v2\"]}");
    }

    private String one(String[] of) {
        return of[random.nextInt(of.length)];
    }
}
