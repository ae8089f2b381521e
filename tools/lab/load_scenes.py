"""Damaged partition folders without end, each from a seed: every kind of file, every kind of damage.

A folder is a dict from file names to bytes, or to None for a folder of that name.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from crc32c import crc32c

from kseg.format.compress import codecs
from kseg.format.log_loader.recovery_plan import BrokerStart
from kseg.format.record import layout
from kseg.format.sidefiles.indexes import OFFSET_ENTRY, TIME_ENTRY
from kseg.format.sidefiles.producer_snapshot import ENTRY, HEADER
from tests.support import damage

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"
#: Folders of several segments, or with something of interest, are drawn more often.
FAVOURED = (
    "4.3.0-v2-none-segments",
    "4.3.0-v2-none-transactions",
    "0.10.2.2-v1-gzip-segments",
    "0.10.2.2-v1-none-segments",
    "2.8.2-v0v1v2-mixed",
    "2.8.2-v2v1v0v2-downgraded",
    "4.3.0-v2-none-transactions-v2",
    "1.1.1-v2-none-transactions",
)
_LEFT_OUT = ("large", "log-dir", "cluster-metadata", "kraft-metadata")
_NOT_KAFKAS = ("ORIGIN", "expect.jsonl", "committed-offsets.json")
TOPIC_ID = b"version: 0\ntopic_id: PMvcIbWpT9WLyUYLvwcXYQ\n"
KINDS = (".log", ".index", ".timeindex", ".txnindex")
EXTREMES = (0, 1, -1, 1 << 31, (1 << 31) - 1, -(1 << 31), 1 << 32, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63), 7, 60)

Folder = dict[str, bytes | None]


@dataclass(frozen=True, slots=True)
class Case:
    """A partition to load; ``done`` describes the damage."""

    seed: int
    folder: Folder
    start: BrokerStart
    done: tuple[str, ...]

    def put(self, path: Path) -> None:
        """Write the folder, which must not be there."""
        path.mkdir(parents=True)
        for name, data in self.folder.items():
            if data is None:
                (path / name).mkdir()
            else:
                (path / name).write_bytes(data)


def case(seed: int) -> Case:
    """Make the partition of a seed, always the same."""
    rng = random.Random(seed)
    folder: Folder = dict(source(rng.choice(FAVOURED if rng.random() < 0.6 else _sources())))
    done = [_prepare(rng, folder)]
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        done.append(damage_folder(rng, folder))
    return Case(seed, folder, _start(rng, folder), tuple(filter(None, done)))


def damage_folder(rng: random.Random, folder: Folder, kinds: tuple[str, ...] = ()) -> str:
    """Do one damage, of these kinds if they are named; return which, nothing where there was nothing to damage."""
    name = rng.choice(kinds or tuple(_DAMAGES))
    return name if _DAMAGES[name](rng, folder) else ""


@lru_cache
def _sources() -> tuple[str, ...]:
    return tuple(
        folder.name
        for folder in sorted(SEGMENTS.iterdir())
        if not any(part in folder.name for part in _LEFT_OUT) and any(folder.glob("*.log"))
    )


@lru_cache
def source(name: str) -> dict[str, bytes]:
    folder = {file.name: file.read_bytes() for file in sorted((SEGMENTS / name).iterdir()) if file.is_file()}
    folder = {name: data for name, data in folder.items() if name not in _NOT_KAFKAS}
    return {**folder, "partition.metadata": TOPIC_ID}


def _prepare(rng: random.Random, folder: Folder) -> str:
    """Add harmless extra content to a log."""
    logs = _logs(folder)
    choice = rng.random()
    if choice < 0.15 and len(logs) == 1:
        _cut_in_two(folder, logs[0], rng)
        return "two segments"
    if choice < 0.25:
        other = source(rng.choice(_sources()))
        for name, data in other.items():
            folder.setdefault(name, data)
        return "mixed with another log"
    if choice < 0.35:
        _append_transaction(rng, folder)
        return "transaction"
    return ""


def _start(rng: random.Random, folder: Folder) -> BrokerStart:
    bases = _offsets(_logs(folder))
    near = [0, 0, 0, *bases, *(base + 1 for base in bases), bases[-1] + 20, bases[-1] + 200]
    return BrokerStart(
        rng.random() < 0.5,
        rng.choice(near) if rng.random() < 0.5 else rng.choice((0, 1 << 40, (1 << 63) - 1)) * (rng.random() < 0.1),
        rng.choice(near) if rng.random() < 0.2 else 0,
        rng.choice((0, 100, 512, 512, 4096)),
        rng.choice((24, 48, 1200, 1200, 4096, 4096, 65536)),
    )


# --- helpers ---


def _logs(folder: Folder) -> list[str]:
    return sorted(name for name, data in folder.items() if name.endswith(".log") and data is not None)


def _named(folder: Folder, *endings: str) -> list[str]:
    return sorted(name for name, data in folder.items() if name.endswith(endings) and data is not None)


def _offsets(names: list[str]) -> list[int]:
    """The offsets in names that have one, 0 where none has."""
    return sorted(min(int(name[:20]), 1 << 62) for name in names if name[:20].isdigit()) or [0]


def _bytes(folder: Folder, name: str) -> bytes:
    data = folder[name]
    assert data is not None
    return data


def _cut_in_two(folder: Folder, name: str, rng: random.Random) -> None:
    data = _bytes(folder, name)
    places = damage.entries(data)
    if len(places) < 2:
        return
    place = rng.choice(places[1:])
    base = damage.get(data, place.at, "base_offset")
    if not 0 < base < 1 << 60 or f"{base:020d}.log" in folder:
        return
    folder[name], folder[f"{base:020d}.log"] = data[: place.at], data[place.at :]
    if rng.random() < 0.7:
        folder[f"{base:020d}.index"] = b""
        folder[f"{base:020d}.timeindex"] = b""


def batch(base: int, producer: int, attributes: int, records: bytes, count: int, last_delta: int = 0) -> bytes:
    body = struct.pack(">hiqqqhii", attributes, last_delta, 1_700_000_000_000, 1_700_000_000_000, producer, 0, 0, count)
    body += records
    return struct.pack(">qiibI", base, 9 + len(body), 0, 2, crc32c(body)) + body


def record(key: bytes | None, value: bytes | None, delta: int = 0) -> bytes:
    def varint(number: int) -> bytes:
        number = (number << 1) ^ (number >> 63)
        out = bytearray()
        while number > 127:
            out.append(number & 127 | 128)
            number >>= 7
        return bytes([*out, number])

    def field(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    body = b"\0" + varint(0) + varint(delta) + field(key) + field(value) + varint(0)
    return varint(len(body)) + body


def _append_transaction(rng: random.Random, folder: Folder) -> bool:
    """Batches of transactions after the last segment's, in an order that a broker may or may not have written."""
    logs = _logs(folder)
    if not logs:
        return False
    data = _bytes(folder, logs[-1])
    places = damage.entries(data)
    next_ = damage.get(data, places[-1].at, "base_offset") + 40 if places else max(_offsets(logs))
    if not 0 <= next_ < 1 << 60:
        return False
    for _ in range(rng.randint(1, 8)):
        producer = rng.choice((1, 2, 3))
        kind = rng.random()
        if kind < 0.5:
            data += batch(next_, producer, 16 if rng.random() < 0.85 else 0, record(b"k", b"v"), 1)
        else:
            key = rng.choice(
                (
                    b"\0\0\0\0",
                    b"\0\0\0\1",
                    b"\0\0\0\0",
                    b"\0\0\0\1",
                    b"\0\0\0\2",
                    b"\0\1\0\1",
                    b"\xff\xff\0\1",
                    b"\0",
                    None,
                )
            )
            value = rng.choice((b"\0\0\0\0\0\1",) * 8 + (b"\0\0\0\0\0\1more", b"\0\0", b"", None, b"\xff\xff\0\0\0\1"))
            count = rng.choice((1,) * 8 + (0, -1, 2))
            records = record(key, value) if count else b""
            data += batch(next_, producer, 48, records + b"x" * (rng.random() < 0.05), count)
        next_ += rng.choice((1, 1, 1, 1, 0, 5))
    folder[logs[-1]] = data
    return True


