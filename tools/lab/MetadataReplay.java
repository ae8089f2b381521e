// Whether Kafka's own classes can replay metadata logs: those of the controller, which are package-private, and those of brokers.
// Reads paths of segments from standard input; for each, prints the offsets of the first records that fail, as JSON.
package org.apache.kafka.controller;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.List;
import java.util.Set;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.metadata.KafkaConfigSchema;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.timeline.SnapshotRegistry;

public class MetadataReplay {
    private static final Set<String> TRANSACTIONS =
        Set.of("BeginTransactionRecord", "EndTransactionRecord", "AbortTransactionRecord");

    private final List<Object> managers;
    private final SnapshotRegistry registry = new SnapshotRegistry(new LogContext());

    private MetadataReplay() {
        QuorumFeatures known = new QuorumFeatures(1, QuorumFeatures.defaultSupportedFeatureMap(false), List.of(1));
        FeatureControlManager features =
            new FeatureControlManager.Builder().setSnapshotRegistry(registry).setQuorumFeatures(known).build();
        ClusterControlManager cluster = new ClusterControlManager.Builder().setSnapshotRegistry(registry)
            .setFeatureControlManager(features).setBrokerShutdownHandler((broker, controlled, records) -> { }).build();
        ConfigurationControlManager configurations =
            new ConfigurationControlManager.Builder().setSnapshotRegistry(registry).setFeatureControl(features)
                .setKafkaConfigSchema(KafkaConfigSchema.EMPTY).build();
        managers = List.of(
            features, cluster, configurations,
            new ReplicationControlManager.Builder().setSnapshotRegistry(registry).setClusterControl(cluster)
                .setConfigurationControl(configurations).setFeatureControl(features).build(),
            new AclControlManager.Builder().setSnapshotRegistry(registry).build(),
            new ScramControlManager.Builder().setSnapshotRegistry(registry).build(),
            new ClientQuotaControlManager.Builder().setSnapshotRegistry(registry).build(),
            new ProducerIdControlManager.Builder().setSnapshotRegistry(registry).setClusterControlManager(cluster).build(),
            new OffsetControlManager.Builder().setSnapshotRegistry(registry).build());
    }

    private void replay(ApiMessage record, long offset) throws Throwable {
        for (Object manager : managers) {
            for (Method method : manager.getClass().getDeclaredMethods()) {
                if (method.getName().equals("replay") && method.getParameterTypes()[0] == record.getClass()) {
                    method.setAccessible(true);
                    try {
                        if (method.getParameterCount() == 2) method.invoke(manager, record, offset);
                        else method.invoke(manager, record);
                    } catch (InvocationTargetException failed) {
                        throw failed.getCause();
                    }
                    return;
                }
            }
        }
    }

    private static String verdict(String path) throws Exception {
        MetadataReplay controller = new MetadataReplay();
        MetadataImage image = MetadataImage.EMPTY;
        Long failedController = null;
        Long failedBroker = null;
        String why = null;
        try (FileRecords log = FileRecords.open(new File(path), false)) {
            for (RecordBatch batch : log.batches()) {
                if (batch.isControlBatch()) continue;
                MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
                for (Record record : batch) {
                    ApiMessage message;
                    try {
                        message = MetadataRecordSerde.INSTANCE
                            .read(new ByteBufferAccessor(record.value()), record.valueSize()).message();
                    } catch (RuntimeException malformed) {
                        if (failedController == null) failedController = record.offset();
                        if (failedBroker == null) failedBroker = record.offset();
                        break;
                    }
                    if (failedController == null) {
                        try {
                            controller.replay(message, record.offset());
                        } catch (Throwable failed) {
                            failedController = record.offset();
                            why = failed.toString();
                        }
                    }
                    if (failedBroker == null && !TRANSACTIONS.contains(message.getClass().getSimpleName())) {
                        try {
                            delta.replay(message);
                        } catch (Throwable failed) {
                            failedBroker = record.offset();
                        }
                    }
                }
                if (failedBroker == null) image = delta.apply(new MetadataProvenance(batch.lastOffset(), 1, 0, true));
            }
        }
        return "{\"controller\":" + failedController + ",\"broker\":" + failedBroker + ",\"why\":"
            + (why == null ? "null" : "\"" + why.replace("\\", "\\\\").replace("\"", "'").replace("\n", " ") + "\"") + "}";
    }

    public static void main(String[] args) throws Exception {
        BufferedReader paths = new BufferedReader(new InputStreamReader(System.in));
        for (String path = paths.readLine(); path != null; path = paths.readLine()) System.out.println(verdict(path));
    }
}
