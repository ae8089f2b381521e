"""Where the time goes: the instructions of ``kseg validate`` and of the floor per corpus, counted with callgrind."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from bench import corpora, peers
from bench.measure import BenchError, Command

#: The marker of the table in the documentation.
MARKER = "bench-instructions"
CORPORA = (
    "none", "lz4", "headers-none", "headers-lz4", "avro", "transactions", "compacted", "log-append-time", "v0-gzip",
    "v0-snappy", "v1-lz4",
)  # fmt: skip
_LINE = re.compile(r"^ *([\d,]+) \( *[\d.]+%\) +(.*)$")
# The first that matches the function or its library.
_KINDS = {
    "decompression": re.compile(r"cramjam|isal|zstd|lz4/|snappy|inflate"),
    "CRC": re.compile(r"crc"),
    "splitting records": re.compile(
        r"default_records|legacy_records|format/record/default_records|varints|memory\.|framing"
    ),
    "checks": re.compile(r"checks/|segment_facts|index_columns|transaction_events"),
}
_HEAD = (
    "| corpus | instructions | floor | times | start | decompression | CRC | splitting records | checks | Python between |",
    "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
)


def table(names: Iterable[str], report: Callable[[str], None]) -> str:
    """Return the table in Markdown. ``report`` receives each row. Raises BenchError without valgrind."""
    if shutil.which("callgrind_annotate") is None:
        raise BenchError("callgrind_annotate is not on PATH: install valgrind")
    start = sum(_counts(_validate("10k-one-record-batches")).values())
    lines = [*_HEAD]
    for name in names:
        ours, floor = _counts(_validate(name)), sum(_counts(peers.floor(corpora.corpus(name))).values())
        total = sum(ours.values())
        rest = max(ours["other"] - start, 0)
        shares = [start, *(ours[kind] for kind in _KINDS), rest]
        cells = [name, f"{total / 1e9:.2f} billion", f"{floor / 1e9:.2f} billion", f"{total / floor:.2f}"]
        lines.append("| " + " | ".join([*cells, *(f"{share / total:.0%}" for share in shares)]) + " |")
        report(lines[-1])
    return "\n".join(lines) + "\n"


def _validate(name: str) -> Command:
    return peers.kseg("kseg", "validate", "--jobs", "1", str(corpora.corpus(name).path))


def _counts(command: Command) -> Counter[str]:
    """Run the command in callgrind and return its instructions by kind."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "callgrind")
        # Scripts are run by the Python that their first line names: valgrind follows it.
        tool = ("valgrind", "--tool=callgrind", f"--callgrind-out-file={out}")
        done = subprocess.run((*tool, *command.argv), capture_output=True, check=False, text=True)
        if done.returncode:
            raise BenchError(f"{command.name} ended with {done.returncode} in callgrind: {done.stderr[-500:]}")
        annotate = ("callgrind_annotate", "--threshold=100", str(out))
        found = subprocess.run(annotate, capture_output=True, check=True, text=True).stdout
    counts: Counter[str] = Counter()
    for line in found.splitlines():
        matched = _LINE.match(line)
        if matched and not matched[2].startswith("PROGRAM TOTALS"):
            kind = next((name for name, pattern in _KINDS.items() if pattern.search(matched[2])), "other")
            counts[kind] += int(matched[1].replace(",", ""))
    return counts