def _range(rng: random.Random, size: int, most: int = 200) -> tuple[int, int]:
    begin = rng.randrange(size)
    return begin, min(size, begin + rng.randint(1, most))


def mangle(rng: random.Random, data: bytes) -> bytes:
    """Damage random bytes, independent of their meaning."""
    if not data:
        return rng.randbytes(rng.randint(1, 100))
    begin, end = _range(rng, len(data))
    return rng.choice(
        (
            lambda: damage.flip(data, begin, 1 << rng.randrange(8)),
            lambda: damage.flip(data, begin, rng.randrange(1, 256)),
            lambda: data[:begin],
            lambda: damage.zero(data, begin, end),
            lambda: damage.splice(data, begin, end, rng.randbytes(end - begin)),
            lambda: damage.insert(data, begin, rng.randbytes(end - begin)),
            lambda: damage.cut(data, begin, end),
            lambda: data + bytes(rng.choice((5, 17, 18, 61, 500, 5000))),
            lambda: data + rng.randbytes(rng.randint(1, 300)),
            lambda: b"",
            lambda: bytes(len(data)),
            lambda: data + data[begin:end],
        )
    )()


# --- damages: each returns whether there was something to damage ---


def _mangle_log(rng: random.Random, folder: Folder) -> bool:
    names = _logs(folder)
    if names:
        name = rng.choice(names)
        folder[name] = mangle(rng, _bytes(folder, name))
    return bool(names)


