"""``python -m tools.proof.library_fuzz SECONDS [SEED]``: random damage for the decoders of the library, without commands.

A decoder may return a value or raise what its docstring names; everything else is a failure, and so is a decoder that
returns a different answer for the same bytes. A case is its target and its number: ``--case TARGET NUMBER`` runs it
again. ``--write`` keeps the executions of each target for the page of proof.
"""

from __future__ import annotations

import io
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import cbor2
import fastavro
import msgpack

import kseg
from kseg.errors import KsegError
from kseg.extras.serialization.avro import avro_reader
from kseg.extras.serialization.binary_json import decode_cbor, decode_msgpack
from kseg.extras.serialization.json_values import parse_json
from kseg.extras.serialization.schema_set import Schema
from kseg.extras.tiered_manifest import parse_manifest
from kseg.extras.wire.apis import REQUEST_HEAD, Api, read_request, read_response
from kseg.format.compress import codecs
from kseg.format.internal_topics.decode import decode
from kseg.format.sidefiles.checkpoints import walk_leader_epochs, walk_offset_checkpoint
from kseg.format.sidefiles.index_walks import walk_offset_index, walk_time_index, walk_txn_index
from kseg.format.sidefiles.metadata_files import walk_meta_properties, walk_partition_metadata, walk_quorum_state
from kseg.format.sidefiles.producer_snapshot import ProducerState, packed, read_snapshot
from kseg.format.storage.naming import INTERNAL_TOPICS
from kseg.format.storage.source import open_source
from tests.support.metadata_logs import encoded
from tools.proof.figures import report
from tools.proof.fuzz import damaged, mutated

_ROOT = Path(__file__).parents[2] / "fixtures"
_VALUE = {"name": "orders", "items": [1, -2, 3.5, None, True, {"a": [b"x" * 40, "text"]}], "count": 2**40}
_TEXT = b'{"name": "orders", "items": [1, -2, 3.5e10, null, true, {"a": ["x", "\\u00e9"]}], "count": 1099511627776}'
_RECORDS = [
    encoded(("Topic", 0, {"name": "t", "topicId": "A" * 22})),
    encoded(("PartitionChange", 0, {"partitionId": 1, "topicId": "A" * 22})),
    b"\0\1\0\5group\0\1t\0\0\0\0",
    b"\0\3" + bytes(24),
    b"\0\2\0\5group",
]
_SEGMENTS = [
    path.read_bytes() for path in sorted((_ROOT / "segments").glob("*/*.log")) if 0 < path.stat().st_size < 3_000
]
_MANIFEST = next((_ROOT / "tiered" / "aiven").rglob("*.rsm-manifest")).read_bytes()
_SNAPSHOT = next(
    path.read_bytes() for path in sorted((_ROOT / "segments").glob("*/*.snapshot")) if path.stat().st_size > 60
)


#: A side file, and what reads it.
_SIDE_FILES = [
    (bytes(8) + b"\0\0\0\x09\0\0\1\0" + bytes(16), lambda source: walk_offset_index(source, 0)),
    (b"\0\0\1\x80\0\0\0\0\0\0\0\x09" * 2, lambda source: walk_time_index(source, 0)),
    (b"\0\0" + bytes(31) + b"\x09", lambda source: walk_txn_index(source, 0)),
    (b"0\n2\n0 0\n3 40\n", walk_leader_epochs),
    (b"0\n2\norders 0 40\n__consumer_offsets 49 1\n", walk_offset_checkpoint),
    (b"version: 0\ntopic_id: PMvcIbWpT9WLyUYLvwcXYQ", walk_partition_metadata),
    (b"#Mon Nov 27\nnode.id=1\nversion=1\ncluster.id=x\n", walk_meta_properties),
    (b'{"leaderId":1,"leaderEpoch":3,"votedId":-1,"data_version":1}', walk_quorum_state),
]
_SCHEMA = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "lines", "type": {"type": "array", "items": ["null", "string", "Order"]}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
    ],
}  # fmt: skip
_AVRO = avro_reader(Schema("AVRO", json.dumps(_SCHEMA)), ())
_PARSED = fastavro.parse_schema(_SCHEMA)
_LINE = {"id": 7, "lines": [], "price": Decimal("1.25"), "at": 5, "tags": {}}
_ORDER = {**_LINE, "lines": [None, "text", _LINE], "tags": {"a": 0.5, "b": 1.5}}
_FRAMES = [path.read_bytes()[4:] for path in sorted((_ROOT / "streams").rglob("*.requests"))]


def _mutated(data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 3)):
        data = mutated(data, chance)
    return data


