import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.PriorityQueue;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.KafkaStorageException;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.RecordVersion;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * The life of partitions by Kafka's own UnifiedLog, LogLoader and Cleaner. A line of stdin is a JSON object, a line of
 * stdout its answer. "do" is the step, "dir" the folder of the partition, "now" the time in milliseconds.
 * - without "do": loads the folder as a broker does at its start ("clean", "recovery_point", "log_start", "index_interval",
 *   "index_bytes", "config") and answers what it made of it: "log_start", "log_end", "epochs", "files" with their sizes,
 *   "snapshots" with their bytes in base64, "stray"; or "failure" ("offline" for what takes a log dir offline, "refuse" for
 *   what ends the process) and "error". With "keep" the log stays open for the steps.
 * - append, marker, fetch, reconcile, epoch, roll, flush, truncate, delete_records, retain, clean, snapshot, tasks: a step
 *   of an open log; "error" is the exception with which Kafka rejects it
 * - state: what the log holds: its offsets, producers, and the records that consumers of both isolation levels get
 * - close: a clean shutdown; crash: the end of the process
 * Needs the jars of Kafka 4.3: java -cp 'libs/*' PartitionLife.java
 */
public class PartitionLife {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final BrokerTopicStats STATS = new BrokerTopicStats();
    private static final int COLLECT_EVERY = 100;
    private static final Map<String, UnifiedLog> LOGS = new HashMap<>();
    private static final Map<String, TaskQueue> TASKS = new HashMap<>();
    private static long now = 0;