def _mangle_last_log(rng: random.Random, folder: Folder) -> bool:
    names = _logs(folder)
    if names:
        folder[names[-1]] = mangle(rng, _bytes(folder, names[-1]))
    return bool(names)


def _field(rng: random.Random, folder: Folder, *, fixed: bool) -> bool:
    """A header field set, before a CRC that holds or does not."""
    names = _logs(folder)
    if not names:
        return False
    name = rng.choice(names)
    data = _bytes(folder, name)
    places = damage.entries(data)
    if not places:
        return False
    place = rng.choice(places)
    field, (_, code) = rng.choice(sorted(damage.FIELDS[place.magic].items()))
    bits = 8 * struct.calcsize(code)
    old = damage.get(data, place.at, field)
    number = rng.choice(
        (rng.choice(EXTREMES), old ^ 1 << rng.randrange(bits), old + rng.choice((-3, -1, 1, 3)), rng.getrandbits(bits))
    )
    number %= 1 << bits
    if code.islower() and number >> bits - 1:
        number -= 1 << bits
    change = damage.put(data, place.at, **{field: number})
    if fixed and field not in ("size", "crc", "magic"):
        change = damage.fix_crc(change, place.at)
    folder[name] = change
    return True


def _whole_entries(rng: random.Random, folder: Folder) -> bool:
    """Entries removed, doubled, swapped, moved to another segment, their offsets moved."""
    names = _logs(folder)
    if not names:
        return False
    name = rng.choice(names)
    data = _bytes(folder, name)
    places = damage.entries(data)
    if not places:
        return False
    one, other = rng.choice(places), rng.choice(places)
    piece = data[one.at : one.end]
    kind = rng.randrange(6)
    if kind == 0:
        folder[name] = damage.cut(data, one.at, one.end)
    elif kind == 1:
        folder[name] = damage.insert(data, other.at, piece)
    elif kind == 2:
        folder[name] = damage.insert(damage.cut(data, one.at, one.end), min(other.at, len(data) - one.size), piece)
    elif kind == 3:
        target = rng.choice(names)
        folder[target] = _bytes(folder, target) + piece
    elif kind == 4 and all(place.magic == 2 for place in places):
        folder[name] = data[: one.at] + damage.move(data[one.at :], 0, rng.choice((-40, -1, 1, 1000, 1 << 31, 1 << 40)))
    else:
        folder[name] = data[: one.at] + data[one.end :] + piece
    return True