def _msgpack(chance: random.Random) -> None:
    with suppress(ValueError):
        decode_msgpack(_mutated(msgpack.packb(_VALUE), chance))


def _cbor(chance: random.Random) -> None:
    with suppress(ValueError):
        decode_cbor(_mutated(cbor2.dumps(_VALUE), chance))


def _json(chance: random.Random) -> None:
    with suppress(ValueError):
        parse_json(_mutated(_TEXT, chance))


def _internal_topics(chance: random.Random) -> None:
    """The bytes of a record, as the key and as the value of each topic."""
    data = _mutated(chance.choice(_RECORDS), chance)
    topic = chance.choice(INTERNAL_TOPICS)
    key = chance.choice((None, data, chance.choice(_RECORDS)))
    assert decode(topic, key, data).fault == decode(topic, key, data).fault


def _snapshot(chance: random.Random) -> None:
    """A snapshot that is accepted is written again as it was."""
    data = _mutated(_SNAPSHOT, chance)
    producers: list[ProducerState] | None = read_snapshot(data)
    assert producers is None or packed(producers) == data


def _side_files(chance: random.Random) -> None:
    data, walk = chance.choice(_SIDE_FILES)
    with suppress(KsegError), open_source(io.BytesIO(_mutated(data, chance))) as source:
        for _ in walk(source):  # type: ignore[operator]
            pass


def _avro(chance: random.Random) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _PARSED, _ORDER)
    with suppress(ValueError):
        _AVRO(_mutated(out.getvalue(), chance))


def _frames(chance: random.Random) -> None:
    """A request, and the same bytes as a response to it."""
    data = memoryview(_mutated(chance.choice(_FRAMES)[:4_000], chance))
    if len(data) >= REQUEST_HEAD.size:
        read_request(data)
        read_response(data, Api(chance.randint(0, 90), chance.randint(0, 18)))


def _manifest(chance: random.Random) -> None:
    with suppress(KsegError):
        parse_manifest(_mutated(_MANIFEST, chance), "manifest")


def _codecs(chance: random.Random) -> None:
    codec = chance.randint(1, 4)
    data = _mutated(codecs.compress(codec, chance.randbytes(8) * chance.randint(0, 60)), chance)
    with suppress(codecs.CodecError):
        assert len(codecs.decompress(codec, data, limit=1 << 16)) <= 1 << 16


def _records(chance: random.Random) -> None:
    """A segment in memory, read deeply: damage is a finding."""
    with suppress(KsegError), kseg.open_segment(io.BytesIO(damaged(chance.choice(_SEGMENTS), chance))) as segment:
        for record in segment.records():
            assert record.value is None or isinstance(record.value, bytes)


TARGETS: dict[str, Callable[[random.Random], None]] = {
    "codecs": _codecs, "records": _records, "producer-snapshots": _snapshot, "internal-topics": _internal_topics,
    "msgpack": _msgpack, "cbor": _cbor, "json": _json, "avro": _avro, "manifests": _manifest, "side-files": _side_files,
    "frames": _frames,
}  # fmt: skip
#: The cases of a target between two looks at the clock.
_AT_ONCE = 200


def fuzz(seconds: float, seed: int) -> tuple[Counter[str], list[str]]:
    """Run cases of all targets for equal times. Return the executions and the failures."""
    executed: Counter[str] = Counter()
    failures: list[str] = []
    for name, target in TARGETS.items():
        end = time.monotonic() + seconds / len(TARGETS)
        while time.monotonic() < end:
            for number in range(seed + executed[name], seed + executed[name] + _AT_ONCE):
                try:
                    target(random.Random(f"{name} {number}"))
                except Exception as error:  # every other exception is a fault of kseg
                    failures.append(f"{name} {number}: {type(error).__name__}: {str(error)[:120]}")
                    print(failures[-1], flush=True)
            executed[name] += _AT_ONCE
    return executed, failures


def main() -> None:
    if sys.argv[1:2] == ["--case"]:
        TARGETS[sys.argv[2]](random.Random(f"{sys.argv[2]} {sys.argv[3]}"))
        return
    words = [word for word in sys.argv[1:] if word != "--write"]
    seconds, seed = float(words[0]), int(words[1]) if len(words) > 1 else 0
    executed, failures = fuzz(seconds, seed)
    each = ", ".join(f"{target} {count:,}" for target, count in executed.items())
    report(
        "library-fuzz",
        f"{executed.total():,} executions in {seconds:g} s from seed {seed} ({each}): {len(failures)} failures",
    )
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
