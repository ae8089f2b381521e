"""Files below 1 MB that are made to cost memory and time, and commands that read them."""

from __future__ import annotations

import io
import json
import os
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import zstandard

from kseg.format.compress import codecs
from kseg.format.messages.message_writer import uvarint
from kseg.format.segment.deep_reader import RECORDS_PER_BYTE
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support import damage
from tests.support.commits import write_commits
from tests.support.damage import varint
from tests.support.metadata_logs import encoded

#: The most bytes of a file of the corpus.
SIZE = 1_000_000
LOG = "00000000000000000000.log"
_READ = (
    "validate",
    "dump --deep --format jsonl",
    "stats --deep",
    "grep needle",
    "diff --by-key {} COPY",
    "transactions",
)
_QUERY = ("sql 'select count(*) n, count(distinct key) k from records'",)
_WRITE = ("repair {} OUT", "convert any-to-v2 {} OUT")
_ROOMS = ("recovery", "doctor", "carve", "explain")
_LOGS = (*_READ, *_WRITE, *_ROOMS)

Maker = Callable[[Path], Path]
#: Name of a bomb -> its maker, and the commands that read it: ``{}`` is the path, which is last without it.
BOMBS: dict[str, tuple[Maker, Sequence[str]]] = {}


def _bomb(*commands: str) -> Callable[[Maker], Maker]:
    def named(maker: Maker) -> Maker:
        BOMBS[maker.__name__.replace("_", "-")] = maker, commands
        return maker

    return named


def _partition(folder: Path, data: bytes, topic: str = "orders") -> Path:
    partition = folder / "logs" / f"{topic}-0"
    partition.mkdir(parents=True)
    (partition / LOG).write_bytes(data[: SIZE if len(data) > SIZE else None])
    return partition


def _repeated(make: Callable[[int], bytes], size: int = SIZE) -> bytes:
    """Return batches that ``make`` makes for base offsets, until the next does not fit."""
    out, offset = bytearray(), 0
    while len(out) + len(batch := make(offset)) <= size:
        out += batch
        offset += 1
    return bytes(out)


def _with_payload(codec: str, payload: bytes, records: int) -> Callable[[int], bytes]:
    """Return a maker of batches with this payload and this count of records, with a valid CRC."""
    sample = build_batch([PlainRecord(0, None, b"v", 1)], compression=codec)
    (place,) = damage.entries(sample)
    changed = damage.with_payload(sample, place, payload)
    return lambda offset: damage.alter(
        changed, 0, base_offset=offset * records, record_count=records, last_offset_delta=records - 1
    )


#: Decompressed bytes of a batch, below the limit of one.
_INFLATED = 60 << 20
#: Records of 6 bytes, without key and value.
_EMPTY = bytes((12, 0, 0, 0, 1, 1, 0))


def _compressed(codec: str, data: bytes) -> bytes:
    if codec == "zstd":
        return zstandard.ZstdCompressor(level=19).compress(data)
    (row,) = (row for row in codecs.CODECS.values() if row.name == codec)
    return bytes(codecs.compress(row.id, data))


def _zeros(codec: str) -> Maker:
    size = _INFLATED >> 2 if codec == "snappy" else _INFLATED

    def maker(folder: Path) -> Path:
        return _partition(folder, _repeated(_with_payload(codec, _compressed(codec, bytes(size)), 1)))

    maker.__name__ = f"{codec}_zeros"
    return maker


for _codec in ("gzip", "snappy", "lz4", "zstd"):
    _bomb(*_LOGS)(_zeros(_codec))


@_bomb(*_LOGS, *_QUERY)
def zstd_records(folder: Path) -> Path:
    """Millions of empty records in a batch, and many such batches."""
    return _partition(folder, _repeated(_with_payload("zstd", _compressed("zstd", _EMPTY * 20_000_000), 20_000_000)))


@_bomb(*_LOGS, *_QUERY)
def zstd_most_records(folder: Path) -> Path:
    """As many empty records as kseg reads: a record with a random value makes the payload large enough."""
    value, count = random.Random(0).randbytes(45_000), RECORDS_PER_BYTE * 45_000
    body = b"\0\0\0\1" + varint(len(value)) + value + b"\0"
    payload = _EMPTY * (count - 1) + varint(len(body)) + body
    return _partition(folder, _repeated(_with_payload("zstd", _compressed("zstd", payload), count)))