def _payload(rng: random.Random, folder: Folder) -> bool:
    """What an entry holds, changed before a CRC that holds: compressed or not."""
    names = _logs(folder)
    if not names:
        return False
    name = rng.choice(names)
    data = _bytes(folder, name)
    places = damage.entries(data)
    if not places:
        return False
    place = rng.choice(places)
    begin = place.at + (layout.RECORD_BATCH_OVERHEAD if place.magic == 2 else 18)
    if begin >= place.end:
        return False
    at = rng.randrange(begin, place.end)
    changed = damage.flip(data, at, rng.randrange(1, 256))
    if rng.random() < 0.3:
        changed = damage.zero(data, at, min(place.end, at + rng.randint(1, 40)))
    folder[name] = damage.fix_crc(changed, place.at)
    return True


def _wrapper(rng: random.Random, folder: Folder) -> bool:
    """A compressed v0 or v1 entry with other inner messages, of any codec."""
    names = _logs(folder)
    if not names:
        return False
    name = rng.choice(names)
    data = _bytes(folder, name)
    places = damage.entries(data)
    at = rng.choice([place.at for place in places] + [len(data) if not places else places[-1].end])
    magic, codec = rng.choice((0, 1)), rng.choice((1, 1, 2, 3, 1, 4, 5, 7))
    base = damage.get(data, places[-1].at, "base_offset") if places else 0
    inner = b""
    for number in range(rng.randint(0, 4)):
        inner += message(
            rng.choice((magic, magic, 1 - magic)),
            number if magic else base + number,
            rng.choice((0, 0, 0, 1)),
            None,
            b"value",
        )
    if rng.random() < 0.4:
        inner = mangle(rng, inner)
    if inner[:1] and rng.random() < 0.1:
        inner += struct.pack(">qi", 9, rng.choice((2_000_000_000, 13, -5, 1 << 30, 500_000_000, 100)))
    value = codecs.compress(codec, inner, magic=magic) if codec < 4 else inner
    if rng.random() < 0.3:
        value = mangle(rng, value)
    offset = rng.choice((base + 4, base + 4, 0, 1, base))
    folder[name] = damage.insert(data, at, message(magic, offset, codec, None, rng.choice((value, value, value, None))))
    return True


def message(magic: int, offset: int, attributes: int, key: bytes | None, value: bytes | None) -> bytes:
    def field(data: bytes | None) -> bytes:
        return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data

    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", 1_500_000_000_000) if magic else b"")
    body += field(key) + field(value)
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def _side_file(rng: random.Random, folder: Folder) -> bool:
    names = _named(folder, ".index", ".timeindex", ".txnindex", ".snapshot")
    if names:
        name = rng.choice(names)
        folder[name] = mangle(rng, _bytes(folder, name))
    return bool(names)


def _index_entries(rng: random.Random, folder: Folder) -> bool:
    """Whole entries of an offset index: rising or not, inside the log or not."""
    names = _logs(folder)
    if not names:
        return False
    name = names[-1] if rng.random() < 0.6 else rng.choice(names)
    size = len(_bytes(folder, name))
    pairs = [(rng.randrange(200), rng.randrange(-2, size + 20)) for _ in range(rng.randint(1, 8))]
    if rng.random() < 0.5:
        pairs.sort()
    if rng.random() < 0.5:
        starts = [place.at for place in damage.entries(_bytes(folder, name))] or [0]
        pairs = [(offset, rng.choice(starts)) for offset, _ in pairs]
    ending = rng.choice((".index", ".index", ".timeindex"))
    pack = OFFSET_ENTRY.pack if ending == ".index" else TIME_ENTRY.pack
    folder[name.replace(".log", ending)] = b"".join(pack(*pair) for pair in pairs) + bytes(
        rng.choice((0, 0, 0, 3, 160))
    )
    return True


def _txn_index(rng: random.Random, folder: Folder) -> bool:
    names = _logs(folder)
    if not names:
        return False
    name = rng.choice(names)
    entries = [
        struct.pack(">hqqqq", rng.choice((0, 0, 0, 0, 1, 256, -1)), 1, 5, rng.choice((0, 20, 60, 1 << 40)), 70)
        for _ in range(rng.randint(1, 3))
    ]
    folder[name.replace(".log", ".txnindex")] = b"".join(entries) + bytes(rng.choice((0, 0, 5)))
    return True