    public static void main(String[] args) throws Exception {
        Exit.setExitProcedure((status, message) -> { throw new IllegalStateException("exit " + status); });
        Exit.setHaltProcedure((status, message) -> { throw new IllegalStateException("halt " + status); });
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int count = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode asked = JSON.readTree(line);
            now = asked.path("now").asLong();
            boolean load = !asked.has("do");
            out.println(JSON.writeValueAsString(load ? loaded(asked) : step(asked)));
            // Maps and channels of logs that failed to load are closed by the collector alone.
            if (load && ++count % COLLECT_EVERY == 0)
                System.gc();
        }
    }

    private static ObjectNode loaded(JsonNode asked) {
        ObjectNode row = JSON.createObjectNode();
        File dir = new File(asked.get("dir").asText());
        try {
            UnifiedLog log = load(dir, asked);
            row.put("log_start", log.logStartOffset()).put("log_end", log.logEndOffset());
            row.put("stray", log.topicId().isEmpty());
            addEpochs(log, row);
            addFiles(dir, row);
            ObjectNode snapshots = row.putObject("snapshots");
            for (File file : dir.listFiles())
                if (file.isFile() && file.getName().endsWith(".snapshot"))
                    snapshots.put(file.getName(), Files.readAllBytes(file.toPath()));
            log.removeLogMetrics();
            if (asked.path("keep").asBoolean())
                LOGS.put(dir.getPath(), log);
            else
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
        Map<String, String> settings = new HashMap<>();
        asked.path("config").fields().forEachRemaining(entry -> settings.put(entry.getKey(), entry.getValue().asText()));
        settings.put("segment.index.bytes", asked.get("index_bytes").asText());
        settings.put("index.interval.bytes", asked.get("index_interval").asText());
        TaskQueue tasks = new TaskQueue();
        TASKS.put(dir.getPath(), tasks);
        Optional<Uuid> topicId = Optional.ofNullable(asked.get("topic_id")).map(id -> Uuid.fromString(id.asText()));
        return UnifiedLog.create(dir, new LogConfig(settings), asked.get("log_start").asLong(),
            asked.get("recovery_point").asLong(), tasks, STATS, new Clock(), 900_000,
            new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1),
            asked.get("clean").asBoolean(), topicId);
    }

    private static void addEpochs(UnifiedLog log, ObjectNode row) {
        ArrayNode epochs = row.putArray("epochs");
        for (EpochEntry entry : log.leaderEpochCache().epochEntries())
            epochs.addArray().add(entry.epoch()).add(entry.startOffset());
    }

    private static void addFiles(File dir, ObjectNode row) {
        ObjectNode files = row.putObject("files");
        File[] found = dir.listFiles();
        Arrays.sort(found);
        for (File file : found)
            if (file.isFile())
                files.put(file.getName(), file.length());
    }

    private static ObjectNode step(JsonNode asked) {
        ObjectNode row = JSON.createObjectNode();
        try {
            UnifiedLog log = LOGS.get(asked.get("dir").asText());
            run(asked.get("do").asText(), log, asked, row);
            if (!asked.get("do").asText().equals("crash"))
                TASKS.get(log.dir().getPath()).runSoon();
            row.put("log_start", log.logStartOffset()).put("log_end", log.logEndOffset());
            row.put("recovery_point", log.recoveryPoint());
        } catch (Throwable error) {
            row.put("error", error.getClass().getSimpleName()).put("message", String.valueOf(error.getMessage()));
        }
        return row;
    }

    private static void run(String name, UnifiedLog log, JsonNode asked, ObjectNode row) throws Exception {
        switch (name) {
            case "append" -> append(log, records(asked), asked, AppendOrigin.CLIENT, row);
            case "marker" -> append(log, marker(asked), asked, AppendOrigin.COORDINATOR, row);
            case "fetch" -> fetch(log, LOGS.get(asked.get("leader").asText()));
            case "reconcile" -> reconcile(log, LOGS.get(asked.get("leader").asText()));
            case "epoch" -> log.assignEpochStartOffset(asked.get("epoch").asInt(), log.logEndOffset());
            case "roll" -> log.roll();
            case "flush" -> log.flush(true);
            case "truncate" -> log.truncateTo(asked.get("to").asLong());
            case "delete_records" -> {
                log.updateHighWatermark(log.logEndOffset());
                log.maybeIncrementLogStartOffset(asked.get("to").asLong(), LogStartOffsetIncrementReason.ClientRecordDeletion);
                log.deleteOldSegments();
            }
            case "retain" -> {
                log.updateHighWatermark(log.logEndOffset());
                row.put("deleted", log.deleteOldSegments());
            }
            case "clean" -> clean(log, asked.get("first_dirty").asLong(), row);
            case "snapshot" -> log.takeProducerSnapshot();
            case "tasks" -> TASKS.get(log.dir().getPath()).runAll();
            case "state" -> addState(log, row);
            case "close" -> log.close();
            case "crash" -> log.closeHandlers();
            default -> throw new IllegalArgumentException(name);
        }
    }

    private static MemoryRecords records(JsonNode asked) {
        List<SimpleRecord> records = new ArrayList<>();
        for (JsonNode one : asked.get("records"))
            records.add(new SimpleRecord(one.get(0).asLong(), bytes(one.get(1)), bytes(one.get(2))));
        return MemoryRecords.withRecords((byte) asked.get("magic").asInt(), 0,
            Compression.of(asked.get("codec").asText()).build(), TimestampType.CREATE_TIME, asked.get("producer").asLong(),
            (short) asked.get("producer_epoch").asInt(), asked.get("sequence").asInt(), -1,
            asked.get("transactional").asBoolean(), records.toArray(new SimpleRecord[0]));
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : text.asText().getBytes(StandardCharsets.UTF_8);
    }

    private static MemoryRecords marker(JsonNode asked) {
        ControlRecordType type = asked.get("commit").asBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        return MemoryRecords.withEndTransactionMarker(asked.get("now").asLong(), asked.get("producer").asLong(),
            (short) asked.get("producer_epoch").asInt(), new EndTransactionMarker(type, 0));
    }

    private static void append(UnifiedLog log, MemoryRecords records, JsonNode asked, AppendOrigin origin, ObjectNode row)
            throws IOException {
        int magic = asked.path("magic").asInt(2), epoch = asked.get("epoch").asInt();
        LogAppendInfo done;
        if (magic < 2)
            done = log.appendAsLeaderWithRecordVersion(records, epoch, RecordVersion.lookup((byte) magic));
        else
            done = log.appendAsLeader(records, epoch, origin, RequestLocal.noCaching(), VerificationGuard.SENTINEL,
                (short) asked.path("transaction_version").asInt());
        row.put("first", done.firstOffset()).put("last", done.lastOffset());
    }

    /** What a follower copies: all that its leader has. */
    private static void fetch(UnifiedLog log, UnifiedLog leader) throws IOException {
        if (log.logEndOffset() < leader.logStartOffset())
            log.truncateFullyAndStartAt(leader.logStartOffset(), Optional.empty());
        while (log.logEndOffset() < leader.logEndOffset()) {
            FileRecords found = (FileRecords) leader.read(log.logEndOffset(), 4096, FetchIsolation.LOG_END, true).records;
            ByteBuffer bytes = ByteBuffer.allocate(found.sizeInBytes());
            found.readInto(bytes, 0);
            log.appendAsFollower(MemoryRecords.readableRecords(bytes), Integer.MAX_VALUE);
        }
        log.updateHighWatermark(log.logEndOffset());
        log.maybeIncrementLogStartOffset(leader.logStartOffset(), LogStartOffsetIncrementReason.LeaderOffsetIncremented);
    }

    /** Truncates a follower to the end of the last epoch that it has in common with its leader (KIP-101, KIP-279). */
    private static void reconcile(UnifiedLog log, UnifiedLog leader) {
        if (log.latestEpoch().isEmpty())
            return;
        int epoch = log.latestEpoch().get();
        while (true) {
            Optional<OffsetAndEpoch> theirs = leader.endOffsetForEpoch(epoch);
            if (theirs.isEmpty()) {
                log.truncateFullyAndStartAt(leader.logStartOffset(), Optional.empty());
                return;
            }
            OffsetAndEpoch ours = log.endOffsetForEpoch(theirs.get().epoch()).orElse(null);
            if (ours == null || theirs.get().epoch() == epoch || ours.epoch() == theirs.get().epoch()) {
                long end = ours == null ? log.logStartOffset() : Math.min(ours.offset(), theirs.get().offset());
                log.truncateTo(Math.min(end, log.logEndOffset()));
                return;
            }
            epoch = ours.epoch();
        }
    }

    private static void clean(UnifiedLog log, long firstDirty, ObjectNode row) throws Exception {
        long end = Math.min(log.activeSegment().baseOffset(),
            log.producerStateManager().firstUndecidedOffset().orElse(Long.MAX_VALUE));
        firstDirty = Math.max(firstDirty, log.logStartOffset());
        row.put("first_dirty", firstDirty);
        if (end <= firstDirty)
            return;
        log.updateHighWatermark(log.logEndOffset());
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(1 << 16, "MD5"), 1 << 14, 1 << 22, 0.9,
            new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner", "entries", Time.SYSTEM), new Clock(), name -> { });
        row.put("first_dirty", cleaner.doClean(new LogToClean(log, firstDirty, end, false), now).getKey());
    }

    private static void addState(UnifiedLog log, ObjectNode row) throws Exception {
        long end = log.logEndOffset();
        long stable = Math.max(log.logStartOffset(), log.producerStateManager().firstUndecidedOffset().orElse(end));
        row.put("last_stable", stable);
        addEpochs(log, row);
        ArrayNode producers = row.putArray("producers");
        for (ProducerStateEntry one : log.producerStateManager().activeProducers().values())
            producers.addArray().add(one.producerId()).add(one.producerEpoch()).add(one.currentTxnFirstOffset().orElse(-1));
        PriorityQueue<AbortedTxn> waiting = new PriorityQueue<>(Comparator.comparingLong(AbortedTxn::firstOffset));
        waiting.addAll(log.collectAbortedTransactions(log.logStartOffset(), stable));
        Set<Long> aborted = new HashSet<>();
        ArrayNode records = row.putArray("records");
        ArrayNode committed = row.putArray("committed");
        for (LogSegment segment : log.logSegments())
            for (RecordBatch batch : segment.log().batches()) {
                batch.ensureValid();
                // As the consumer does: CompletedFetch.nextFetchedRecord
                while (!waiting.isEmpty() && waiting.peek().firstOffset() <= batch.lastOffset())
                    aborted.add(waiting.poll().producerId());
                if (aborted.contains(batch.producerId()) && batch.isControlBatch() && isAbort(batch))
                    aborted.remove(batch.producerId());
                boolean dropped = batch.isControlBatch() || batch.isTransactional() && aborted.contains(batch.producerId());
                for (Record record : batch) {
                    records.addArray().add(record.offset()).add(record.timestamp()).add(text(record.key()))
                        .add(text(record.value())).add(batch.isControlBatch());
                    if (!dropped && record.offset() < stable && record.offset() >= log.logStartOffset())
                        committed.add(record.offset());
                }
            }
    }

    private static boolean isAbort(RecordBatch batch) {
        var records = batch.iterator();
        return records.hasNext() && ControlRecordType.parse(records.next().key()) == ControlRecordType.ABORT;
    }

    private static String text(ByteBuffer bytes) {
        return bytes == null ? null : new String(Utils.toArray(bytes), StandardCharsets.ISO_8859_1);
    }

    /** The time of the step. Producers expire by it; a load without "now" happens long ago, and none expires. */
    private static class Clock implements Time {
        public long milliseconds() {
            return now;
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

    /** Runs tasks after the step, those with a delay, such as the deletion of files, in "tasks"; periodic work never runs. */
    private static class TaskQueue implements Scheduler {
        private static final ScheduledExecutorService NEVER = Executors.newScheduledThreadPool(1, task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        private final Queue<Runnable> soon = new ArrayDeque<>(), later = new ArrayDeque<>();

        public void startup() { }

        public void shutdown() { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs > 0)
                return NEVER.schedule(() -> { }, 1000, TimeUnit.DAYS);  // UnifiedLog.close cancels it
            (delayMs > 0 ? later : soon).add(task);
            return null;
        }

        public void resizeThreadPool(int newSize) { }

        void runSoon() {
            run(soon);
        }

        void runAll() {
            run(soon);
            run(later);
        }

        private static void run(Queue<Runnable> tasks) {
            for (Runnable task = tasks.poll(); task != null; task = tasks.poll())
                task.run();
        }
    }
}