@_bomb(*_LOGS, *_QUERY)
def zstd_uncounted_records(folder: Path) -> Path:
    """Millions of records after those that the batch counts."""
    return _partition(folder, _repeated(_with_payload("zstd", _compressed("zstd", _EMPTY * 20_000_000), 10_000)))


@_bomb(*_LOGS)
def gzip_messages(folder: Path) -> Path:
    """Compressed v1 message sets with many messages without content."""
    messages = b"".join(build_message(PlainRecord(n, None, None, 1), magic=1) for n in range(60_000))
    sample = build_wrapper([PlainRecord(0, None, b"v", 1)], magic=1, compression="gzip")
    (place,) = damage.entries(sample)
    batch = damage.with_payload(sample, place, _compressed("gzip", messages))
    return _partition(folder, _repeated(lambda n: damage.alter(batch, 0, base_offset=60_000 * n)))


@_bomb(*_LOGS, *_QUERY)
def many_batches(folder: Path) -> Path:
    return _partition(folder, _repeated(lambda offset: build_batch([PlainRecord(offset, None, None, 1)])))


@_bomb(*_LOGS)
def many_producers(folder: Path) -> Path:
    return _partition(
        folder,
        _repeated(
            lambda n: build_batch(
                [PlainRecord(n, None, None, 1)], producer_id=n, producer_epoch=0, base_sequence=0, transactional=True
            )
        ),
    )


@_bomb(*_LOGS)
def damaged_batches(folder: Path) -> Path:
    """Every second batch has a wrong CRC."""
    batch = [build_batch([PlainRecord(n, None, None, 1)]) for n in range(15_000)]
    return _partition(folder, b"".join(b[:-1] + b"\x07" if n % 2 else b for n, b in enumerate(batch)))


