"""Predict the result of a produce request: a leader accepts, rewrites or rejects each of its record sets.

The prediction is a function of the bytes and of the topic's settings. It assumes that the topic exists, that the client may
write to it, that transactions are in progress, and that sequence numbers continue: the bytes do not show this.

The checks and their order are those of Kafka 4.3: ``KafkaApis.handleProduceRequest``, ``ProduceRequest.validateRecords``,
``ReplicaManager.handleProduceAppend``, ``UnifiedLog.append`` and ``LogValidator``. Kafka 4 closes the connection of a
client that sends a version below 3. Those requests have the verdict of Kafka 3.9, the last release that reads them: it
converts their messages to version 2. Its ``LogValidator`` is that of 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kseg.extras.wire.apis import Message
from kseg.extras.wire.leader_records import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    UNKNOWN_SERVER_ERROR,
    ZSTD,
    RejectedSetError,
    UndecidedSetError,
    limited,
)
from kseg.extras.wire.sent_batches import SentBatch, batches_of, check_codec
from kseg.extras.wire.set_validation import SetValidation, SetVerdict, TopicSettings
from kseg.format.compress.codecs import CODECS
from kseg.format.record.framing import read_int64
from kseg.format.record.layout import NO_PRODUCER_ID, RECORD_BATCH_OVERHEAD
from kseg.format.segment.framed_files import PRODUCE_KIND
from kseg.schema import Column, Row
from kseg.text import count_of

#: The values of the topic's setting ``compression.type``.
COMPRESSION_TYPES = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
#: The first version that Kafka 4 reads, and the first version that may contain zstd (KIP-110).
FIRST_VERSION = 3
FIRST_ZSTD_VERSION = 7
# The size field before a request.
_SIZE_FIELD = 4
# The bytes of batches that the checks of whole requests read: without them, Kafka's own code fails.
_WITH_PRODUCER_ID = 51
_WITH_SEQUENCE = 57
_WITH_LAST_OFFSET = 27


#: The columns of the verdicts on the record sets of produce requests.
VERDICT_COLUMNS = (
    Column("file", "text", "the path as it was given"),
    Column("position", "count?", "first byte of the record set; null if the records are null"),
    Column("size", "count?", "size of the record set in bytes"),
    Column("frame", "count", "first byte of the request"),
    Column("api_version", "count", "version of the Produce request"),
    Column("correlation_id", "int", "as in the request"),
    Column("client_id", "text?", "as in the request"),
    Column("topic", "text?", "name of the topic; null from version 13 on"),
    Column("topic_id", "text?", "topic id, from version 13 on"),
    Column("partition", "int", "the partition"),
    Column(
        "broker", "text", "the release whose verdict this is: 4.3, or 3.9 for versions below 3, which 4.x does not read"
    ),
    Column("outcome", "text", "decision of a leader", values=("accepted", "rewritten", "rejected", "undetermined")),
    Column("error", "text?", "Kafka's name of the error, if the set is rejected"),
    Column("why", "text", "the reason in one sentence; empty if the set is accepted as it is"),
    Column("magic", "int?", "version of the batch that is appended; null if none is"),
    Column("compression", "text?", "codec of that batch"),
    Column("records", "int?", "number of its records"),
    Column("bytes", "count?", "its size; null if the leader compresses it again"),
    Column("max_timestamp", "ms?", "its largest timestamp"),
    Column("max_timestamp_index", "int?", "index of the first record with it; null if no record has it"),
)


def verdict_rows(file: str, position: int, data: memoryview, message: Message, topic: TopicSettings) -> Iterator[Row]:
    """Yield the verdict on each partition of a decoded produce request, which begins at byte ``position`` of the file."""
    body, api = message.body, message.api
    assert body
    assert api
    parts = [(sent, each) for sent in body["topicData"] for each in sent["partitionData"]]
    ranges = [each["records"] for _, each in parts]
    if any(one is None for one in ranges):
        broker = broker_of(api.version)
        found = [SetVerdict("undetermined", broker, "the records of a partition are null")] * len(parts)
    else:
        sets = [data[one.at : one.at + one.size] for one in ranges]
        found = judge_request(api.version, body["acks"], body.get("transactionalId"), sets, topic)
    for (sent, each), where, verdict in zip(parts, ranges, found, strict=True):
        row = {
            "file": file,
            "position": where and position + _SIZE_FIELD + where.at,
            "size": where and where.size,
            "frame": position,
            "api_version": api.version,
            "correlation_id": message.correlation_id,
            "client_id": message.client_id,
            "topic": sent.get("name"),
            "topic_id": sent.get("topicId"),
            "partition": each["index"],
            **verdict._asdict(),
        }
        row["max_timestamp"] = None if verdict.max_timestamp == -1 else verdict.max_timestamp
        yield {"kind": PRODUCE_KIND, **{column.name: row[column.name] for column in VERDICT_COLUMNS}}


def broker_of(version: int) -> str:
    """Return the release whose verdict a request of this version has."""
    return "4.3" if version >= FIRST_VERSION else "3.9"


def judge_request(
    version: int, acks: int, transactional_id: str | None, sets: Sequence[memoryview], topic: TopicSettings
) -> list[SetVerdict]:
    """Return the verdict on each record set of a produce request of ``version``, in the order of the request.

    Some faults of one set let a broker reject the whole request.
    """
    broker = broker_of(version)
    faults: list[RejectedSetError | None] = [None] * len(sets)
    try:
        _check_request(version, acks, transactional_id, sets, faults)
    except RejectedSetError as error:
        return [SetVerdict("rejected", broker, f"{error.why}, which fails the whole request", error.error)] * len(sets)
    return [_judge_set(data, fault, topic, broker) for data, fault in zip(sets, faults, strict=True)]


def _judge_set(data: memoryview, fault: RejectedSetError | None, topic: TopicSettings, broker: str) -> SetVerdict:
    try:
        if fault:
            raise fault
        return _append(data, topic, broker)
    except RejectedSetError as error:
        return SetVerdict("rejected", broker, error.why, error.error)
    except UndecidedSetError as error:
        return SetVerdict("undetermined", broker, str(error))


def _check_request(
    version: int,
    acks: int,
    transactional_id: str | None,
    sets: Sequence[memoryview],
    faults: list[RejectedSetError | None],
) -> None:
    """Check the whole request, and set the faults of single sets. Raises RejectedSetError for the whole request."""
    # RequestUtils.hasTransactionalRecords
    transactional = any(first.transactional for data in sets if (first := next(batches_of(data), None)))
    if transactional and transactional_id is None:
        why = "a batch is transactional, but the request has no transactional id"
        raise RejectedSetError("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", why)
    for number, data in enumerate(sets if version >= FIRST_VERSION else ()):
        try:
            _check_version(version, data)
        except RejectedSetError as error:
            if error.error == UNKNOWN_SERVER_ERROR:
                raise
            faults[number] = error
    producers = set()
    for data, fault in zip(sets, faults, strict=True):
        for batch in batches_of(data) if fault is None else ():
            if batch.magic >= 2:
                producers |= _transactional_producer(batch)
    if len(producers) > 1:
        why = "the transactional batches have more than one producer id or epoch"
        raise RejectedSetError("INVALID_PRODUCER_ID_MAPPING", why)
    if not -1 <= acks <= 1:
        wrong = RejectedSetError("INVALID_REQUIRED_ACKS", f"acks is {acks}, but -1, 0 and 1 are defined")
        faults[:] = [fault or wrong for fault in faults]


def _check_version(version: int, data: memoryview) -> None:
    """Check the first batch, and that it is the only one (``ProduceRequest.validateRecords``)."""
    batches = batches_of(data)
    first = next(batches, None)
    if first is None:
        raise RejectedSetError(INVALID_RECORD, "the set has no complete batch")
    if first.magic != 2:
        why = f"the batch has magic {first.magic}, but Produce version {version} has only batches of magic 2"
        raise RejectedSetError(INVALID_RECORD, why)
    if version < FIRST_ZSTD_VERSION:
        check_codec(first)
        if first.codec == ZSTD:
            why = f"the batch is compressed with zstd, which needs Produce version {FIRST_ZSTD_VERSION}, not {version}"
            raise RejectedSetError("UNSUPPORTED_COMPRESSION_TYPE", why)
    if next(batches, None):
        why = f"the set has more than one batch, but Produce version {version} has one for each partition"
        raise RejectedSetError(INVALID_RECORD, why)


def _transactional_producer(batch: SentBatch) -> set[tuple[int, int]]:
    """Return the producer of a transactional v2 batch (``ReplicaManager.handleProduceAppend``)."""
    size = len(batch.data)
    if size >= _WITH_PRODUCER_ID:
        producer_id = read_int64(batch.data, _WITH_PRODUCER_ID - 8)
        if producer_id <= NO_PRODUCER_ID or not batch.transactional:
            return set()
        if size >= _WITH_SEQUENCE:
            return {(producer_id, int.from_bytes(batch.data[_WITH_PRODUCER_ID : _WITH_PRODUCER_ID + 2]))}
    raise RejectedSetError(UNKNOWN_SERVER_ERROR, f"a batch has only {count_of(size, 'byte')}, fewer than its header")


def _append(data: memoryview, topic: TopicSettings, broker: str) -> SetVerdict:
    """Check the batches, then validate the records (``UnifiedLog.append``)."""
    batches: list[SentBatch] = []
    source = 0
    for batch in batches_of(data):
        _check_batch(batch, topic.max_message_bytes)
        source = batch.codec or source
        limited(len(batches))
        batches.append(batch)
    if not batches:
        return SetVerdict("accepted", broker, "the set has no complete batch, so nothing is appended")
    setting = topic.compression_type
    names = {codec.name: codec.id for codec in CODECS.values()} | {"uncompressed": 0, "producer": source}
    return SetValidation(batches, source, names[setting], topic, broker).verdict()


def _check_batch(batch: SentBatch, limit: int) -> None:
    """Check one batch (``UnifiedLog.analyzeAndValidateRecords``)."""
    data, size = batch.data, len(batch.data)
    if batch.magic >= 2:
        offset = read_int64(data, 0)
        if offset:
            raise RejectedSetError(INVALID_RECORD, f"the base offset is {offset}, but a producer must send 0")
        if size < _WITH_LAST_OFFSET:
            why = f"a batch has only {count_of(size, 'byte')}, fewer than its header"
            raise RejectedSetError(UNKNOWN_SERVER_ERROR, why)
    if size > limit:
        why = f"a batch has {count_of(size, 'byte')}, above max.message.bytes {limit:,}"
        raise RejectedSetError("MESSAGE_TOO_LARGE", why)
    if batch.magic >= 2 and batch.header is None:
        why = f"a batch has only {count_of(size, 'byte')}, fewer than its header of {RECORD_BATCH_OVERHEAD}"
        raise RejectedSetError(CORRUPT_MESSAGE, why)
    stored, computed = batch.crcs
    if stored != computed:
        raise RejectedSetError(CORRUPT_MESSAGE, f"the stored CRC is 0x{stored:08x}, the computed CRC 0x{computed:08x}")
    check_codec(batch)