def _snapshot(rng: random.Random, folder: Folder) -> bool:
    """A snapshot that can be read, with or without open transactions."""
    offsets = _offsets(_logs(folder))
    offset = rng.choice([*offsets, *(offset + 3 for offset in offsets), *_offsets(_named(folder, ".snapshot"))])
    entries = [
        ENTRY.pack(
            rng.choice((1, 2, 3, 4)),
            0,
            5,
            offset - 1,
            0,
            1_700_000_000_000,
            0,
            rng.choice((-1, offset - 2, 0, offset, 1 << 40)),
        )
        for _ in range(rng.randint(0, 3))
    ]
    count = len(entries) if rng.random() < 0.9 else rng.choice((-1, 1 << 30, len(entries) + 1, 0))
    body = struct.pack(">i", count) + b"".join(entries) + bytes(rng.choice((0, 0, 0, 7)))
    crc = crc32c(body) if rng.random() < 0.9 else 7
    folder[f"{offset:020d}.snapshot"] = struct.pack(">hI", rng.choice((1,) * 9 + (2,)), crc) + body
    return True


EPOCH_TEXTS = (
    "", "0", "0\n", "0\n0\n", "1\n0\n", "x\n", "0\nx\n", "0\n-1\n", "0\n2000000000\n0 0\n", "0\n2\n0 0\n", "0\n0\n0 0\n",
    "0\n1\n0 x\n", "0\n1\nx y\n", "0\n1\n-1 0\n", "0\n1\n0 -1\n", "0\n1\n0\n", "0\n1\n0 0 0\n", "0\n1\n 0 0\n",
    "0\n1\n0 0 \n", "0\n1\n+0 +0\n", "0\n2\n0 0\n\n", "0\n2\n0 0\n5 30\n", "0\n3\n0 0\n5 30\n4 60\n",
    "0\n3\n0 0\n5 30\n6 20\n", "0\n2\n3 0\n3 0\n", "0\r\n1\r\n0 0\r\n", "0\n1\n0\t0\n", "0\n1\n3000000000 0\n",
    "0\n1\n0 9223372036854775807\n", "0\n1\n0 9223372036854775808\n", "0 \n0\n", "0\n1\n7 100000\n", "0\n2\n0 0\n99 30",
)  # fmt: skip


def _epochs(rng: random.Random, folder: Folder) -> bool:
    name = "leader-epoch-checkpoint"
    kind = rng.random()
    if kind < 0.1:
        folder.pop(name, None)
    elif kind < 0.8:
        folder[name] = rng.choice(EPOCH_TEXTS).encode()
    else:
        folder[name] = mangle(rng, folder.get(name) or b"0\n2\n0 0\n3 40\n")
    return True


TOPIC_IDS = (
    b"", b"version: 0\n", TOPIC_ID.replace(b"0", b"1", 1), TOPIC_ID.replace(b"0", b"-1", 1), b"version: x\n",
    b"version:0\ntopic_id:x\n", b"version: 0\ntopic_id: x\n", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n",
    b"a: 0\nb: PMvcIbWpT9WLyUYLvwcXYQ", b"version: 0\r\ntopic_id: PMvcIbWpT9WLyUYLvwcXYQ==\r\n", b"\xff\xfe",
    b"version: 0\ntopic_id: PMvcIbWpT9WLyUYLvwcXYQQQQ\n", b"version: 0\ntopic_id: !!vcIbWpT9WLyUYLvwcXYQ\n",
    b"version: 0\ntopic_id\n",
)  # fmt: skip


def _topic_id(rng: random.Random, folder: Folder) -> bool:
    if rng.random() < 0.3:
        folder.pop("partition.metadata", None)
    else:
        folder["partition.metadata"] = rng.choice((*TOPIC_IDS, mangle(rng, TOPIC_ID)))
    return True


