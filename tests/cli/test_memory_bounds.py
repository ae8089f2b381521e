"""Peak memory of every command on small files that decompress to large data."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

from kseg.format.compress.codecs import compress
from kseg.format.record.framing import batch_crc
from kseg.format.writer.records_builder import PlainRecord, build_batch

pytestmark = pytest.mark.slow

LOG = "00000000000000000000.log"
#: The maximum peak memory of a small file in bytes.
LIMIT = 300 * 1024 * 1024
PATIENCE = 600
#: Prints the exit code of a command and its peak memory. It is a process of its own because the peak of a child
#: process includes the memory of its parent at the fork, and this process can have hundreds of megabytes.
MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, timeout=float(sys.argv[1]))
print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
#: Records of an adversarial batch; with KSEG_FUZZ_CASES=38000000 as many as fit in 24 kB of zstd.
RECORDS = max(100_000, int(os.environ.get("KSEG_FUZZ_CASES", "0")))
#: Headers of one record, as many as a file of 2 kB can hold.
HEADERS = 6_000_000
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
EMPTY_RECORD = bytes.fromhex("0c000000010100")
COMMANDS = {
    "validate": ["validate"],
    "dump": ["dump", "--deep", "--format", "jsonl"],
    "csv": ["dump", "--deep", "--format", "csv"],
    "hex": ["dump", "--deep", "--format", "hex"],
    "text": ["dump", "--deep", "--format", "text"],
    "grep": ["grep", "-i", "nowhere|0+x"],
    "grep lines": ["grep", "-v", "-C", "2", "nowhere"],
    "grep rows": ["grep", "-v", "--format", "jsonl", "nowhere"],
    "stats": ["stats", "--deep"],
    "transactions": ["transactions"],
    "recovery": ["recovery"],
    "repair": ["repair", "{path}", "{out}"],
    "salvage": ["repair", "--salvage-records", "{path}", "{out}"],
    "convert": ["convert", "any-to-v2", "{path}", "{out}"],
    "table": ["dump", "--deep"],
    "parquet": ["dump", "--deep", "--format", "parquet", "-o", "{out}", "{path}"],
    "downwards": ["convert", "v2-to-v1", "--lossy", "--compression", "gzip", "{path}", "{out}"],
}


def varint(value: int) -> bytes:
    value, found = value << 1, bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def record(delta: int = 0, value: bytes = b"") -> bytes:
    body = b"\0\0" + varint(delta) + b"\1" + varint(len(value)) + value + b"\0"
    return varint(len(body)) + body


def record_with_headers(count: int) -> bytes:
    body = b"\0\0\0\1\1" + varint(count) + b"\0\1" * count
    return varint(len(body)) + body


def batch(payload: bytes, count: int, codec: str) -> bytes:
    """Return a v2 batch with this payload and count, and a valid CRC."""
    made = bytearray(build_batch([PlainRecord(0, None, None, 0)], base_offset=0)[:61])
    stored = compress(CODECS[codec], payload) if CODECS[codec] else payload
    struct.pack_into(">i", made, 8, 49 + len(stored))
    struct.pack_into(">hi", made, 21, CODECS[codec], min(count, 2**31 - 1) - 1)
    struct.pack_into(">i", made, 57, count)
    made += stored
    struct.pack_into(">I", made, 17, batch_crc(memoryview(made), 0, len(made), 2))
    return bytes(made)


def message(magic: int, offset: int, value: bytes, *, attributes: int = 0, broken: bool = False) -> bytes:
    body = bytes([magic, attributes]) + bytes(8 * magic) + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body) ^ broken) + body


def wrapper(magic: int, codec: str, *, broken: bool) -> bytes:
    count = RECORDS // 4
    inner = b"".join(message(magic, i, b"", broken=broken) for i in range(count))
    value = compress(CODECS[codec], inner, magic=magic)
    return message(magic, count - 1, value, attributes=CODECS[codec])


def nested(magic: int) -> bytes:
    made = message(magic, 0, b"x")
    for _ in range(30):
        made = message(magic, 0, compress(1, made), attributes=1)
    return made


#: A value just below the size limit of a record; the formats that stay below the memory limit print it.
LARGE_VALUE = "one value of 30 MiB"
LARGER_VALUE = "one value of 60 MiB"


CASES: dict[str, Callable[[], bytes]] = {
    **{f"empty records, {codec}": partial(batch, EMPTY_RECORD * RECORDS, RECORDS, codec) for codec in CODECS},
    **{
        f"a late fault, {codec}": partial(batch, EMPTY_RECORD * RECORDS + b"\x0e", RECORDS + 1, codec)
        for codec in CODECS
    },
    **{
        f"v{magic} messages, {codec}, broken {broken}": partial(wrapper, magic, codec, broken=broken)
        for magic in (0, 1)
        for codec in ("gzip", "snappy", "lz4")
        for broken in (False, True)
    },
    "300 MiB of zeros": lambda: batch(bytes(300 << 20), 1, "zstd"),
    LARGE_VALUE: lambda: batch(record(value=bytes(30 << 20)), 1, "zstd"),
    LARGER_VALUE: lambda: batch(record(value=bytes(60 << 20)), 1, "zstd"),
    "a count that lies": lambda: batch(EMPTY_RECORD, 2**31 - 1, "none"),
    "a count that lies, zstd": lambda: batch(EMPTY_RECORD, 2**31 - 1, "zstd"),
    "nested v0": lambda: nested(0),
    "nested v1": lambda: nested(1),
    **{
        f"{HEADERS} headers, {codec}": partial(batch, record_with_headers(HEADERS), 1, codec)
        for codec in ("none", "zstd")
    },
    "producers": lambda: b"".join(
        build_batch([PlainRecord(i, None, None, 0)], base_offset=i, producer_id=i, producer_epoch=0, base_sequence=0)
        for i in range(RECORDS // 20)
    ),
}
# A sample of the commands for each case; all of them with more cases.
ALL = [name for name in COMMANDS if name != "table"]  # a table of millions of rows takes hours
#: The commands that are tried with LARGE_VALUE, and those that are tried with a larger one.
SHOWN_WHOLE = ("table", "text", "csv", "hex", "dump", "parquet", "validate", "stats", "repair", "convert")
SHOWN_IN_PIECES = ("dump", "csv", "text", "table", "hex", "validate", "stats")


def sample(number: int, case: str) -> list[str]:
    if case == LARGE_VALUE:
        return list(SHOWN_WHOLE)
    if case == LARGER_VALUE:
        return list(SHOWN_IN_PIECES)
    return ALL if "KSEG_FUZZ_CASES" in os.environ else [ALL[number % len(ALL)], ALL[(number * 3 + 1) % len(ALL)]]


def chosen() -> Iterator[tuple[str, str]]:
    """Return the cases and commands of this run."""
    for number, case in enumerate(CASES):
        for command in sample(number, case):
            yield case, command


@pytest.mark.skipif(os.name != "posix", reason="this system does not report the peak memory of a child process")
@pytest.mark.parametrize(("case", "command"), list(chosen()))
def test_peak_memory(tmp_path: Path, case: str, command: str) -> None:
    """No command takes more than 300 MB, prints a traceback, or hangs."""
    path, out = tmp_path / LOG, tmp_path / "out.log"
    path.write_bytes(CASES[case]())
    words = COMMANDS[command]
    arguments = [word.format(path=path, out=out) for word in words] + ([] if "{out}" in words else [str(path)])
    if command == "recovery":
        arguments[-1] = str(tmp_path)
    run_within_limit(arguments, tmp_path)


#: Text files that a person names, without an end.
ENDLESS = {
    "statement": ["sql", "--file", "/dev/zero", "{path}"],
    "pipeline": ["pipeline", "plan", "/dev/zero"],
    "offsets": ["lag", "--format", "reset-csv", "--offset-map", "/dev/zero", "{path}"],
    "baseline": ["validate", "--baseline", "/dev/zero", "{path}"],
    "cache": ["validate", "--cache", "/dev/zero", "{path}"],
}


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there is no file without an end")
@pytest.mark.parametrize("case", ENDLESS)
def test_a_text_without_an_end_is_refused(tmp_path: Path, case: str) -> None:
    """The run ends with one line, within the memory."""
    (tmp_path / LOG).write_bytes(batch(record(), 1, "none"))
    complaints = run_within_limit([part.format(path=tmp_path / LOG) for part in ENDLESS[case]], tmp_path)
    assert complaints.count("\n") == 1, complaints


def run_within_limit(arguments: Sequence[str], tmp_path: Path) -> str:
    """Run a command, check its memory and that it ends as it should, and return what it wrote to stderr."""
    with (tmp_path / "stderr").open("wb") as stderr:
        measured = subprocess.run(
            [sys.executable, "-c", MEASURED, str(PATIENCE), sys.executable, "-m", "kseg", *arguments],
            stdout=subprocess.PIPE,
            stderr=stderr,
            check=True,
        )
    code, peak = map(int, measured.stdout.split())
    complaints = (tmp_path / "stderr").read_text()
    assert code in (0, 1, 2)
    assert "Traceback" not in complaints
    assert "internal error" not in complaints
    assert peak * (1 if sys.platform == "darwin" else 1024) < LIMIT
    return complaints


def increasing(count: int) -> bytes:
    return b"".join(map(record, range(count)))


@pytest.mark.parametrize("codec", CODECS)
def test_a_large_batch_is_whole_in_every_command(tmp_path: Path, codec: str) -> None:
    """A valid batch that is opened in parts is one batch for all commands, without loss and without a finding."""
    count = 70_000
    path = tmp_path / LOG
    path.write_bytes(
        batch(increasing(count), count, codec) + build_batch([PlainRecord(count, b"k", b"v", 1)], base_offset=count)
    )

    def kseg(*arguments: object) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "kseg", *map(str, arguments)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert '"batches":2,"records":70001,' in kseg("validate", "--format", "jsonl", path)
    rows = kseg("dump", "--deep", "--format", "jsonl", path).splitlines()
    assert [row.partition('"offset":')[2].partition(",")[0] for row in rows] == [str(i) for i in range(count + 1)]
    assert '"batches":2,"bytes"' in (stats := kseg("stats", "--deep", "--format", "jsonl", path))
    assert '"records_per_batch":{"min":1,"mean":35000.5,"max":70000}' in stats
    same, down, up = (tmp_path / name / LOG for name in ("same", "down", "up"))
    for target in (same, down, up):
        target.parent.mkdir()
    kseg("convert", "any-to-v2", path, same)
    assert same.read_bytes() == path.read_bytes()
    kseg("convert", "v2-to-v1", "--lossy", "--compression", "gzip", path, down)
    kseg("convert", "v1-to-v2", down, up)
    kseg("diff", path, up)
    repaired = tmp_path / "repaired.log"
    kseg("repair", path, repaired)
    assert repaired.read_bytes() == path.read_bytes()
