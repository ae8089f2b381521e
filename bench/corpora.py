"""The segments that are measured: made once, kept under ``.lab/bench/corpora``.

Kafka's own batch builder makes most of them; a broker and its clients make those of ``bench.production``. Without Java and
Maven kseg's own writer makes the former. A large corpus repeats a base with increased base offsets. The CRC of a v2 batch
does not cover the base offset, so each copy is valid.
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

from bench import production
from bench.measure import BenchError
from kseg.format.record.layout import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD, RECORD_COUNT_AT
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.indexes import IndexBuilder
from kseg.format.storage.source import open_source
from tools.lab import maven

KAFKA = "4.3.0"
HOME = maven.LAB / "bench"
CORPORA = HOME / "corpora"
#: The folder in which commands write. It is deleted at the end of a case.
REWRITTEN = HOME / "rewritten"
PROGRAMS = Path(__file__).parent / "programs"
SEGMENT = "00000000000000000000.log"
#: ``batch.size`` of the producer by default.
BATCH_SIZE = 16384

_OFFSET_AND_LENGTH = struct.Struct(">qi")
_SIZES = {"10k": 10_000, "256m": 1 << 28, "1g": 1 << 30, "4g": 1 << 32}


@dataclass(frozen=True, slots=True)
class Recipe:
    """The arguments of Corpora.java. ``batch_size`` 0 makes every record a batch.

    ``producers`` is the number of idempotent producers that take turns, 0 for none.
    """

    magic: int
    codec: str
    records: int = 800_000
    batch_size: int = BATCH_SIZE
    kind: str = "events"
    producers: int = 0


RECIPES = {
    "none": Recipe(2, "none"),
    "gzip": Recipe(2, "gzip"),
    "snappy": Recipe(2, "snappy"),
    "lz4": Recipe(2, "lz4"),
    "zstd": Recipe(2, "zstd"),
    **{f"v{magic}-{codec}": Recipe(magic, codec) for magic in (0, 1) for codec in ("none", "gzip", "snappy", "lz4")},
    "producers-5000": Recipe(2, "none", records=280_000, batch_size=4096, producers=5000),
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
LEGACY = tuple(name for name, recipe in RECIPES.items() if recipe.magic < 2)
#: All partitions that the broker has, and some of old versions next to them.
MIX = "mix"
MIXED_IN = ("v0-gzip", "v0-lz4", "v1-snappy", "v1-lz4")
PRODUCTION = CORPORA / "production"


@dataclass(frozen=True, slots=True)
class Corpus:
    """A segment, or a folder of segments, and its counts; ``bytes`` is the size of the log."""

    path: Path
    batches: int
    records: int
    bytes: int

    @property
    def logs(self) -> list[Path]:
        """Return its segments, in order."""
        return [self.path] if self.path.is_file() else sorted(self.path.rglob("*.log"))


def corpus(name: str) -> Corpus:
    """Return the corpus of that name and make it if it is missing: a recipe, or, as in ``4g-lz4``, a recipe repeated.

    A topic of ``production.TOPICS`` is the folder of its partition, MIX is the folder of all, and ``files-lz4`` is a folder
    of 16 partitions, each of one segment of 64 MiB. Raises BenchError for an unknown name, and if the writer fails.
    """
    if name == MIX or name in production.TOPICS:
        return _of_production(name)
    if name in FOLDERS:
        return _folder(name)
    if name.startswith("files-"):
        return _linked(name, 16)
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
    """Delete the files of a case: what it has written, and a repeated corpus. Recipes are kept."""
    shutil.rmtree(REWRITTEN, ignore_errors=True)
    if name not in RECIPES and name not in production.TOPICS:
        shutil.rmtree(CORPORA / name, ignore_errors=True)


def for_kafka(made: Corpus) -> list[Path]:
    """Link the files into a separate folder, because kafka-dump-log creates an empty ``.index`` next to its input."""
    folder = CORPORA / "kafka"
    shutil.rmtree(folder, ignore_errors=True)
    links = []
    for number, path in enumerate(made.logs):
        link = folder / str(number) / path.name
        link.parent.mkdir(parents=True)
        link.hardlink_to(path)
        links.append(link)
    return links


def _of_production(name: str) -> Corpus:
    """Return a topic of the broker's log directory, which is made with the first of them."""
    manifest = CORPORA / "production.json"
    key = [[topic, made.records, made.config] for topic, made in production.TOPICS.items()]
    kept = json.loads(manifest.read_text()) if manifest.exists() else {}
    if kept.get("key") != key:
        if maven.missing():
            raise BenchError(f"a broker {maven.missing()}")
        CORPORA.mkdir(parents=True, exist_ok=True)
        print(f"{PRODUCTION} is made, once: a Kafka broker and clients need 2 minutes", file=sys.stderr, flush=True)
        production.make(PRODUCTION)
        counts = {topic: production.counts(PRODUCTION / f"{topic}-0") for topic in production.TOPICS}
        kept = {"key": key, "counts": counts}
        manifest.write_text(json.dumps(kept))
        os.sync()
    if name != MIX:
        return Corpus(PRODUCTION / f"{name}-0", *kept["counts"][name])
    folder = CORPORA / MIX
    total = [0, 0, 0]
    shutil.rmtree(folder, ignore_errors=True)
    for topic in production.TOPICS:
        shutil.copytree(PRODUCTION / f"{topic}-0", folder / f"{topic}-0", copy_function=os.link)
        total = [one + other for one, other in zip(total, kept["counts"][topic], strict=True)]
    for old in MIXED_IN:
        made = corpus(old)
        (folder / f"{old}-0").mkdir()
        (folder / f"{old}-0" / SEGMENT).hardlink_to(made.path)
        total = [one + other for one, other in zip(total, (made.batches, made.records, made.bytes), strict=True)]
    return Corpus(folder, *total)


