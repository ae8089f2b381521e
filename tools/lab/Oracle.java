import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.message.KRaftVersionRecord;
import org.apache.kafka.common.message.KRaftVersionRecordJsonConverter;
import org.apache.kafka.common.message.LeaderChangeMessage;
import org.apache.kafka.common.message.LeaderChangeMessageJsonConverter;
import org.apache.kafka.common.message.SnapshotFooterRecord;
import org.apache.kafka.common.message.SnapshotFooterRecordJsonConverter;
import org.apache.kafka.common.message.SnapshotHeaderRecord;
import org.apache.kafka.common.message.SnapshotHeaderRecordJsonConverter;
import org.apache.kafka.common.message.VotersRecord;
import org.apache.kafka.common.message.VotersRecordJsonConverter;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.ControlRecordUtils;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * Prints what Kafka's own reader says of segments, as JSON Lines: for each file its batch rows, then its record rows,
 * and an "error" row last where the reader threw. With --paths first, "file" is the path as given, else its base name.
 * Needs the jars of Kafka 4.3: java -cp 'libs/*' Oracle.java [--paths] FILE...
 */
public class Oracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final TimestampType[] TYPES = {TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME};

    public static void main(String[] args) throws IOException {
        boolean paths = args.length > 0 && args[0].equals("--paths");
        try (PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, "UTF-8")) {
            for (int i = paths ? 1 : 0; i < args.length; i++) {
                File file = new File(args[i]);
                tell(file, paths ? args[i] : file.getName(), out);
            }
        }
    }

    // A break does not take the records before it along: they are told, and the error comes last.
    private static void tell(File file, String name, PrintStream out) {
        ObjectNode error = null;
        try (FileRecords records = FileRecords.open(file, false)) {
            List<FileChannelRecordBatch> batches = new ArrayList<>();
            try {
                records.batches().forEach(batches::add);
            } catch (Exception e) {
                error = errorRow(file, name, e);
            }
            for (FileChannelRecordBatch batch : batches) {
                out.println(batchRow(name, batch));
            }
            for (FileChannelRecordBatch batch : batches) {
                for (Record record : batch) {
                    out.println(recordRow(name, batch, record));
                }
            }
        } catch (Exception e) {
            error = errorRow(file, name, e);
        }
        if (error != null) {
            out.println(error);
        }
    }

    // Kafka's texts name the file by its path, which differs from run to run.
    private static ObjectNode errorRow(File file, String name, Exception e) {
        String message = e.toString().replace(file.getAbsolutePath(), file.getName()).replace(file.getPath(), file.getName());
        return row("error", name).put("message", message);
    }

    private static ObjectNode row(String kind, String file) {
        return JSON.createObjectNode().put("kind", kind).put("file", file);
    }

    private static ObjectNode batchRow(String file, FileChannelRecordBatch batch) {
        boolean v2 = batch.magic() >= RecordBatch.MAGIC_VALUE_V2;
        ObjectNode row = row("batch", file);
        row.put("position", batch.position());
        row.put("size", batch.sizeInBytes());
        row.put("magic", batch.magic());
        row.put("base_offset", v2 || !batch.isCompressed() ? (Long) batch.baseOffset() : null);
        row.put("last_offset", batch.lastOffset());
        row.put("record_count", batch.countOrNull());
        row.put("compression", batch.compressionType().name);
        row.put("timestamp_type", typeName(batch.magic(), batch.timestampType()));
        row.put("base_timestamp", v2 ? timestamp(baseTimestamp(batch)) : null);
        row.put("max_timestamp", timestamp(batch.maxTimestamp()));
        row.put("crc", batch.checksum());
        row.put("crc_valid", batch.isValid());
        row.put("producer_id", v2 ? (Long) batch.producerId() : null);
        row.put("producer_epoch", v2 ? (Short) batch.producerEpoch() : null);
        row.put("base_sequence", v2 ? (Integer) batch.baseSequence() : null);
        row.put("partition_leader_epoch", v2 ? (Integer) batch.partitionLeaderEpoch() : null);
        row.put("transactional", v2 ? (Boolean) batch.isTransactional() : null);
        row.put("control", v2 ? (Boolean) batch.isControlBatch() : null);
        row.put("delete_horizon", batch.deleteHorizonMs().isPresent() ? (Long) batch.deleteHorizonMs().getAsLong() : null);
        return row;
    }

    // Only the in-memory batch shows baseTimestamp.
    private static long baseTimestamp(FileChannelRecordBatch batch) {
        ByteBuffer bytes = ByteBuffer.allocate(batch.sizeInBytes());
        batch.writeTo(bytes);
        bytes.flip();
        return ((DefaultRecordBatch) MemoryRecords.readableRecords(bytes).firstBatch()).baseTimestamp();
    }

    private static ObjectNode recordRow(String file, FileChannelRecordBatch batch, Record record) {
        boolean v2 = batch.magic() >= RecordBatch.MAGIC_VALUE_V2;
        ObjectNode row = row("record", file);
        row.put("position", batch.position());
        row.put("offset", record.offset());
        row.put("timestamp", timestamp(record.timestamp()));
        row.put("timestamp_type", typeName(batch.magic(), v2 ? batch.timestampType() : legacyType(record)));
        row.put("sequence", v2 ? (Integer) record.sequence() : null);
        row.put("key", base64(record.key()));
        row.put("value", base64(record.value()));
        ArrayNode headers = row.putArray("headers");
        for (Header header : record.headers()) {
            byte[] value = header.value();
            headers.addObject().put("key", header.key())
                .put("value", value == null ? null : Base64.getEncoder().encodeToString(value));
        }
        row.set("control", batch.isControlBatch() ? control(record) : null);
        return row;
    }

    // A v2 record always answers false here: its timestamp type is the batch's.
    private static TimestampType legacyType(Record record) {
        for (TimestampType type : TYPES) {
            if (record.hasTimestampType(type)) {
                return type;
            }
        }
        return TimestampType.NO_TIMESTAMP_TYPE;
    }

    private static String typeName(byte magic, TimestampType type) {
        return magic == RecordBatch.MAGIC_VALUE_V0 || type == TimestampType.NO_TIMESTAMP_TYPE ? null : type.name;
    }

    private static Long timestamp(long stored) {
        return stored == RecordBatch.NO_TIMESTAMP ? null : (Long) stored;
    }

    private static String base64(ByteBuffer bytes) {
        if (bytes == null) {
            return null;
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return Base64.getEncoder().encodeToString(copy);
    }

    private static ObjectNode control(Record record) {
        short typeId = ControlRecordType.parseTypeId(record.key().duplicate());
        ControlRecordType type = ControlRecordType.fromTypeId(typeId);
        ObjectNode marker = JSON.createObjectNode();
        marker.put("type", type == ControlRecordType.UNKNOWN ? Short.toString(typeId) : type.name());
        marker.put("version", record.key().getShort(record.key().position()));
        JsonNode value = controlValue(type, record);
        if (value != null) {
            // A "version" in the value replaces the key's.
            marker.setAll((ObjectNode) snakeCased(value));
        }
        return marker;
    }

    private static JsonNode controlValue(ControlRecordType type, Record record) {
        switch (type) {
            case ABORT:
            case COMMIT:
                int epoch = EndTransactionMarker.deserialize(record).coordinatorEpoch();
                return JSON.createObjectNode().put("coordinatorEpoch", epoch);
            case LEADER_CHANGE:
                LeaderChangeMessage change = ControlRecordUtils.deserializeLeaderChangeMessage(record);
                return LeaderChangeMessageJsonConverter.write(change, change.version());
            case SNAPSHOT_HEADER:
                SnapshotHeaderRecord header = ControlRecordUtils.deserializeSnapshotHeaderRecord(record);
                return SnapshotHeaderRecordJsonConverter.write(header, header.version());
            case SNAPSHOT_FOOTER:
                SnapshotFooterRecord footer = ControlRecordUtils.deserializeSnapshotFooterRecord(record);
                return SnapshotFooterRecordJsonConverter.write(footer, footer.version());
            case KRAFT_VERSION:
                KRaftVersionRecord version = ControlRecordUtils.deserializeKRaftVersionRecord(record);
                return KRaftVersionRecordJsonConverter.write(version, version.version());
            case KRAFT_VOTERS:
                VotersRecord voters = ControlRecordUtils.deserializeVotersRecord(record);
                return VotersRecordJsonConverter.write(voters, voters.version());
            default:
                return null;
        }
    }

    private static JsonNode snakeCased(JsonNode node) {
        if (node.isArray()) {
            ArrayNode items = JSON.createArrayNode();
            node.forEach(item -> items.add(snakeCased(item)));
            return items;
        }
        if (!node.isObject()) {
            return node;
        }
        ObjectNode renamed = JSON.createObjectNode();
        for (Map.Entry<String, JsonNode> field : node.properties()) {
            renamed.set(field.getKey().replaceAll("([A-Z])", "_$1").toLowerCase(), snakeCased(field.getValue()));
        }
        return renamed;
    }
}
