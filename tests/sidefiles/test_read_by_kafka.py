"""Checkpoints, metadata and snapshots are read and rejected as Kafka 4.3's own classes do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kseg.format.sidefiles.registry import recognise
from tests.support import damage
from tests.support.side_files import REAL, SMALL, walked

pytestmark = pytest.mark.kafka

#: The fields that Kafka's reader returns; indexes are compared as kafka-dump-log prints them.
TOLD: dict[str, Callable[[Any], list[Any]]] = {
    "leader_epoch": list,
    "checkpoint_offset": list,
    "partition_metadata": list,
    "meta_properties": list,
    "quorum_state": lambda entry: [entry.leader_id, entry.leader_epoch, entry.voted_id],
    "clean_shutdown": lambda entry: [entry.broker_epoch],
    "producer_state": lambda entry: [
        entry.producer_id,
        entry.producer_epoch,
        entry.last_offset,
        -1 if entry.timestamp is None else entry.timestamp,
        entry.coordinator_epoch,
        entry.current_txn_first_offset,
    ],
}


def kind_of(path: Path) -> str:
    known = recognise(str(path))
    assert known
    return known.side.kind


def kafkas(paths: list[Path], folder: Path) -> dict[Path, dict[str, Any]]:
    """Return Kafka's reading of each file, in one JVM."""
    from tools.lab.oracle import VERSION, run_java

    listed = folder / "list"
    listed.write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
    program = Path(__file__).parents[2] / "tools" / "lab" / "SideOracle.java"
    listed_rows = map(json.loads, run_java(VERSION, str(program), [str(listed)]).splitlines())
    return {Path(row["file"]): row for row in listed_rows}


def copied(folder: Path, name: str, contents: list[bytes]) -> list[Path]:
    """Copy files of one name to a folder each:

    their names decide how they are read, and Kafka's readers write next to them.
    """
    paths = []
    for number, data in enumerate(contents):
        path = folder / str(number) / name
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        paths.append(path)
    return paths


def damaged(data: bytes) -> list[bytes]:
    """Every byte flipped, every length cut."""
    flipped = [damage.flip(data, at, bits) for at in range(len(data)) for bits in (0xFF, 0x01)]
    return flipped + [data[:size] for size in range(len(data))]


def test_files_are_read_and_refused_alike(tmp_path: Path) -> None:
    """Real files give the same values; damaged ones, too, or an error if Kafka's reader throws."""
    paths: list[Path] = []
    for path in REAL:
        if kind_of(path) in TOLD:
            paths += copied(tmp_path / "real" / str(len(paths)), path.name, [path.read_bytes()])
    assert len(paths) > 140
    for kind in TOLD:
        paths += copied(tmp_path / kind, SMALL[kind].name, damaged(SMALL[kind].read_bytes()))
    unlike = []
    for path, row in kafkas(paths, tmp_path).items():
        entries, found = walked(path, path.read_bytes())
        reported = sorted(([*TOLD[kind_of(path)](entry)] for _, entry in entries), key=str)
        alike = bool(found) if "error" in row else not found and reported == sorted(row["entries"], key=str)
        if not alike and not _stricter(path, [finding.rule for finding in found]):
            unlike.append((path.name, path.read_bytes(), found, row))
    assert unlike == []


def _stricter(path: Path, rules: list[str]) -> bool:
    """Return whether kseg is right to be stricter: Kafka ignores the names in partition.metadata and reads any clean
    shutdown file.

    The class that reads meta.properties accepts a version 0 without broker.id, such as an empty file, but the broker does
    not.
    """
    lenient = kind_of(path) in ("partition_metadata", "clean_shutdown")
    nameless = kind_of(path) == "meta_properties" and b"broker.id" not in path.read_bytes()
    return (lenient or nameless) and rules == ["metadata-malformed"]
