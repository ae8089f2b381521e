import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.File;
import java.lang.reflect.Method;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.Set;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.server.log.remote.metadata.storage.RemotePartitionMetadataStore;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

/**
 * What the broker's cache of tiered storage holds behind each batch of segments of __remote_log_metadata, as a line of
 * JSON a batch: of each remote segment partition, id, state, offsets, bytes, broker, time of the event.
 */
public class RemoteOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        for (String path : args)
            tell(new File(path));
    }

    private static void tell(File file) throws Exception {
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        RemotePartitionMetadataStore store = new RemotePartitionMetadataStore();
        Method list = store.getClass().getDeclaredMethod("listRemoteLogSegments", TopicIdPartition.class);
        list.setAccessible(true);
        Set<TopicIdPartition> partitions = new LinkedHashSet<>();
        try (FileRecords records = FileRecords.open(file, false)) {
            for (RecordBatch batch : records.batches()) {
                for (Record record : batch) {
                    RemoteLogMetadata metadata = serde.deserialize(Utils.toArray(record.value()));
                    if (partitions.add(metadata.topicIdPartition())) {
                        store.maybeLoadPartition(metadata.topicIdPartition());
                        store.markInitialized(metadata.topicIdPartition());
                    }
                    store.handleRemoteLogMetadata(metadata);
                }
                ArrayNode held = JSON.createArrayNode();
                for (TopicIdPartition partition : partitions) {
                    Iterator<?> segments = (Iterator<?>) list.invoke(store, partition);
                    while (segments.hasNext())
                        add(held.addArray(), (RemoteLogSegmentMetadata) segments.next());
                }
                System.out.println(JSON.writeValueAsString(held));
            }
        }
    }

    private static void add(ArrayNode row, RemoteLogSegmentMetadata segment) {
        row.add(segment.topicIdPartition().toString()).add(segment.remoteLogSegmentId().id().toString());
        row.add(segment.state().name()).add(segment.startOffset()).add(segment.endOffset());
        row.add(segment.segmentSizeInBytes()).add(segment.brokerId()).add(segment.eventTimestampMs());
    }
}
