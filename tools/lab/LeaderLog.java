import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Base64;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.RecordVersion;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * What Kafka makes of a record set, with its own classes. A line of stdin is a JSON object: "records" in base64, "as".
 * - "leader": a produced set, appended by UnifiedLog.appendAsLeader as version "version"; "size" of what was written
 * - "follower": a fetched set, appended by UnifiedLog.appendAsFollower
 * - "request": ProduceRequest.validateRecords in version "version"
 * - "consumer": every batch is validated and its records are read, as by a consumer; "records" counts them
 * A line of stdout answers: "ok", or "error" and "message".
 * Needs the jars of Kafka 4.3: java -cp 'libs/*' LeaderLog.java
 */
public class LeaderLog {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = JSON.readTree(line);
            ObjectNode row = JSON.createObjectNode();
            try {
                ByteBuffer bytes = ByteBuffer.wrap(Base64.getDecoder().decode(asked.get("records").asText()));
                judge(MemoryRecords.readableRecords(bytes), asked, row);
                row.put("ok", true);
            } catch (Throwable error) {
                row.put("ok", false).put("error", error.getClass().getSimpleName()).put("message", error.getMessage());
            }
            out.println(JSON.writeValueAsString(row));
        }
    }

    private static void judge(MemoryRecords records, JsonNode asked, ObjectNode row) throws IOException {
        switch (asked.get("as").asText()) {
            case "request" -> ProduceRequest.validateRecords((short) asked.get("version").asInt(), records);
            case "consumer" -> consume(records, row);
            default -> append(records, asked, row);
        }
    }

    private static void consume(MemoryRecords records, ObjectNode row) {
        int count = 0;
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            for (Record record : batch) {
                record.ensureValid();
                count++;
            }
        }
        row.put("records", count);
    }

    private static void append(MemoryRecords records, JsonNode asked, ObjectNode row) throws IOException {
        File dir = new File(Files.createTempDirectory("kseg-leader-").toFile(), "topic-0");
        dir.mkdir();
        UnifiedLog log = UnifiedLog.create(dir, new LogConfig(Map.of()), 0, 0, new NeverScheduler(),
            new BrokerTopicStats(), Time.SYSTEM, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
            new LogDirFailureChannel(1), true, Optional.empty());
        try {
            if (asked.get("as").asText().equals("follower"))
                log.appendAsFollower(records, 0);
            else
                log.appendAsLeaderWithRecordVersion(records, 0, RecordVersion.lookup((byte) asked.get("version").asInt()));
            row.put("size", log.size()).put("log_end", log.logEndOffset());
        } finally {
            log.removeLogMetrics();
            log.closeHandlers();
            for (File file : dir.listFiles())
                file.delete();
            dir.delete();
            dir.getParentFile().delete();
        }
    }

    /** Runs nothing. */
    private static class NeverScheduler implements Scheduler {
        public void startup() { }

        public void shutdown() { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return null;
        }

        public void resizeThreadPool(int newSize) { }
    }
}
