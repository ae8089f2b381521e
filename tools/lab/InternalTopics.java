import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.state.Stores;

/**
 * What only Kafka's own clients can have a broker write into its internal topics: a share group and a streams group,
 * and of the cluster's metadata ACLs, SCRAM credentials, quotas and features, each made, changed and (some) removed.
 */
public class InternalTopics {
    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            metadata(admin, args[1]);
            shareGroup(admin, args[0], args[1]);
            streamsGroup(args[0], args[1]);
        }
    }

    private static void metadata(Admin admin, String topic) throws Exception {
        AclBinding kept = acl(topic, "User:alice", AclPermissionType.ALLOW);
        AclBinding removed = acl(topic, "User:bob", AclPermissionType.DENY);
        admin.createAcls(List.of(kept, removed)).all().get();
        admin.deleteAcls(List.of(removed.toFilter())).all().get();
        ScramCredentialInfo info = new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096);
        byte[] salt = "kseg-lab-salt".getBytes();
        admin.alterUserScramCredentials(List.of(
            new UserScramCredentialUpsertion("alice", info, "alice-secret".getBytes(), salt),
            new UserScramCredentialUpsertion("bob", info, "bob-secret".getBytes(), salt))).all().get();
        admin.alterUserScramCredentials(List.of(
            new UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256))).all().get();
        ClientQuotaEntity user = new ClientQuotaEntity(Map.of("user", "alice"));
        ClientQuotaEntity all = new ClientQuotaEntity(Collections.singletonMap("user", null));
        admin.alterClientQuotas(List.of(
            new ClientQuotaAlteration(user, List.of(
                new ClientQuotaAlteration.Op("producer_byte_rate", 1.0E7), new ClientQuotaAlteration.Op("request_percentage", 12.5))),
            new ClientQuotaAlteration(all, List.of(new ClientQuotaAlteration.Op("consumer_byte_rate", 123456.0))))).all().get();
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(user, List.of(
            new ClientQuotaAlteration.Op("request_percentage", null))))).all().get();
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        ConfigResource ofTopic = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        alter(admin, broker, "log.cleaner.threads", "2");
        alter(admin, ofTopic, "retention.ms", "86400000");
        admin.incrementalAlterConfigs(Map.of(ofTopic, List.of(new AlterConfigOp(
            new ConfigEntry("retention.ms", null), AlterConfigOp.OpType.DELETE)))).all().get();
        admin.updateFeatures(Map.of("eligible.leader.replicas.version",
            new FeatureUpdate((short) 0, FeatureUpdate.UpgradeType.SAFE_DOWNGRADE)), new UpdateFeaturesOptions()).all().get();
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get();
    }

    private static AclBinding acl(String topic, String principal, AclPermissionType permission) {
        return new AclBinding(new ResourcePattern(ResourceType.TOPIC, topic, PatternType.PREFIXED),
            new AccessControlEntry(principal, "*", AclOperation.READ, permission));
    }

    private static void alter(Admin admin, ConfigResource resource, String name, String value) throws Exception {
        admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)))).all().get();
    }

    private static void shareGroup(Admin admin, String bootstrap, String topic) throws Exception {
        alter(admin, new ConfigResource(ConfigResource.Type.GROUP, "kseg-share"), "share.auto.offset.reset", "earliest");
        Properties settings = settings(bootstrap);
        settings.put("group.id", "kseg-share");
        settings.put("max.poll.records", "2");
        settings.put("share.acknowledgement.mode", "implicit");
        try (KafkaShareConsumer<String, String> consumer =
                 new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(Set.of(topic));
            int[] taken = {0};
            until(() -> (taken[0] += consumer.poll(Duration.ofMillis(500)).count()) >= 8, "records of the share group");
            consumer.commitSync();
        }
    }

    private static void streamsGroup(String bootstrap, String topic) throws Exception {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(topic, Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, value) -> value, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")));
        Properties settings = settings(bootstrap);
        settings.put("application.id", "kseg-streams");
        settings.put("group.protocol", "streams");
        settings.put("state.dir", System.getProperty("java.io.tmpdir") + "/kseg-streams-" + ProcessHandle.current().pid());
        settings.put("commit.interval.ms", "500");
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            until(() -> streams.state() == KafkaStreams.State.RUNNING, "the streams application");
            TimeUnit.SECONDS.sleep(3);
        }
    }

    private static Properties settings(String bootstrap) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", "kseg-lab");
        return settings;
    }

    private static void until(BooleanSupplier done, String what) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!done.getAsBoolean()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("waited 60 s for " + what);
            }
            TimeUnit.MILLISECONDS.sleep(50);
        }
    }
}
