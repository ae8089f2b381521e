"""Checkpoints, metadata and snapshots are read and rejected as Kafka 4.3's own classes do."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kseg.findings import STARTS, Finding
from kseg.format.sidefiles.checkpoints import HARMLESS, read_checkpoint_offsets, read_leader_epochs
from kseg.format.sidefiles.metadata_files import MetaProperties, read_partition_metadata, walk_meta_properties
from kseg.format.sidefiles.registry import recognise
from kseg.format.storage.java_text import FileFault, MemoryFault, UncheckedFault
from kseg.format.storage.naming import partition_of
from tests.support import damage
from tests.support.fuzzing import cases
from tests.support.side_files import REAL, SMALL, source_of, walked

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
    # Not splitlines: the texts of exceptions have other ends of lines.
    listed_rows = map(json.loads, run_java(VERSION, str(program), [str(listed)]).rstrip("\n").split("\n"))
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
    paths += copied(tmp_path / "votes", "quorum-state", [*_votes()])
    unlike = []
    for path, row in kafkas(paths, tmp_path).items():
        entries, found = walked(path, path.read_bytes())
        reported = sorted(([*TOLD[kind_of(path)](entry)] for _, entry in entries), key=str)
        alike = bool(found) if "error" in row else not found and reported == sorted(row["entries"], key=str)
        if not alike and not _stricter(path, [finding.rule for finding in found]):
            unlike.append((path.name, path.read_bytes(), found, row))
    assert unlike == []


def _votes() -> Iterator[bytes]:
    """Yield votes of a static quorum: damaged ones, and some that other programs could write."""
    state = {
        "clusterId": "", "leaderId": 1, "leaderEpoch": 1, "votedId": -1, "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}], "data_version": 0,
    }  # fmt: skip
    line = json.dumps(state).encode()
    yield from damaged(line)
    yield json.dumps(state, indent=1).encode()
    yield from (line + after for after in (b"\nmore", b"\rmore", line, b"\0"))
    yield from (before + line for before in (b"  ", b"\n", b"\xef\xbb\xbf"))
    for name in state:
        yield json.dumps({key: value for key, value in state.items() if key != name}).encode()
        values: tuple[object, ...] = (None, "x", "1", True, -5, 2**31, 2**40, [], {}, [{}], [{"voterId": "3"}], [1])
        for value in values:
            yield json.dumps({**state, name: value}).encode()


def _stricter(path: Path, rules: list[str]) -> bool:
    """Return whether kseg is right to be stricter: Kafka ignores the names in partition.metadata and reads any clean
    shutdown file.

    The class that reads meta.properties accepts a version 0 without broker.id, such as an empty file, but the broker does
    not.
    """
    lenient = kind_of(path) in ("partition_metadata", "clean_shutdown")
    nameless = kind_of(path) == "meta_properties" and b"broker.id" not in path.read_bytes()
    return (lenient or nameless) and rules == ["metadata-malformed"]


def read_meta_properties(data: bytes) -> list[MetaProperties]:
    """Return the content as the class that reads it does. Raises FileFault."""
    found: list[Finding] = []
    read = [entry for _, entry in walk_meta_properties(source_of(data), found.append, needs_node=False)]
    if found:
        raise FileFault(found[0].facts["why"])
    return read


#: Files of text, and their readers.
TEXTS: dict[str, tuple[bytes, Callable[[bytes], list[Any]]]] = {
    "leader-epoch-checkpoint": (b"0\n3\n0 0\n2 5\n7 11\n", read_leader_epochs),
    "log-start-offset-checkpoint": (b"0\n2\nfoo 0 0\nb-ar 12 345\n", read_checkpoint_offsets),
    "partition.metadata": (
        b"version: 0\ntopic_id: 3Mb7AcgvRwuQFwjHVl29Yw\n",
        lambda data: [read_partition_metadata(data)],
    ),
    "meta.properties": (
        b"#\n#Mon\ncluster.id=c-\\u0041\ndirectory.id=Up7dRVa3RcWUBhDTcCAgRw\nnode.id=1\nversion=1\n",
        read_meta_properties,
    ),
}
#: Bytes at which the rules of Java and Python for white space, ends of lines, digits and escapes differ.
PIECES = (
    b" ", b"\n", b"\r", b"\t", b"\0", b"\x0b", b"\x0c", b"\x1c", b"\x1f", b"\x85", b"\xa0", b"-", b"+", b"0", b"1", b"9",
    b".", b":", b"=", b"_", b"#", b"!", b"\\", b"\\u0031", b"\\u12", b"\\\n ", b"\\\\", b"\xc2\xa0", b"\xc2\x85",
    b"\xe2\x80\xa8", "\u0663".encode(), "\uff15".encode(), "\U0001d7d9".encode(), b"\xef\xbb\xbf", b"\xff", b"-1", b"-0",
    b"99999999999", b"2147483647",
)  # fmt: skip


def edited(rng: random.Random, data: bytes) -> bytes:
    """Return the text after one to three random edits."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(data) + 1)
        lines = data.split(b"\n")
        end = min(len(data), at + rng.randrange(1, 6))
        data = rng.choice((
            data[:at] + rng.choice(PIECES) + data[at:],
            data[:at] + rng.choice(PIECES) + data[end:],
            data[:at] + data[end:],
            data[:at],
            data.replace(b"\n", rng.choice((b"\r", b"\r\n", b"\n\n", b" \n"))),
            b"\n".join(rng.sample(lines, len(lines))),
            b"\n".join([*lines, rng.choice(lines)]),
        ))  # fmt: skip
    return data


