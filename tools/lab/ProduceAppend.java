import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ScheduledFuture;
import java.util.function.Supplier;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.InvalidPidMappingException;
import org.apache.kafka.common.errors.TransactionalIdAuthorizationException;
import org.apache.kafka.common.message.ProduceRequestData;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.requests.RequestUtils;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.RecordValidationException;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Appends the record sets of produce requests to empty partitions with Kafka's own ProduceRequest, UnifiedLog and
 * LogValidator, in the order of KafkaApis.handleProduceRequest and ReplicaManager.handleProduceAppend. A line of stdin is
 * a JSON object: "version", "acks", "transactional_id", "now", "settings" (of the topic), "sets" in base64 or null, "dir"
 * for the logs. A line of stdout is an array with an object for each set: "error", or what was written: "batches", "magic",
 * "compression", "records", "bytes", "max_timestamp", "max_timestamp_offset". Requests before version 3, which Kafka 4
 * does not read, are appended without ProduceRequest.validateRecords, which Kafka 3.9 skips for them.
 * Needs the jars of Kafka 4.3: java -cp 'libs/*' ProduceAppend.java. produce_oracle.py changes the names for those of 3.9.1.
 */
public class ProduceAppend {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final BrokerTopicStats STATS = new BrokerTopicStats();
    private static final int COLLECT_EVERY = 500;

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        int count = 0;
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            if (++count % COLLECT_EVERY == 0)
                System.gc();  // unmaps the indexes
        }
    }

    private static ArrayNode answer(JsonNode asked) throws Exception {
        short version = (short) asked.get("version").asInt();
        MemoryRecords[] sets = new MemoryRecords[asked.get("sets").size()];
        for (int i = 0; i < sets.length; i++)
            sets[i] = MemoryRecords.readableRecords(ByteBuffer.wrap(asked.get("sets").get(i).binaryValue()));
        ArrayNode rows = JSON.createArrayNode();
        Throwable[] faults = new Throwable[sets.length];
        Throwable all = fault(asked, version, sets, faults);
        for (int i = 0; i < sets.length; i++) {
            ObjectNode row = rows.addObject();
            Throwable fault = all != null ? all : faults[i];
            if (fault == null)
                fault = append(asked, sets[i], row);
            if (fault != null) {
                row.put("error", Errors.forException(fault).name());
                row.put("message", String.valueOf(fault));
            }
        }
        return rows;
    }

    /** Checks the whole request. Returns the fault of all partitions, and sets those of single partitions. */
    private static Throwable fault(JsonNode asked, short version, MemoryRecords[] sets, Throwable[] faults) {
        try {
            ProduceRequestData.TopicProduceData topic = new ProduceRequestData.TopicProduceData().setName("topic");
            for (int i = 0; i < sets.length; i++)
                topic.partitionData().add(new ProduceRequestData.PartitionProduceData().setIndex(i).setRecords(sets[i]));
            ProduceRequestData data = new ProduceRequestData();
            data.topicData().add(topic);
            boolean transactional = RequestUtils.hasTransactionalRecords(new ProduceRequest(data, (short) Math.max(version, 3)));
            if (transactional && !asked.get("transactional_id").asBoolean())
                return new TransactionalIdAuthorizationException("no transactional id");
            for (int i = 0; version >= 3 && i < sets.length; i++) {
                try {
                    ProduceRequest.validateRecords(version, sets[i]);
                } catch (ApiException error) {
                    faults[i] = error;
                }
            }
            Set<List<Object>> producers = new HashSet<>();
            for (int i = 0; i < sets.length; i++)
                if (faults[i] == null)
                    for (RecordBatch batch : sets[i].batches())
                        if (batch.hasProducerId() && batch.isTransactional()) {
                            producers.add(List.of(batch.producerId(), batch.producerEpoch()));
                            sets[i].firstBatch().baseSequence();
                        }
            if (producers.size() > 1)
                return new InvalidPidMappingException("several producers");
            int acks = asked.get("acks").asInt();
            if (acks < -1 || acks > 1)
                for (int i = 0; i < sets.length; i++)
                    if (faults[i] == null)
                        faults[i] = Errors.INVALID_REQUIRED_ACKS.exception();
            return null;
        } catch (Throwable error) {
            return error;
        }
    }

    private static Throwable append(JsonNode asked, MemoryRecords set, ObjectNode row) throws Exception {
        File dir = new File(asked.get("dir").asText(), "topic-0");
        dir.mkdirs();
        Map<String, Object> settings = JSON.convertValue(asked.get("settings"), Map.class);
        settings.put("segment.index.bytes", "4096");
        UnifiedLog log = UnifiedLog.create(dir, new LogConfig(settings), 0, 0, new NeverScheduler(), STATS,
            new FixedTime(asked.get("now").asLong()), 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
            new LogDirFailureChannel(1), true, Optional.empty());
        try {
            log.appendAsLeader(set, 0);
            int batches = 0;
            for (RecordBatch batch : log.activeSegment().log().batches()) {
                batches++;
                row.put("magic", batch.magic()).put("compression", batch.compressionType().name);
                row.put("records", batch.countOrNull()).put("bytes", batch.sizeInBytes());
                row.put("max_timestamp", batch.maxTimestamp());
                row.put("max_timestamp_offset", offsetOfMaxTimestamp(batch));
            }
            row.put("batches", batches);
            return null;
        } catch (RecordValidationException error) {
            return error.invalidException();
        } catch (Throwable error) {
            return error;
        } finally {
            log.removeLogMetrics();
            log.closeHandlers();
            for (File file : dir.listFiles())
                Files.delete(file.toPath());
        }
    }

    /** Returns -1 for none, and -2 for records that the broker appends, but cannot read (it skips keys and values). */
    private static long offsetOfMaxTimestamp(RecordBatch batch) {
        try {
            return batch.offsetOfMaxTimestamp().orElse(-1L);
        } catch (RuntimeException error) {
            return -2;
        }
    }

    private record FixedTime(long now) implements Time {
        public long milliseconds() {
            return now;
        }

        public long nanoseconds() {
            return System.nanoTime();
        }

        public void sleep(long ms) { }

        public void waitObject(Object obj, Supplier<Boolean> condition, long deadlineMs) { }
    }

    /** Runs none of a broker's background tasks. */
    private static class NeverScheduler implements Scheduler {
        public void startup() { }

        public void shutdown() { }

        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return null;
        }

        public void resizeThreadPool(int newSize) { }
    }
}
