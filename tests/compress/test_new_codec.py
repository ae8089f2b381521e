"""A codec is one row: framing, the header scan, the readers, the command line and the writers read it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Adds codec 5, whose payload is a signature and the inverted bytes, and tries everything that knows codecs.
_PROGRAM = """
import json, sys
from pathlib import Path
from kseg.format.compress import codecs
from kseg.format.compress.codecs import CodecError, DecompressionLimit

def compress(data, magic, level):
    return b"INV5" + bytes(byte ^ 0xFF for byte in bytes(data))

def decompress(data, limit, magic, quirks, room):
    if bytes(data[:4]) != b"INV5":
        raise CodecError("inv5: no signature")
    if len(data) - 4 > limit:
        raise DecompressionLimit(limit)
    return bytes(byte ^ 0xFF for byte in bytes(data[4:]))

def decompress_pieces(view, magic):
    yield decompress(view, len(view), magic, None, None)

codecs.CODECS[5] = codecs.Codec(5, "inv5", "__main__", b"INV5", first_magic=int(sys.argv[2]))

from kseg.cli.main import main
from kseg.format.record import framing
from kseg.format.segment import batch_evidence
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_wrapper

folder = Path(sys.argv[1])
segment = folder / "00000000000000000000.log"

def record(offset):
    return PlainRecord(offset=offset, timestamp=1, key=b"k", value=b"v%d" % offset)

first, last = (build_batch([record(offset)], compression="inv5") for offset in (0, 2))
middle = build_wrapper([record(1)], magic=1, compression="inv5") if sys.argv[2] == "0" else build_batch([record(1)])
segment.write_bytes(first + middle + last)

def run(*arguments):
    try:
        main(list(map(str, arguments)))
    except SystemExit as end:
        return end.code or 0

assert run("validate", segment, "-o", folder / "found") == 0, (folder / "found").read_text()
assert run("dump", "--deep", "--format", "jsonl", segment, "-o", folder / "rows") == 0
rows = [json.loads(line) for line in (folder / "rows").read_text().splitlines()]
assert [row["value"] for row in rows if row["kind"] == "record"] == ["v0", "v1", "v2"]
assert run("dump", "--format", "jsonl", segment, "-o", folder / "batches") == 0
rows = [json.loads(line) for line in (folder / "batches").read_text().splitlines()]
assert rows[0]["compression"] == "inv5" == rows[-1]["compression"]

# The batches are found again after damage, and where a header's size or magic is wrong.
data = bytearray(b"\\xff" * 100 + first + middle + last)
for batch, at in ((first, 100), (middle, 100 + len(first)), (last, 100 + len(first) + len(middle))):
    assert framing.plausible(data, at, len(data), 1 << 20)
    assert batch[16] < 2 or batch_evidence.is_likely_header(data, at, len(data))
assert framing.find_signature(data, 0, len(data), 1 << 20) == 100

# Large batches are read in pieces.
assert b"".join(codecs.decompress_pieces(5, compress(b"abc", 2, None), limit=10)) == b"abc"

# Other codecs are converted to it, and it to others.
copy, back, old = (folder / name / segment.name for name in ("copy", "back", "old"))
for path in (copy, back, old):
    path.parent.mkdir()
assert run("convert", "any-to-v2", "--compression", "inv5", segment, copy) == 0
assert b"INV5" in copy.read_bytes()
assert run("convert", "v2-to-v2", "--compression", "gzip", copy, back) == 0
assert b"INV5" not in back.read_bytes()
assert run("convert", "v2-to-v1", "--lossy", "--compression", "inv5", copy, old) == (2 if int(sys.argv[2]) else 0)
print("done")
"""


@pytest.mark.parametrize("first_magic", [0, 2])
def test_a_codec_is_added_in_one_place(tmp_path: Path, first_magic: int) -> None:
    """A limit like ``codec > 4`` in a reader would let every batch of a new codec pass for damage."""
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path), str(first_magic)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.endswith("done\n"), done.stdout + done.stderr