@_bomb(*_LOGS)
def headers_without_batches(folder: Path) -> Path:
    """The beginnings of batches, one in the other, each as long as the rest of the file."""
    return _partition(folder, b"".join(struct.pack(">qiib", n, SIZE - 17 * n, 0, 2) for n in range(SIZE // 17)))


@_bomb(*_LOGS)
def one_record_count(folder: Path) -> Path:
    data = build_batch([PlainRecord(0, None, b"v", 1)])
    return _partition(folder, damage.alter(data, 0, record_count=2**31 - 1, last_offset_delta=2**31 - 1))


@_bomb(*_LOGS, "dump --effective", "lag")
def consumer_offsets(folder: Path) -> Path:
    logs = folder / "logs" / "__consumer_offsets-0"
    write_commits(logs, {(f"g{n}", "t", n): b"\0\3" + bytes(20) for n in range(12_000)})
    return logs


@_bomb(*_LOGS, "dump --effective")
def cluster_metadata(folder: Path) -> Path:
    """Topics with partitions, each changed again and again."""
    topic = encoded(("Topic", 0, {"name": "t", "topicId": "A" * 22}))
    values = [topic] + [encoded(("PartitionChange", 0, {"partitionId": n, "topicId": "A" * 22})) for n in range(20_000)]
    data = b"".join(
        build_batch([PlainRecord(n, None, value, 1)], compression="none") for n, value in enumerate(values[:8_000])
    )
    return _partition(folder, data, "__cluster_metadata")


@_bomb(*_LOGS, "dump --effective")
def nested_metadata(folder: Path) -> Path:
    """A record whose array has a huge count."""
    value = b"\1\3\0" + bytes(20) + b"\xff\xff\xff\xff\x07" * 150_000
    return _partition(folder, build_batch([PlainRecord(0, None, value, 1)]), "__cluster_metadata")


@_bomb("validate", "dump --format jsonl", "explain", "recovery", "doctor", "repair {} OUT")
def producer_snapshot(folder: Path) -> Path:
    path = _partition(folder, build_batch([PlainRecord(0, None, None, 1)]))
    (path / "00000000000000000001.snapshot").write_bytes(struct.pack(">hIi", 1, 0, 2**31 - 1) + bytes(SIZE - 20))
    (path / LOG.replace(".log", ".timeindex")).write_bytes(bytes(SIZE - SIZE % 12))
    (path / LOG.replace(".log", ".index")).write_bytes(bytes(SIZE - SIZE % 8))
    (path / LOG.replace(".log", ".txnindex")).write_bytes(bytes(SIZE - SIZE % 34))
    (path / "leader-epoch-checkpoint").write_text("0\n1000000000\n" + "1 1\n" * 200_000)
    return path


@_bomb("validate --jobs 1", "dump", "explain", "stats", "grep x", "repair {} OUT", "carve")
def sparse_segment(folder: Path) -> Path:
    path = _partition(folder, build_batch([PlainRecord(0, None, None, 1)]))
    with (path / LOG).open("r+b") as file:
        file.truncate(15 << 40)
    return path


def _members(folder: Path, name: str, mode: str, members: Iterator[tuple[str, int]]) -> Path:
    path = folder / name
    with tarfile.open(path, mode, compresslevel=9) as tar:  # type: ignore[call-overload]
        for member, size in members:
            info = tarfile.TarInfo(member)
            info.size = size
            tar.addfile(info, _Zeros(size))
    return path


class _Zeros(io.RawIOBase):
    def __init__(self, size: int) -> None:
        self._left = size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        size = min(self._left, 1 << 20 if size < 0 else size)
        self._left -= size
        return bytes(size)


_ARCHIVES = ("validate", "dump", "stats", "explain", "grep x", "recovery", "doctor")


@_bomb(*_ARCHIVES)
def archive_with_a_large_member(folder: Path) -> Path:
    return _members(folder, "large.tar.gz", "w:gz", iter([(f"logs/orders-0/{LOG}", 900 << 20)]))


@_bomb(*_ARCHIVES)
def archive_with_many_members(folder: Path) -> Path:
    return _members(folder, "many.tar.gz", "w:gz", ((f"logs/t-{n}/{LOG}", 0) for n in range(120_000)))


@_bomb(*_ARCHIVES)
def zip_with_a_large_member(folder: Path) -> Path:
    path = folder / "large.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file, file.open(f"logs/orders-0/{LOG}", "w") as member:
        for _ in range(900):
            member.write(bytes(1 << 20))
    return path


def _values(folder: Path, values: Sequence[bytes]) -> Path:
    return _partition(folder, build_batch([PlainRecord(n, None, value, 1) for n, value in enumerate(values)]))


@_bomb(
    "dump --deep --value-as avro --schema-file {S} --format jsonl", "stats --deep", "sql 'select value from records'"
)
def avro_counts(folder: Path) -> Path:
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "null"}}]}
    (folder / "schema.avsc").write_text(json.dumps(schema))
    return _values(folder, [b"\xfe\xff\xff\xff\x0f\0"] * 20_000)


@_bomb("dump --deep --value-as json --format jsonl", "grep --where 'value.a = 1' {}", "dump --deep --value-as json")
def json_nested(folder: Path) -> Path:
    return _values(folder, [b"[" * 450_000 + b"]" * 450_000])


@_bomb("dump --deep --value-as json --format jsonl", "grep --where 'value.a = 1' {}", "dump --deep --value-as json")
def json_items(folder: Path) -> Path:
    return _values(folder, [b"[" + b"{}," * 300_000 + b"{}]"])


@_bomb("dump --deep --value-as msgpack --format jsonl", "dump --deep --value-as cbor --format jsonl")
def binary_items(folder: Path) -> Path:
    return _values(folder, [b"\xdd\xff\xff\xff\xff" + bytes(900_000)])


