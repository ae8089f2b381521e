"""What Kafka 4.3's own reader says of a segment: the judge of every fixture and of every converted file."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tools.lab import maven

VERSION = "4.3.0"
PROGRAM = Path(__file__).with_name("Oracle.java")
# Everything in a partition folder that holds batches: segments, and the snapshots of KRaft.
SUFFIXES = (".log", ".checkpoint")

# The broker's answers about groups, next to the log of their offsets.
ANSWERS = "committed-offsets.json"

Row = dict[str, Any]


def expected_rows(files: Sequence[Path]) -> list[Row]:
    """The rows of the files, in their order, `file` being the base name; one JVM for all. Raises RuntimeError."""
    return [row for rows in rows_of(files).values() for row in rows]


def rows_of(files: Sequence[Path]) -> dict[Path, list[Row]]:
    """As expected_rows, but kept apart by file, so that files of one name in several folders can be judged in one run."""
    rows: dict[Path, list[Row]] = {file: [] for file in files}
    if not files:
        return rows
    named = {str(file): file for file in files}
    for line in run_java(VERSION, str(PROGRAM), ["--paths", *named]).split("\n"):
        if not line:
            continue
        row: Row = json.loads(line)
        file = named[row["file"]]
        rows[file].append({**row, "file": file.name})
    return rows


def dump_log_segments(args: Sequence[str]) -> str:
    """Return the stdout of Kafka's DumpLogSegments. Work on a copy: it creates an empty `.index` next to a time
    index without one.

    Raises RuntimeError if the program fails, as it does at a zero tail; other damage does not change its exit code.
    """
    return run_java(VERSION, "org.apache.kafka.tools.DumpLogSegments", args)


def write_expectations(folders: Iterable[Path]) -> None:
    """Writes `expect.jsonl` into each fixture folder. Raises ValueError when a folder holds no segment."""
    segments = {folder: segment_files(folder) for folder in folders}
    rows = rows_of([file for files in segments.values() for file in files])
    for folder, files in segments.items():
        if not files:
            raise ValueError(f"no segment in {folder}")
        lines = [json.dumps(row, separators=(",", ":")) + "\n" for file in files for row in rows[file]]
        (folder / "expect.jsonl").write_text("".join(lines), encoding="utf-8")


def segment_files(folder: Path) -> list[Path]:
    """Return the files of a fixture folder that hold batches, by name;

    `leader-epoch-checkpoint` lacks a suffix and isn't one.
    """
    return sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES)


def run_java(version: str, program: str, args: Sequence[str], plugins: str | None = None) -> str:
    """The stdout of a class, or of a single-file program, with the jars of one Kafka version. Raises RuntimeError."""
    jars = ":".join(f"{maven.libs(name)}/*" for name in (version, plugins) if name)
    command = ["java", *maven.JVM, "-cp", jars, program, *args]
    # Kafka's loggers lack a backend here and say so on stderr: useful only when the program fails.
    done = subprocess.run(command, check=False, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{program} ended with {done.returncode}\n{done.stderr.decode()}")
    # Not text mode: it would make line feeds of the carriage returns in keys and values.
    return done.stdout.decode()