def outcome(path: Path, row: dict[str, Any]) -> tuple[Any, Any]:
    """Return what kseg and Kafka read of a file: the entries, or the kind of the exception."""
    try:
        read: Any = {tuple(one) for one in TEXTS[path.name][1](path.read_bytes())}
    except FileFault as fault:
        read = (
            "memory" if isinstance(fault, MemoryFault) else "unchecked" if isinstance(fault, UncheckedFault) else "io"
        )
    kafkas = row["kind"] if "error" in row else {tuple(one) for one in row["entries"]}
    # All exceptions of these files have one effect. What is too much memory depends on the JVM.
    if isinstance(read, str) and (path.name == "meta.properties" or kafkas == "memory"):
        read = kafkas if isinstance(kafkas, str) else read
    # A later line of a partition replaces an earlier one.
    if path.name == "log-start-offset-checkpoint" and isinstance(read, set):
        read = {(*place, offset) for *place, offset in read} if isinstance(kafkas, str) else read
    return read, kafkas


def _is_stricter(path: Path, finding: Finding, entries: set[tuple[Any, ...]]) -> bool:
    """Return whether kseg is right to report something in a file that Kafka's reader accepts: no broker wrote it."""
    if path.name == "meta.properties":
        return all(node is None or node < 0 for _, _, node, _ in entries)
    return finding.rule in HARMLESS or STARTS in finding.facts or finding.facts.get("why") == "a number is below 0"


def test_edited_texts_are_read_and_refused_alike(tmp_path: Path) -> None:
    """Lines, numbers, fields and escapes are Java's, and validate finds what Kafka's reader throws at."""
    rng, paths = random.Random(7), list[Path]()
    for name, (data, _) in TEXTS.items():
        paths += copied(tmp_path / name, name, [edited(rng, data) for _ in range(cases(400))])
    unlike = []
    for path, row in kafkas(paths, tmp_path).items():
        ours, theirs = outcome(path, row)
        _, found = walked(path, path.read_bytes())
        if ours != theirs or not (found if "error" in row else all(_is_stricter(path, one, theirs) for one in found)):
            unlike.append((path.name, path.read_bytes(), found, ours, row))
    assert unlike == []


NAMES = ("orders-5", "a-b-3", f"x-1.{'0f' * 16}-delete", f"a.b-0.{'0f' * 16}-future", "x-7.abc-stray")
#: Parts of names at which the patterns of Kafka and simpler ones differ.
PARTS = (
    "-",
    "+",
    ".",
    " ",
    "\u00a0",
    "0",
    "5",
    "99999999999",
    "2147483647",
    "-delete",
    "-stray",
    "x",
    "\u0663",
    "\t",
    "é",
)


def test_names_of_folders_are_parsed_alike(tmp_path: Path) -> None:
    """A broker stops at a folder whose name it cannot parse, so recovery must know exactly which these are."""
    rng, names = random.Random(7), set[str]()
    for _ in range(cases(400)):
        name = rng.choice(NAMES)
        for _ in range(rng.choice((1, 1, 2))):
            at = rng.randrange(len(name) + 1)
            end = min(len(name), at + rng.choice((0, 0, 1, 2)))
            name = name[:at] + rng.choice(PARTS) + name[end:]
        names.add(name)
    names |= {*NAMES, "x-+5", "x-1. -delete", "a b-1.abc-stray"}
    unlike = {}
    for path, row in kafkas([tmp_path / name for name in sorted(names)], tmp_path).items():
        found = partition_of(path.name)
        if (None if found is None else [[*found[:2]]]) != row.get("entries"):
            unlike[path.name] = (found, row)
    assert unlike == {}
