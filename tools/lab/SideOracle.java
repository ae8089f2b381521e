import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.KafkaStorageException;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.raft.ElectionState;
import org.apache.kafka.raft.FileQuorumStateStore;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadata;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.UnifiedLog;

/**
 * Prints what Kafka's own readers say of files beside the log, as JSON Lines: "file", and "entries" (values in the order
 * of kseg's columns, as far as the reader tells them) or the "error" that it throws, with its "kind": io, unchecked or
 * memory. A path of another name is a folder: its entry is its partition. LIST is a file with a path a line.
 * Needs the jars of Kafka 4.3: java -cp 'libs/*' SideOracle.java LIST
 */
public class SideOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws IOException {
        try (PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, "UTF-8")) {
            for (String path : Files.readAllLines(Path.of(args[0]))) {
                ObjectNode row = JSON.createObjectNode().put("file", path);
                try {
                    row.set("entries", read(new File(path)));
                } catch (Throwable error) {
                    boolean limited = error instanceof IOException || error instanceof KafkaStorageException;
                    row.put("error", error.toString());
                    row.put("kind", error instanceof OutOfMemoryError ? "memory" : limited ? "io" : "unchecked");
                }
                out.println(JSON.writeValueAsString(row));
            }
        }
    }

    private static ArrayNode read(File file) throws Exception {
        ArrayNode entries = JSON.createArrayNode();
        String name = file.getName();
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        if (name.equals("leader-epoch-checkpoint")) {
            for (EpochEntry entry : new LeaderEpochCheckpointFile(file, failures).read())
                entries.addArray().add(entry.epoch()).add(entry.startOffset());
        } else if (name.endsWith("-offset-checkpoint")) {
            for (Map.Entry<TopicPartition, Long> entry : new OffsetCheckpointFile(file, failures).read().entrySet())
                entries.addArray().add(entry.getKey().topic()).add(entry.getKey().partition()).add(entry.getValue());
        } else if (name.equals("partition.metadata")) {
            PartitionMetadata found = new PartitionMetadataFile(file, failures).read();
            entries.addArray().add(found.version()).add(found.topicId().toString());
        } else if (name.equals("meta.properties")) {
            MetaProperties found = new MetaProperties.Builder(PropertiesUtils.readPropertiesFile(file.getPath())).build();
            OptionalInt node = found.nodeId();
            entries.addArray().add(found.version().number()).add(found.clusterId().orElse(null))
                .add(node.isPresent() ? (Integer) node.getAsInt() : null)
                .add(found.directoryId().map(Uuid::toString).orElse(null));
        } else if (name.equals("quorum-state")) {
            Optional<ElectionState> found = new FileQuorumStateStore(file).readElectionState();
            found.ifPresent(state -> entries.addArray().add(state.leaderIdOrSentinel()).add(state.epoch())
                .add(state.optionalVotedKey().map(key -> key.id()).orElse(-1)));
        } else if (name.equals(".kafka_cleanshutdown")) {
            OptionalLong epoch = new CleanShutdownFileHandler(file.getParent()).read();
            entries.addArray().add(epoch.isPresent() ? (Long) epoch.getAsLong() : null);
        } else if (!name.endsWith(".snapshot")) {
            TopicPartition found = UnifiedLog.parseTopicPartitionName(file);
            entries.addArray().add(found.topic()).add(found.partition());
        } else {
            for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file)) {
                OptionalLong first = entry.currentTxnFirstOffset();
                entries.addArray().add(entry.producerId()).add(entry.producerEpoch()).add(entry.lastDataOffset())
                    .add(entry.lastTimestamp()).add(entry.coordinatorEpoch())
                    .add(first.isPresent() ? (Long) first.getAsLong() : null);
            }
        }
        return entries;
    }
}