@_bomb("dump --deep --value-as json --unwrap auto --format jsonl", "schemas")
def hostile_schemas(folder: Path) -> Path:
    nested: object = "string"
    for n in range(150):
        fields = [{"name": "a", "type": nested}, {"name": "b", "type": f"r{n - 1}" if n else "int"}]
        nested = {"type": "record", "name": f"r{n}", "fields": fields}
    row = {"subject": "s", "version": 1, "id": 1, "schema": json.dumps(nested), "deleted": False}
    value = json.dumps(row).encode()
    keys = [json.dumps({"keytype": "SCHEMA", "subject": f"s{n}", "version": 1, "magic": 1}).encode() for n in range(60)]
    data = build_batch([PlainRecord(n, key, value, 1) for n, key in enumerate(keys)])
    return _partition(folder, data, "_schemas")


@_bomb(
    "dump --deep --value-as protobuf --schema-file {S} --format jsonl",
    "grep --value-as protobuf --schema-file {S} x {}",
)
def protobuf_items(folder: Path) -> Path:
    """Empty messages in a field, and packed numbers."""
    proto = 'syntax = "proto3"; message M { repeated M m = 1; repeated int32 n = 2; '
    (folder / "schema.proto").write_text(proto + "".join(f"int32 f{i} = {i};" for i in range(3, 60)) + "}")
    packed = b"\x12" + uvarint(450_000) + bytes(450_000)
    return _values(folder, [b"\n\0" * 220_000, packed])


@_bomb(
    "sql --file /dev/zero {}", "validate --baseline /dev/zero {}", "validate --cache /dev/zero {}",
    "dump --deep --value-as avro --schema-file /dev/zero {}", "schemas --schemas /dev/zero {}",
    "dump --deep --value-as avro --registry http://127.0.0.1:9 --registry-ca /dev/zero {}",
    "dump --deep --kek /dev/zero {}", "lag --offset-map /dev/zero {}", "pipeline plan /dev/zero", "explain /dev/zero",
    "carve /dev/zero", "validate /dev/zero", "dump /dev/zero", "repair /dev/zero OUT",
)  # fmt: skip
def endless_options(folder: Path) -> Path:
    """A device without end where an option expects a file."""
    return _values(folder, [b"\0\0\0\0\1\2"])


@_bomb("tier fetch {} -o OUT", "validate", "dump --format jsonl", "stats")
def tier_manifests(folder: Path) -> Path:
    """Manifests of files of which the objects have only a part, with large chunks and with small ones."""
    partition = folder / f"orders-{'A' * 22}" / "0"
    partition.mkdir(parents=True)
    indexes = dict.fromkeys(("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction"))
    for number, (size, chunk) in enumerate(((74_000_000, 1 << 20), (1 << 20, 1 << 10), (2**31 - 1, 1 << 20))):
        index = {"type": "fixed", "originalChunkSize": chunk, "originalFileSize": size,
                 "transformedChunkSize": chunk, "finalTransformedChunkSize": 1}  # fmt: skip
        manifest = {"version": "1", "chunkIndex": index, "segmentIndexes": indexes, "compression": False}
        stem = f"{number:020}-{'B' * 22}"
        (partition / f"{stem}.rsm-manifest").write_text(json.dumps(manifest))
        (partition / f"{stem}.log").write_bytes(bytes(300_000))
        (partition / f"{stem}.indexes").write_bytes(bytes(100))
    return partition


@_bomb("diff {} COPY", "validate", "dump --effective")
def metadata_topics(folder: Path) -> Path:
    values = (encoded(("Topic", 0, {"name": f"t{n}", "topicId": f"{n:022}"})) for n in range(10_000))
    data = b"".join(build_batch([PlainRecord(n, None, value, 1)]) for n, value in enumerate(values))
    return _partition(folder, data[:SIZE], "__cluster_metadata")


@_bomb("tier check LOGS {}", "tier fetch LOGS -o OUT", "adopt", "validate", "dump --format jsonl")
def tier_metadata(folder: Path) -> Path:
    record = b"\0\0\0" + bytes(40)
    data = _repeated(lambda n: build_batch([PlainRecord(n, None, record, 1)]))
    return _partition(folder, data, "__remote_log_metadata")


def sizes(path: Path) -> int:
    """Return the bytes that a bomb takes on disk."""
    if path.is_file():
        return path.stat().st_size
    return sum(os.stat(file).st_blocks * 512 for file in path.rglob("*") if file.is_file())
