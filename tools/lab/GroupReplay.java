// The committed offsets of Kafka's own group coordinator after it has loaded a partition of __consumer_offsets.
// Reads paths of partition folders from standard input; for each, prints as JSON the offsets, those that wait for the end of
// their transaction, and the generations of classic groups. It is in a package of Kafka, whose classes keep them private.
package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.yammer.metrics.core.MetricsRegistry;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.requests.TransactionResult;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.common.runtime.CoordinatorExecutor;
import org.apache.kafka.coordinator.common.runtime.CoordinatorLoaderImpl;
import org.apache.kafka.coordinator.common.runtime.CoordinatorPlayback;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorTimer;
import org.apache.kafka.coordinator.group.classic.ClassicGroup;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import org.apache.kafka.timeline.SnapshotRegistry;

public class GroupReplay {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final GroupCoordinatorConfig CONFIG;
    private static final GroupConfigManager GROUP_CONFIGS;

    static {
        AbstractConfig defaults = new AbstractConfig(
            Utils.mergeConfigs(List.of(GroupCoordinatorConfig.CONFIG_DEF, ShareGroupConfig.CONFIG_DEF)), Map.of(), false);
        CONFIG = new GroupCoordinatorConfig(defaults);
        GROUP_CONFIGS = new GroupConfigManager(Map.of(), CONFIG, new ShareGroupConfig(defaults));
    }

    /** Returns an object whose methods do nothing: loading schedules no task. */
    private static <T> T idle(Class<T> type) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type},
            (proxy, method, arguments) -> method.getReturnType() == boolean.class ? false : null));
    }

    private static GroupCoordinatorShard shard(TopicPartition partition) {
        return (GroupCoordinatorShard) new GroupCoordinatorShard.Builder(CONFIG, GROUP_CONFIGS)
            .withAuthorizerPlugin(Optional.empty()).withLogContext(new LogContext()).withTime(Time.SYSTEM)
            .withTimer(idle(CoordinatorTimer.class)).withExecutor(idle(CoordinatorExecutor.class))
            .withCoordinatorMetrics(new GroupCoordinatorMetrics(new MetricsRegistry(), new Metrics()))
            .withTopicPartition(partition).withSnapshotRegistry(new SnapshotRegistry(new LogContext())).build();
    }

    private static CoordinatorPlayback<CoordinatorRecord> playback(GroupCoordinatorShard shard) {
        return new CoordinatorPlayback<>() {
            @Override
            public void replay(long offset, long producer, short epoch, CoordinatorRecord record) {
                shard.replay(offset, producer, epoch, record);
            }

            @Override
            public void replayEndTransactionMarker(long producer, short epoch, TransactionResult result) {
                shard.replayEndTransactionMarker(producer, epoch, result);
            }

            @Override
            public void updateLastWrittenOffset(long offset) { }

            @Override
            public void updateLastCommittedOffset(long offset) { }
        };
    }

    private static Object field(Object of, String name) throws ReflectiveOperationException {
        Field found = of.getClass().getDeclaredField(name);
        found.setAccessible(true);
        return found.get(of);
    }

    @SuppressWarnings("unchecked")
    private static void add(ArrayNode rows, long producer, Object offsets) throws ReflectiveOperationException {
        var groups = (Map<String, Map<String, Map<Integer, OffsetAndMetadata>>>) field(offsets, "offsetsByGroup");
        groups.forEach((group, topics) -> topics.forEach((topic, partitions) -> partitions.forEach((partition, one) -> {
            ObjectNode row = rows.addObject().put("producer", producer);
            row.put("group", group).put("topic", topic).put("partition", partition);
            row.put("offset", one.committedOffset).put("record", one.recordOffset).put("metadata", one.metadata);
            row.put("leader_epoch", one.leaderEpoch.orElse(-1)).put("commit_timestamp", one.commitTimestampMs);
            row.put("expire_timestamp", one.expireTimestampMs.orElse(-1));
            row.put("topic_id", one.topicId.equals(Uuid.ZERO_UUID) ? null : one.topicId.toString());
        })));
    }

    @SuppressWarnings("unchecked")
    private static String loaded(File folder) throws Exception {
        TopicPartition partition = UnifiedLog.parseTopicPartitionName(folder);
        UnifiedLog log = UnifiedLog.create(folder, new LogConfig(Map.of()), 0, 0, idle(Scheduler.class),
            new BrokerTopicStats(), Time.SYSTEM, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
            new LogDirFailureChannel(1), true, Optional.empty());
        GroupCoordinatorShard shard = shard(partition);
        ObjectNode found = JSON.createObjectNode();
        try (CoordinatorLoaderImpl<CoordinatorRecord> loader = new CoordinatorLoaderImpl<>(Time.SYSTEM,
            asked -> Optional.of(log), asked -> Optional.of(log.logEndOffset()), new GroupCoordinatorRecordSerde(),
            1 << 20, 1_000)) {
            loader.load(partition, playback(shard)).get();
        } catch (ExecutionException failed) {
            found.put("error", failed.getCause().toString());
        } finally {
            log.removeLogMetrics();
            log.closeHandlers();
        }
        Object manager = field(shard, "offsetMetadataManager");
        ArrayNode committed = found.putArray("committed");
        add(committed, -1, field(manager, "offsets"));
        ObjectNode generations = found.putObject("groups");
        ((Map<String, Group>) field(field(shard, "groupMetadataManager"), "groups")).forEach((name, group) -> {
            if (group instanceof ClassicGroup classic && classic.protocolType().isPresent())
                generations.put(name, classic.generationId());
        });
        ArrayNode pending = found.putArray("pending");
        for (var one : ((Map<Long, Object>) field(manager, "pendingTransactionalOffsets")).entrySet())
            add(pending, one.getKey(), one.getValue());
        return JSON.writeValueAsString(found);
    }

    public static void main(String[] args) throws Exception {
        BufferedReader paths = new BufferedReader(new InputStreamReader(System.in));
        for (String path = paths.readLine(); path != null; path = paths.readLine())
            System.out.println(loaded(new File(path)));
    }
}
