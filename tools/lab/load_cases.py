"""Small partitions, one for each way in which the loading of a log can end: what Kafka makes of them is written down.

``python -m tools.lab.load_cases`` writes it to ``fixtures/recovery/``.
"""

from __future__ import annotations

import json
import re
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from kseg.format.compress import codecs
from kseg.format.log_loader.recovery_plan import BrokerStart
from kseg.format.record.crc import crc32c
from kseg.format.sidefiles.indexes import OFFSET_ENTRY
from kseg.format.sidefiles.producer_snapshot import ENTRY, ProducerState, packed
from tests.support import damage
from tools.lab.load_log import VERSION, LoadLog
from tools.lab.load_oracle import outcome
from tools.lab.load_scenes import TOPIC_ID, Case, Folder, batch, case, message, record, source

RECORDED = Path(__file__).parents[2] / "fixtures" / "recovery" / f"load-{VERSION}.jsonl"
FINDINGS = RECORDED.parents[1] / "findings"
#: The number of random partitions whose outcomes are kept; more are compared with Kafka beside them.
SEEDS = 400
_NOTES = ("ORIGIN", "expect.jsonl", "settings.json")
# The files of a partition: those named by an offset but the snapshots of KRaft, and two others.
_OF_PARTITION = re.compile(
    r"\d{20}\.(log|index|timeindex|txnindex|snapshot)(\.swap)?|leader-epoch-checkpoint|partition\.metadata"
)
SEGMENTS = "4.3.0-v2-none-segments"
TRANSACTIONS = "4.3.0-v2-none-transactions"
WRAPPERS = "0.10.2.2-v1-gzip"
_CLEAN, _UNCLEAN = BrokerStart(True, index_bytes=1200), BrokerStart(False, index_bytes=1200)
_ABORT, _COMMIT = b"\0\0\0\0", b"\0\0\0\1"
_EPOCHS = "leader-epoch-checkpoint"


@dataclass(frozen=True, slots=True)
class _Made:
    source: str = SEGMENTS
    start: BrokerStart = _UNCLEAN
    files: Mapping[str, bytes | None] = field(default_factory=dict)
    do: Callable[[Folder], None] = lambda folder: None
    #: Whether only the source's first segment is there, besides ``files``.
    alone: bool = False


def cases() -> Iterator[tuple[str, Case]]:
    """Yield each case with its name."""
    for name, made in _CASES.items():
        folder: Folder = dict(source(made.source))
        if made.alone:
            _keep_first_segment(folder)
        folder |= made.files
        made.do(folder)
        yield name, Case(0, folder, made.start, (name,))
    yield from of_rules()


def of_rules() -> Iterator[tuple[str, Case]]:
    """Yield the partition of each rule's fixture after both shutdowns, as ``RULE clean`` and ``RULE unclean``.

    A single file takes its place in the partition that it is from; several files are a partition of their own.
    """
    for rule in sorted(FINDINGS.iterdir()):
        files = {path.name: path for path in rule.iterdir() if path.name not in _NOTES}
        if not all(path.is_file() and _OF_PARTITION.fullmatch(name) for name, path in files.items()):
            continue
        folder: Folder = {name: path.read_bytes() for name, path in files.items()}
        origin = (rule / "ORIGIN").read_text(encoding="utf-8").split("\n")[0].split("/")[-2]
        around = source(origin)
        folder = {
            **(around if len(files) == 1 and {*files} <= {*around} else {"partition.metadata": TOPIC_ID}),
            **folder,
        }
        for start, shutdown in ((_CLEAN, "clean"), (_UNCLEAN, "unclean")):
            yield f"{rule.name} {shutdown}", Case(0, folder, start, (rule.name,))


def _log(base: int) -> str:
    return f"{base:020d}.log"


def _bytes(folder: Folder, name: str) -> bytes:
    data = folder[name]
    assert data is not None
    return data


def _edit(base: int, change: Callable[[bytes], bytes]) -> Callable[[Folder], None]:
    def do(folder: Folder) -> None:
        folder[_log(base)] = change(_bytes(folder, _log(base)))

    return do


def _in_last(change: Callable[[bytes, damage.Place], bytes]) -> Callable[[Folder], None]:
    return _edit(0, lambda data: change(data, damage.entries(data)[-1]))


def _rename(old: int, new: int) -> Callable[[Folder], None]:
    def do(folder: Folder) -> None:
        for kind in (".log", ".index", ".timeindex"):
            folder[f"{new:020d}{kind}"] = folder.pop(f"{old:020d}{kind}")

    return do


def _only(*parts: bytes) -> dict[str, bytes | None]:
    """A log of these entries, in a folder of which the source's segments are gone."""
    return {_log(0): b"".join(parts), f"{0:020d}.index": b"", f"{0:020d}.timeindex": b""}


def _keep_first_segment(folder: Folder) -> None:
    for name in list(folder):
        if name[:20].isdigit() and not name.startswith(f"{0:020d}."):
            del folder[name]


