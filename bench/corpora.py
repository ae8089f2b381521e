"""The segments that are measured: made once by Kafka's own batch builder, kept under ``.lab/bench/corpora``.

Without Java and Maven kseg's own writer makes them. A large corpus repeats a base with increased base offsets. The CRC of a
v2 batch does not cover the base offset, so each copy is valid.
"""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path

from bench.measure import BenchError
from kseg.format.record.layout import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD, RECORD_COUNT_AT
from kseg.format.segment.reader import SegmentReader
from kseg.format.sidefiles.indexes import IndexBuilder
from kseg.format.storage.source import open_source
from tools.lab import maven

KAFKA = "4.3.0"
HOME = maven.LAB / "bench"
CORPORA = HOME / "corpora"
PROGRAMS = Path(__file__).parent / "programs"
SEGMENT = "00000000000000000000.log"
#: ``batch.size`` of the producer by default.
BATCH_SIZE = 16384

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_SIZES = {"10k": 10_000, "256m": 1 << 28, "1g": 1 << 30, "4g": 1 << 32}


@dataclass(frozen=True, slots=True)
class Recipe:
    """The arguments of Corpora.java. ``batch_size`` 0 makes every record a batch."""

    magic: int
    codec: str
    records: int = 800_000
    batch_size: int = BATCH_SIZE
    kind: str = "events"


RECIPES = {
    "none": Recipe(2, "none"),
    "gzip": Recipe(2, "gzip"),
    "snappy": Recipe(2, "snappy"),
    "lz4": Recipe(2, "lz4"),
    "zstd": Recipe(2, "zstd"),
    "v0-snappy": Recipe(0, "snappy"),
    "v0-gzip": Recipe(0, "gzip"),
    "v1-lz4": Recipe(1, "lz4"),
    "v1-none": Recipe(1, "none"),
    "one-record-batches": Recipe(2, "none", batch_size=0, kind="lines"),
    "large-none": Recipe(2, "none", records=400, batch_size=0, kind="large"),
    "large-lz4": Recipe(2, "lz4", records=400, batch_size=0, kind="large"),
}
#: Partition folders: the recipe, the number of segments, the batches per segment, and whether they have indexes.
FOLDERS = {
    "2500-segments": ("one-record-batches", 2_500, 80, True),
    "10000-segments": ("one-record-batches", 10_000, 80, True),
    **{
        f"{base}-{kind}": (base, 1, sys.maxsize, kind == "indexed")
        for base in ("none", "one-record-batches")
        for kind in ("indexed", "bare")
    },
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Corpus:
    """A segment, or a folder of segments, and its counts; ``bytes`` is the size of the log."""

    path: Path
    batches: int
    records: int
    bytes: int


def corpus(name: str) -> Corpus:
    """Return the corpus of that name and make it if it is missing: a recipe, or, as in ``4g-lz4``, a recipe repeated.

    Raises BenchError for an unknown name, and if the writer fails.
    """
    if name in FOLDERS:
        return _folder(name)
    size, _, base = name.partition("-")
    path = CORPORA / name / SEGMENT
    manifest = path.with_name("corpus.json")
    if name not in RECIPES and (size not in _SIZES or base not in RECIPES):
        raise BenchError(f"no corpus is named {name}")
    # A changed recipe or writer makes the corpus again.
    key = json.dumps([_SIZES.get(size), asdict(RECIPES.get(name) or RECIPES[base]), maven.missing()])
    if manifest.exists():
        kept = json.loads(manifest.read_text())
        if kept["key"] == key:
            return Corpus(path, kept["batches"], kept["records"], kept["bytes"])
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = _write(path, RECIPES[name]) if name in RECIPES else _repeat(corpus(base), path, _SIZES[size])
    manifest.write_text(json.dumps({**counts, "key": key}))
    # Otherwise the kernel would write the corpus to disk while contenders are timed.
    os.sync()
    return Corpus(path, **counts)


def remove(name: str) -> None:
    """Delete a repeated corpus; recipes are kept."""
    if name not in RECIPES:
        shutil.rmtree(CORPORA / name, ignore_errors=True)


def for_kafka(made: Corpus) -> Path:
    """Link the file into a separate folder, because kafka-dump-log creates an empty ``.index`` next to its input."""
    link = made.path.parent / "kafka" / SEGMENT
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.hardlink_to(made.path)
    return link


def _write(path: Path, recipe: Recipe) -> dict[str, int]:
    if maven.missing():
        command = [sys.executable, str(PROGRAMS / "own_corpora.py")]
    else:
        command = ["java", "-Xmx256m", "-cp", f"{maven.libs(KAFKA)}/*", str(PROGRAMS / "Corpora.java")]
    command += [str(path), str(recipe.magic), recipe.codec, str(recipe.records), str(recipe.batch_size), recipe.kind]
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise BenchError(f"the corpus's writer ended with {done.returncode}\n{done.stderr}")
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


def _folder(name: str) -> Corpus:
    """Make a partition folder. It is made again for each run, since its many files would waste space."""
    base, segments, batches, indexed = FOLDERS[name]
    source = corpus(base)
    remove(name)
    folder = CORPORA / name / "orders-0"
    folder.mkdir(parents=True)
    written = records = size = 0
    with SegmentReader(open_source(source.path), verify_crc=False) as reader, ExitStack() as files:
        for window in reader.windows():
            columns = window.batches
            for row in range(columns.count):
                if written == segments * batches:
                    break
                if written % batches == 0:
                    files.close()
                    path = folder / f"{columns.base_offset[row]:020}.log"
                    log = files.enter_context(path.open("wb"))
                log.write(window.view[columns.at[row] : columns.at[row] + columns.size[row]])
                written += 1
                records += columns.record_count[row]
                size += columns.size[row]
    if indexed:
        for path in folder.glob("*.log"):
            _index(path)
    os.sync()
    return Corpus(folder, written, records, size)


def _index(path: Path) -> None:
    with (
        SegmentReader(open_source(path), verify_crc=False) as reader,
        path.with_suffix(".index").open("wb") as offsets,
        path.with_suffix(".timeindex").open("wb") as times,
    ):
        builder = IndexBuilder(int(path.stem), offsets, times)
        for window in reader.windows():
            builder.add(window.batches, 0, window.batches.count)
        builder.finish()


def _repeat(base: Corpus, path: Path, size: int) -> dict[str, int]:
    """Write the v2 batches of ``base`` repeatedly, up to ``size`` bytes, batch by batch (see ``measure.run``)."""
    batches = records = written = 0
    with path.open("wb") as out:
        for shift in count(0, base.records):
            with base.path.open("rb") as source:
                while header := source.read(RECORD_BATCH_OVERHEAD):
                    offset, length = _OFFSET_AND_LENGTH.unpack_from(header)
                    if written + LOG_OVERHEAD + length > size:
                        return {"batches": batches, "records": records, "bytes": written}
                    out.write(_OFFSET_AND_LENGTH.pack(offset + shift, length) + header[LOG_OVERHEAD:])
                    out.write(source.read(LOG_OVERHEAD + length - RECORD_BATCH_OVERHEAD))
                    batches += 1
                    records += int.from_bytes(header[RECORD_COUNT_AT:], "big")
                    written += LOG_OVERHEAD + length
    raise AssertionError("count() does not end")