def _linked(name: str, number: int) -> Corpus:
    """Make a folder of partitions that are links to the beginning of one segment, cut at 64 MiB."""
    base = name.partition("-")[2]
    folder = CORPORA / name
    shutil.rmtree(folder, ignore_errors=True)
    for part in range(number):
        (folder / f"orders-{part}").mkdir(parents=True)
    first = repeated(corpus(base), folder / "orders-0" / SEGMENT, 1 << 26)
    for part in range(1, number):
        (folder / f"orders-{part}" / SEGMENT).hardlink_to(first.path)
    return Corpus(folder, number * first.batches, number * first.records, number * first.bytes)


def _write(path: Path, recipe: Recipe) -> dict[str, int]:
    if maven.missing():
        command = [sys.executable, str(PROGRAMS / "own_corpora.py")]
    else:
        command = ["java", "-Xmx256m", "-cp", f"{maven.libs(KAFKA)}/*", str(PROGRAMS / "Corpora.java")]
    command += [str(path), str(recipe.magic), recipe.codec, str(recipe.records), str(recipe.batch_size), recipe.kind]
    command.append(str(recipe.producers))
    done = subprocess.run(command, check=False, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise BenchError(f"the corpus's writer ended with {done.returncode}\n{done.stderr}")
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


def _folder(name: str) -> Corpus:
    """Make a partition folder. It is made again for each run, since its many files would waste space."""
    base, number, batches, indexed = FOLDERS[name]
    source = corpus(base)
    remove(name)
    return segments(source, CORPORA / name / "orders-0", number, batches, indexed=indexed)


def segments(source: Corpus, folder: Path, number: int, batches: int, *, indexed: bool) -> Corpus:
    """Write the first batches of a segment as a folder of ``number`` segments with at most ``batches`` batches each."""
    folder.mkdir(parents=True)
    written = records = size = 0
    with SegmentReader(open_source(source.path), verify_crc=False) as reader, ExitStack() as files:
        for window in reader.windows():
            columns = window.batches
            for row in range(columns.count):
                if written == number * batches:
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


def made(recipe: Recipe, path: Path) -> Corpus:
    """Return a segment that is made for one run."""
    return Corpus(path, **_write(path, recipe))


def repeated(base: Corpus, path: Path, size: int) -> Corpus:
    """Return a segment of ``size`` bytes that repeats ``base``, for one run."""
    return Corpus(path, **_repeat(base, path, size))


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