def _data(offset: int, producer: int = 1, attributes: int = 16) -> bytes:
    return batch(offset, producer, attributes, record(b"key", b"value"), 1)


def _end(offset: int, key: bytes | None, producer: int = 1, value: bytes | None = b"\0\0\0\0\0\1") -> bytes:
    return batch(offset, producer, 48, record(key, value), 1)


def _snapshot(*open_: tuple[int, int]) -> bytes:
    body = struct.pack(">i", len(open_))
    body += b"".join(ENTRY.pack(producer, 0, 0, first, 0, 1 << 40, 0, first) for producer, first in open_)
    return struct.pack(">hI", 1, crc32c(body)) + body


def _transactions(*parts: bytes, start: BrokerStart = _UNCLEAN, **files: bytes) -> _Made:
    return _Made(TRANSACTIONS, start, {**_only(*parts), **files}, alone=True)


def _split(*offsets: int) -> _Made:
    """A segment whose offsets its indexes cannot have, so that it is split; each batch gets an entry of an index."""
    start = BrokerStart(False, index_interval=0, index_bytes=1200)
    return _Made(start=start, files=_only(*(_data(offset, -1, 0) for offset in offsets)), alone=True)


def _transactions_with(version: bytes) -> _Made:
    """The first entry of the transaction index of a log that is loaded has this version."""
    name = f"{17:020d}.txnindex"
    entry = (FINDINGS / "txn-index-version" / name).read_bytes()
    return _Made(TRANSACTIONS, files={name: version + entry[2:]})


def _last_moved(data: bytes, base: int) -> bytes:
    return damage.put(data, damage.entries(data)[-1].at, base_offset=base)


def _epochs(text: str) -> _Made:
    return _Made(start=_CLEAN, files={_EPOCHS: text.encode()})


def _topic_id(data: bytes) -> _Made:
    return _Made(start=_CLEAN, files={"partition.metadata": data})


def _wrapper(start: BrokerStart, change: Callable[[bytes, damage.Place], bytes]) -> _Made:
    """The index has the last offset and leads to the first byte: all wrappers on the way are opened."""
    return _Made(WRAPPERS, start, {f"{0:020d}.index": OFFSET_ENTRY.pack(37, 0)}, _in_last(change))


def _bad_payload(data: bytes, place: damage.Place) -> bytes:
    return damage.fix_crc(damage.flip(data, place.end - 6), place.at)


def _codec(number: int) -> Callable[[bytes, damage.Place], bytes]:
    return lambda data, place: damage.alter(data, place.at, attributes=number)


def _huge_inner(data: bytes, place: damage.Place) -> bytes:
    inner = message(1, 0, 0, None, b"value") + struct.pack(">qi", 1, 2_000_000_000)
    return data[: place.at] + message(1, 37, 1, None, codecs.compress(1, inner, magic=1))


