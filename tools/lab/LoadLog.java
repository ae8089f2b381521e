import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import org.apache.kafka.common.errors.KafkaStorageException;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Loads partition folders as a broker does at its start, with Kafka's own UnifiedLog and LogLoader, and prints what it
 * made of each. A line of stdin is a JSON object ("dir", "clean", "recovery_point", "log_start", "index_interval",
 * "index_bytes"), a line of stdout its answer: "log_start", "log_end", "epochs", "files" with their sizes, "snapshots" with
 * their bytes in base64, "stray"; or "failure" ("offline" for what takes a log dir offline, "refuse" for what ends the process) and "error".
 * Needs the jars of Kafka 4.3: java -cp 'libs/*' LoadLog.java
 */
public class LoadLog {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final BrokerTopicStats STATS = new BrokerTopicStats();
    private static final int COLLECT_EVERY = 100;

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> { throw new IllegalStateException("exit " + status); });
        Exit.setHaltProcedure((status, message) -> { throw new IllegalStateException("halt " + status); });
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int count = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            // Maps and channels of logs that failed to load are closed by the collector alone.
            if (++count % COLLECT_EVERY == 0)
                System.gc();
        }
    }

    private static ObjectNode answer(JsonNode asked) {
        ObjectNode row = JSON.createObjectNode();
        File dir = new File(asked.get("dir").asText());
        try {
            UnifiedLog log = load(dir, asked);
            row.put("log_start", log.logStartOffset()).put("log_end", log.logEndOffset());
            row.put("stray", log.topicId().isEmpty());
            ArrayNode epochs = row.putArray("epochs");
            for (EpochEntry entry : log.leaderEpochCache().epochEntries())
                epochs.addArray().add(entry.epoch()).add(entry.startOffset());
            ObjectNode files = row.putObject("files");
            File[] found = dir.listFiles();
            Arrays.sort(found);
            for (File file : found)
                if (file.isFile())
                    files.put(file.getName(), file.length());
            ObjectNode snapshots = row.putObject("snapshots");
            for (File file : found)
                if (file.isFile() && file.getName().endsWith(".snapshot"))
                    snapshots.put(file.getName(), Files.readAllBytes(file.toPath()));
            log.removeLogMetrics();
            log.closeHandlers();
        } catch (Throwable error) {
            boolean offline = error instanceof IOException
                || error instanceof KafkaStorageException && error.getCause() instanceof IOException;
            row.put("failure", offline ? "offline" : "refuse").put("error", String.valueOf(error));
            StackTraceElement[] trace = error.getStackTrace();
            if (trace.length > 0)
                row.put("at", Arrays.toString(Arrays.copyOf(trace, Math.min(6, trace.length))));
        }
        return row;
    }

    private static UnifiedLog load(File dir, JsonNode asked) throws IOException {
        LogConfig config = new LogConfig(Map.of(
            "segment.index.bytes", asked.get("index_bytes").asText(),
            "index.interval.bytes", asked.get("index_interval").asText()));
        return UnifiedLog.create(dir, config, asked.get("log_start").asLong(), asked.get("recovery_point").asLong(),
            new NeverScheduler(), STATS, new LongAgo(), 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
            new LogDirFailureChannel(1), asked.get("clean").asBoolean(), Optional.empty());
    }

    /** A clock by which no producer expires. */
    private static class LongAgo implements Time {
        public long milliseconds() {
            return 0;
        }

        public long nanoseconds() {
            return System.nanoTime();
        }

        public void sleep(long ms) {
            Time.SYSTEM.sleep(ms);
        }

        public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) throws InterruptedException {
            Time.SYSTEM.waitObject(obj, condition, deadlineMs);
        }
    }

    /** Keeps files that are about to be deleted as they are: the work of a broker that has started. */
    private static class NeverScheduler implements Scheduler {
        public void startup() { }

        public void shutdown() { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return null;
        }

        public void resizeThreadPool(int newSize) { }
    }
}