def _rename(rng: random.Random, folder: Folder) -> bool:
    """All files of a segment, or one of them, under another offset."""
    names = _logs(folder)
    if not names:
        return False
    old = rng.choice(names)[: -len(".log")]
    number = int(old) if old.lstrip("-").isdigit() else 0
    new = rng.choice(
        (number + 1, number - 1, 1 << 31, (1 << 31) + number, 1 << 40, (1 << 63) - 1, 0, number + 500, -5, 1 << 64)
    )
    text = rng.choice((f"{abs(new):020d}", f"{abs(new):020d}", f"{abs(new):020d}", str(new), "abc", f"{new:+d}"))
    kinds = KINDS if rng.random() < 0.7 else (rng.choice(KINDS),)
    for kind in kinds:
        if folder.get(old + kind) is not None:
            folder[text + kind] = folder.pop(old + kind)
    return True


def _leftover(rng: random.Random, folder: Folder) -> bool:
    """Copy files of a segment, or rename them, as an unfinished operation leaves them."""
    names = _logs(folder)
    if not names:
        return False
    stem = rng.choice(names)[: -len(".log")]
    suffix = rng.choice((".swap", ".swap", ".swap", ".cleaned", ".deleted"))
    kinds = [kind for kind in KINDS if rng.random() < 0.8]
    move = rng.random() < 0.4
    for kind in kinds:
        data = folder.get(stem + kind)
        if data is not None:
            folder[stem + kind + suffix] = data
            if move:
                del folder[stem + kind]
    following = [name for name in names if name > stem + ".log"]
    if suffix == ".swap" and following and rng.random() < 0.5 and stem + ".log.swap" in folder:
        folder[stem + ".log.swap"] = (
            _bytes(folder, stem + ".log.swap") + _bytes(folder, following[0]) if following[0] in folder else b""
        )
    if rng.random() < 0.1:
        folder[
            rng.choice(
                (
                    "x.swap",
                    "x.cleaned",
                    "x.log.deleted",
                    "00.checkpoint.deleted",
                    "00000000000000000030.snapshot.deleted",
                )
            )
        ] = b""
    return True


def _remove(rng: random.Random, folder: Folder) -> bool:
    """A file, a segment, all files of a kind, or all from one on."""
    names = _named(folder, *KINDS, ".snapshot")
    if not names:
        return False
    name = rng.choice(names)
    stem, kind = name[:20], name[name.rindex(".") :]
    choice = rng.randrange(4)
    for other in names:
        gone = (other == name, other.startswith(stem), other.endswith(kind), other[:20] >= stem)[choice]
        if gone:
            del folder[other]
    return True


def _odd_names(rng: random.Random, folder: Folder) -> bool:
    name = rng.choice(
        (
            "5.log",
            "notes.log",
            "x.index",
            "notes.snapshot",
            "30.snapshot",
            "00000000000000000007.index",
            ".log",
            ".lock",
            "7.timeindex",
            "README",
            "-3.log",
            "00000000000000000031.snapshot",
            "00000000000000000900.snapshot",
        )
    )
    if rng.random() < 0.15:
        folder.setdefault(f"{rng.choice((0, 24, 500)):020d}.log", None)
        return True
    folder.setdefault(name, rng.choice((b"", b"\0" * 20, rng.randbytes(50))))
    return True


_DAMAGES: dict[str, Callable[[random.Random, Folder], bool]] = {
    "log": _mangle_log,
    "last log": _mangle_last_log,
    "field": lambda rng, folder: _field(rng, folder, fixed=False),
    "field with CRC": lambda rng, folder: _field(rng, folder, fixed=True),
    "entries": _whole_entries,
    "payload": _payload,
    "wrapper": _wrapper,
    "side file": _side_file,
    "index entries": _index_entries,
    "transaction index": _txn_index,
    "snapshot": _snapshot,
    "transactions": _append_transaction,
    "epochs": _epochs,
    "topic id": _topic_id,
    "renamed": _rename,
    "left over": _leftover,
    "removed": _remove,
    "odd name": _odd_names,
}
#: Bytes of a snapshot's header that its CRC does not cover.
assert HEADER.size == 10