_CASES: dict[str, _Made] = {
    # v0 and v1 wrappers are opened for their first offset.
    "wrapper-payload-clean": _wrapper(_CLEAN, _bad_payload),
    "wrapper-payload-unclean": _wrapper(_UNCLEAN, _bad_payload),
    "wrapper-codec-4": _wrapper(_CLEAN, _codec(4)),
    "wrapper-codec-7": _wrapper(_UNCLEAN, _codec(7)),
    "wrapper-inner-size": _wrapper(_CLEAN, _huge_inner),
    # Checkpoint errors that end the process, and those that only take the log dir offline.
    "epochs-no-number": _epochs("0\n1\n0 x\n"),
    "epochs-negative": _epochs("0\n1\n-1 0\n"),
    "epochs-count": _epochs("0\n3\n0 0\n"),
    "epochs-negative-count": _epochs("0\n-1\n"),
    "epochs-fields": _epochs("0\n1\n0 0 0\n"),
    "epochs-blank-before": _epochs("0\n1\n 0 0\n"),
    "topic-id-one-line": _topic_id(b"version: 0\n"),
    "topic-id-zero": _topic_id(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n"),
    "topic-id-no-uuid": _topic_id(TOPIC_ID.replace(b"PMvc", b"!!")),
    # Base offsets and names.
    "renamed-to-2-to-31": _Made(do=_rename(0, 1 << 31)),
    "renamed-to-2-to-31-clean": _Made(start=_CLEAN, do=_rename(0, 1 << 31)),
    "renamed-to-largest": _Made(do=_rename(120, (1 << 63) - 1)),
    "renamed-into-its-first-batch": _Made(do=_rename(0, 5)),
    "last-batch-beyond-its-index": _Made(do=_edit(96, lambda data: _last_moved(data, 96 + (1 << 32)))),
    "first-batch-negative": _Made(do=_edit(0, lambda data: damage.put(data, 0, base_offset=-9))),
    "first-batch-far-below": _Made(do=_edit(0, lambda data: damage.put(data, 0, base_offset=-1000))),
    "batch-negative": _Made(do=_edit(24, lambda data: damage.put(data, damage.entries(data)[1].at, base_offset=-1))),
    "batch-below-its-name": _Made(do=_edit(24, lambda data: damage.put(data, damage.entries(data)[1].at, base_offset=3))),
    "batch-twice": _Made(do=_edit(24, lambda data: damage.put(data, damage.entries(data)[1].at, base_offset=24))),
    "name-not-padded": _Made(start=_CLEAN, files={"5.log": b""}),
    "folder-named-as-log": _Made(start=_CLEAN, files={f"{7:020d}.log": None, f"{7:020d}.index": b""}),
    "split": _split(0, 1, 3 << 30, (3 << 30) + 5, (3 << 30) + 9),
    "split-where-offsets-decrease": _split(0, 1, 3 << 30, (3 << 30) + 9, (3 << 30) + 5),
    # Sizes of indexes.
    "index-full": _Made(start=BrokerStart(False, index_interval=0, index_bytes=16)),
    "time-index-full": _Made(start=BrokerStart(False, index_interval=0, index_bytes=24)),
    "index-larger-than-allowed": _Made(
        start=BrokerStart(True, index_bytes=16), files={f"{120:020d}.index": OFFSET_ENTRY.pack(1, 0) * 5}
    ),
    "index-without-log": _Made(
        files={f"{17:020d}.txnindex": (FINDINGS / "txn-index-version" / f"{17:020d}.txnindex").read_bytes()}
    ),
    "transaction-index-version-7": _transactions_with(b"\0\7"),
    "transaction-index-version-256": _transactions_with(b"\1\0"),
    "transaction-index-version-65280": _transactions_with(b"\xff\0"),
    "index-position-negative": _Made(start=_CLEAN, files={f"{120:020d}.index": OFFSET_ENTRY.pack(0, -5)}),
    "transaction-index-is-kept-empty": _transactions(
        _data(3), _end(4, _ABORT), _data(2), _data(5), start=BrokerStart(False, index_interval=0, index_bytes=1200)
    ),
    # Producers' states are replayed without a guard.
    "two-transactions-of-one-offset": _transactions(_data(0, 1), _data(0, 2), _end(1, _COMMIT, 1), _end(2, _COMMIT, 2)),
    "aborts-go-back": _transactions(_data(0), _end(5, _ABORT), _data(3), _end(4, _ABORT)),
    "control-key-short": _transactions(_data(0), _end(1, b"\0"), _data(2)),
    "control-key-null": _transactions(_data(0), _end(1, None), _data(2)),
    "control-type": _transactions(_data(0), _end(1, b"\0\0\0\2"), _data(2)),
    "control-value-short": _transactions(_data(0), _end(1, _COMMIT, value=b"\0\0")),
    "open-in-snapshot": _transactions(
        _data(4), start=BrokerStart(False, 9, index_bytes=1200),
        **{_log(9): _data(9, attributes=0), f"{9:020d}.snapshot": _snapshot((1, 4))},
    ),
    "offset-0-in-snapshot": _transactions(
        _data(0, 2, 0), start=BrokerStart(False, 1, index_bytes=1200),
        **{_log(1): _data(1, attributes=0), f"{1:020d}.snapshot": packed([ProducerState(2, 0, 7, 0, 0, 1 << 40, 0, None)])},
    ),
    # A batch that is smaller than its header.
    "small-batch-at-end": _Made(
        start=_CLEAN, do=_edit(120, lambda data: data + struct.pack(">qiib", 121, 14, 0, 2) + bytes(9))
    ),
    "offset-past-largest": _Made(
        start=_CLEAN, do=_edit(120, lambda data: damage.put(data, 0, base_offset=(1 << 63) - 1))
    ),
}  # fmt: skip


def of_seeds() -> Iterator[tuple[str, Case]]:
    """Yield random partitions, as ``seed NUMBER``."""
    for seed in range(SEEDS):
        yield f"seed {seed}", case(seed)


def load() -> Iterator[dict[str, Any]]:
    """Yield what Kafka makes of each case."""
    with LoadLog() as kafka, tempfile.TemporaryDirectory() as work:
        for name, made in (*cases(), *of_seeds()):
            folder = Path(work) / name / "topic-0"
            made.put(folder)
            row = outcome(kafka.load(folder, made.start))
            yield {"case": name, **{key: row[key] for key in row if key not in ("error", "at")}}


@cache
def recorded() -> Mapping[str, Mapping[str, Any]]:
    """Return the recorded outcomes, by case."""
    rows = map(json.loads, RECORDED.read_text(encoding="utf-8").splitlines())
    return {row.pop("case"): row for row in rows}


if __name__ == "__main__":
    RECORDED.write_text("".join(json.dumps(row) + "\n" for row in load()), encoding="utf-8")
