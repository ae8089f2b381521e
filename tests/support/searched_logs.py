"""Random segments with texts and JSON in all versions and codecs, and random queries, for the oracles of searches."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

from kseg.commands.grep.matches import FIELDS, GrepQuery, parse_json_path
from kseg.format.segment.records_chunk import Header
from kseg.format.segment.row_filter import HasHeader, KeyIsOneOf, ValueIsNull
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper

WORDS = (
    "alpha",
    "Alpha",
    "ALPHA",
    "beta",
    "kiss",
    "KISS",
    "ſtraße",
    "größe",
    "日本語",
    "İi",
    "a.b",
    "x",
    "",
    "17",
    "-3",
    "null",
)
PATTERNS = (
    "alpha", "ALPHA", "a.b", r"a\.b", "^alpha$", "^", "$", "be?ta", "(alpha|beta)", "(?i:kiss)", "k+i", "[ab]lpha",
    r"\d+", r"\w+ss", "ß", "größe", "(?:al){1,2}pha", "(?=al)alpha", "(?!x)beta", "日.語", r"\\u00", '"id": ?17', "a{0}beta",
    "x?", "straße|kiss", "(?i)straße", "(?-i:beta)", "nowhere", ".", r"(\w)\1", "(?s).*beta", "\udcff", "(?>alpha)", "i",
    r"\d{2,}", r"\d\d\d", r"[a-z]{3}\W", r"\w{4,6}\s\w", r"[^\W\d]{2}\d?[k-z]{2}", r"(?:\w\w){2,}\S\s", r"[a-b]{2,3}.p",
    r"\D{3}=?-\d", r"(?i:[i-k]{2}[s-t]{2})", r"[^a]l[^b]h", r"[ſ-ƀ]\w{3}", r"(?a:\w{3}\W)", r"\w+@?\w+", r"\s+\w+\s",
    r"(?i)[ſ]\w[r-s]", r"[\udc80-\udcff]{2}", r".{3}[\u6708-\u9fff]", r"[^b]{3}", r"a\ud800b",
)  # fmt: skip
JSON_PATHS = (
    "$", "$.id", "$.id=17", "$.name=alpha", "$.name=größe", "$..id=-3", "$.tags[0]", "$.tags[-1]=beta", "$.*", "$..*",
    "$['a.b']", "$.tags[*]=x", "$..name", "$.nested.id", "$.nested=null", "$.ok=true", "$.price=1.5", "$.name=", "$.id=0",
    "$.tags=[\"x\"]",
)  # fmt: skip
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def segment(random: Random) -> bytes:
    """Return a segment of some dozen batches, often with damage."""
    offset, parts = 0, []
    kinds = random.choice((("v2",), ("v0", "v1", "w0", "w1"), ("v0", "w1", "v2")))
    codec = random.choice(_CODECS)
    for _ in range(random.choice((1, 5, 40))):
        codec = random.choice(_CODECS) if random.random() < 0.2 else codec
        kind = random.choice(kinds)
        count = 1 if kind in ("v0", "v1") else random.choice((1, 3, 20))
        records = [random_record(random, offset + n, kind) for n in range(count)]
        offset += count
        if kind == "v2":
            parts.append(build_batch(records, base_offset=records[0].offset, compression=codec))
        elif kind in ("v0", "v1"):
            parts.append(build_message(records[0], magic=int(kind[1])))
        else:
            legacy = codec if codec not in ("none", "zstd") else "gzip"
            parts.append(build_wrapper(records, magic=int(kind[1]), compression=legacy))
    data = bytearray(b"".join(parts))
    for _ in range(random.choice((0, 0, 1, 3))):
        at = random.randrange(len(data))
        data[at : at + random.choice((1, 1, 30))] = random.randbytes(random.choice((1, 1, 0, 30)))
        if not data:
            break
    return bytes(data[: len(data) - random.choice((0, 0, 7))])


def written(folder: Path, random: Random) -> Path:
    """Write a segment that has at least one byte."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{0:020d}.log"
    path.write_bytes(segment(random) or b"x")
    return path


def query(random: Random) -> GrepQuery:
    """Return a query of patterns, of a path into JSON, of a key, or of several of them."""
    kind = random.choice(("pattern", "pattern", "pattern", "json", "both", "key"))
    patterns = tuple(random.sample((*PATTERNS, *filter(None, WORDS)), random.choice((1, 1, 2))))
    keys = random.sample((None, b"", b"alpha", "größe".encode(), b"\xff\x00", b"key-3"), random.choice((1, 1, 2)))
    has_key = kind == "key" or random.random() < 0.1
    paths = random.sample(JSON_PATHS, random.choice((1, 1, 2))) if kind in ("json", "both") else ()
    header = HasHeader(random.choice(WORDS).encode(), random.choice(WORDS).encode())
    headers = (header,) if random.random() < 0.15 else ()
    return GrepQuery(
        patterns=patterns if kind in ("pattern", "both") else (),
        literal=random.random() < 0.3,
        ignore_case=random.random() < 0.4,
        whole=random.random() < 0.2,
        invert=random.random() < 0.3 and kind != "key",
        fields=random.choice((FIELDS, FIELDS, ("key",), ("value",), ("header-key", "header-value"), ("value", "key"))),
        json_paths=tuple(map(parse_json_path, paths)),
        conditions=(*([KeyIsOneOf(tuple(keys))] * has_key), *([ValueIsNull()] * (random.random() < 0.05)), *headers),
    )


def random_record(random: Random, offset: int, kind: str) -> PlainRecord:
    """Return a record with words and JSON; those of versions 0 and 1 have no headers."""
    named = tuple(
        Header(random.choice(WORDS), random.choice((None, *(word.encode() for word in WORDS))))
        for _ in range(random.choice((0, 0, 1, 3)))
    )
    key = random.choice((None, b"", b"\xff\x00", b"key-%d" % random.randrange(5), random.choice(WORDS).encode()))
    timestamp = -1 if kind[1] == "0" else 1_700_000_000_000 + offset
    return PlainRecord(offset, key, _value(random), timestamp, named if kind == "v2" else ())


def _value(random: Random) -> bytes | None:
    word = random.choice(WORDS)
    kind = random.random()
    if kind < 0.1:
        return None
    if kind < 0.2:
        return random.randbytes(random.choice((0, 5, 40)))
    if kind < 0.5:
        return " ".join(random.choices(WORDS, k=random.choice((1, 2, 8)))).encode()
    found: dict[str, Any] = {
        "name": word,
        "id": random.choice((17, -3, 0, 17.0, "17")),
        "tags": random.choices(WORDS, k=2),
    }
    found |= {"nested": random.choice((None, {"id": 17, "name": word}, [[]]))} if kind < 0.8 else {}
    found |= {"a.b": True, "ok": True, "price": 1.5} if kind < 0.7 else {}
    text = json.dumps(found, ensure_ascii=random.random() < 0.5)
    if random.random() < 0.2:
        text = text.replace("a", "\\u0061", 1)
    return text.encode()[: random.choice((None, None, None, -1))]
