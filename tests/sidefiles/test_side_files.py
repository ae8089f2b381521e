"""Side files: real ones are read as their broker wrote them, and no byte of a damaged one is trusted."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kseg.commands.dump.dump_items import FileStart, SideFileItem
from kseg.errors import UnreadableError
from kseg.findings import RULES, Finding
from kseg.format.sidefiles.checkpoints import checkpoint_offset, walk_leader_epochs, walk_offset_checkpoint
from kseg.format.sidefiles.index_walks import walk_offset_index, walk_time_index
from kseg.format.sidefiles.indexes import OFFSET_ENTRY, TIME_ENTRY, OffsetEntry, TimeEntry
from kseg.format.sidefiles.producer_snapshot import ENTRY, HEADER, read_snapshot
from kseg.format.sidefiles.registry import SIDE_FILES, SideFile, recognise
from kseg.format.storage.java_text import properties
from kseg.format.storage.source import Source
from kseg.library import side_entries
from kseg.report.dump_other_files import rows
from kseg.report.formats import View
from tests.support import damage
from tests.support.cli import MIXED, invoke
from tests.support.cli import kseg_here as kseg
from tests.support.fixtures import FOLDERS
from tests.support.fuzzing import cases
from tests.support.read_faults import local_faults
from tests.support.side_files import REAL, SMALL, walked


def label(path: Path) -> str:
    return f"{path.parent.name}/{path.name.lstrip('0')}"


def test_there_is_a_real_file_of_every_kind() -> None:
    """Each decoder is tested with a broker's own file."""
    assert set(SMALL) == {side.kind for side in SIDE_FILES}
    assert len(REAL) > 350


@pytest.mark.parametrize("side", SIDE_FILES, ids=lambda side: side.kind)
def test_columns_are_named_after_the_fields_of_entries(side: SideFile) -> None:
    """A row is made by position: a field that is added in one place only would shift the names."""
    (_, entry), *_ = walked(SMALL[side.kind], SMALL[side.kind].read_bytes())[0]
    assert tuple(column.name for column in side.columns) == entry._fields
    (row,) = rows([FileStart("f", None, side), SideFileItem("f", side, 7, entry)], View()).rows
    assert list(row)[:3] == ["kind", "file", "position"]
    json.dumps(row)


def test_files_of_brokers_have_no_findings() -> None:
    """Entries follow each other, each within the file, and only zeros are left over."""
    for path in REAL:
        data = path.read_bytes()
        entries, found = walked(path, data)
        assert found == [], path
        positions = [position for position, _ in entries]
        assert positions == sorted(set(positions)), path
        assert all(position < max(len(data), 1) for position in positions), path


def test_entries_of_real_files_agree_with_each_other() -> None:
    """Within a transactional partition the files have the same producers and offsets."""
    folder = next(folder for folder in FOLDERS if folder.name == "4.3.0-v2-none-transactions")
    aborted = [entry for path in folder.glob("*.txnindex") for _, entry in walked(path, path.read_bytes())[0]]
    snapshots = {int(path.stem): read_snapshot(path.read_bytes()) for path in folder.glob("*.snapshot")}
    assert len(aborted) == 4
    for end_offset, producers in snapshots.items():
        assert producers
        assert all(producer.last_offset < end_offset for producer in producers)
    assert {entry.producer_id for entry in aborted} <= {
        p.producer_id for found in snapshots.values() for p in found or ()
    }


@pytest.mark.parametrize(
    ("path", "kind", "offset", "fate"),
    [
        ("a-0/00000000000000000017.index", "offset_index_entry", 17, None),
        ("a-0/00000000000000000017.timeindex.deleted", "time_index_entry", 17, "about to be deleted"),
        ("00000000000000000017.txnindex.swap", "aborted_transaction", 17, "complete, about to replace segments"),
        ("a/leader-epoch-checkpoint.tmp", "leader_epoch", 0, "left by a write that did not finish"),
        (
            f"a-b-3.{'0f' * 16}-delete/00000000000000000000.snapshot",
            "producer_state", 0, "in a folder about to be deleted",
        ),
        ("s3://bucket/a-0/00000000000000000002.index", "offset_index_entry", 2, None),
        ("recovery-point-offset-checkpoint", "checkpoint_offset", 0, None),
        ("remote-log-index-cache/23_dhbB_gdH-be7Jb5Hgzsopg.txnindex", "aborted_transaction", 23, None),
    ],
)  # fmt: skip
def test_files_are_known_by_their_names(path: str, kind: str, offset: int, fate: str | None) -> None:
    """The names are those of Kafka."""
    known = recognise(path)
    assert known
    assert (known.side.kind, known.base_offset, known.state) == (kind, offset, fate)


@pytest.mark.parametrize(
    "path",
    [
        "00000000000000000000.log",
        "17.index",
        "17_short.index",
        "00000000000000000000-0000000000.checkpoint",
        "index",
        ".tmp",
        "",
    ],
)
def test_other_files_are_not_side_files(path: str) -> None:
    """Similar names of other files are not decoded."""
    assert recognise(path) is None


def test_zeros_at_the_end_of_a_preallocated_index_are_no_entries() -> None:
    """Zeros are entries if others follow: a page that was never written."""
    entry = OFFSET_ENTRY.pack(3, 70)
    for zeros in (1, 9000):
        data = entry + bytes(8 * zeros)
        assert walked(f"{5:020}.index", data) == ([(0, OffsetEntry(8, 70))], [])
        entries, found = walked(f"{5:020}.index", data + OFFSET_ENTRY.pack(4, 90))
        assert len(entries) == zeros + 2
        assert entries[1] == (8, OffsetEntry(5, 0))
        assert entries[-1] == (8 + 8 * zeros, OffsetEntry(9, 90))
        assert {finding.rule for finding in found} == {"index-not-increasing"}
    assert walked(f"{5:020}.index", bytes(80)) == ([], [])


def test_a_large_index_is_read_in_blocks() -> None:
    """Entries cross the ends of blocks at any byte, in a file and in a pipe with short reads."""

    class Pipe(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            return super().readinto(memoryview(buffer)[:1001])

    entries = [TimeEntry(1000 + n, 5 + n // 2) for n in range(20_000)]
    data = b"".join(TIME_ENTRY.pack(entry.timestamp, entry.offset - 5) for entry in entries)
    found: list[Finding] = []
    for source in (Source("f", io.BytesIO(data), len(data)), Source("-", Pipe(data), None)):
        assert list(walk_time_index(source, 5, found.append)) == [(12 * n, entry) for n, entry in enumerate(entries)]
    assert found == []


_TIMES = st.integers(-(2**63), 2**63 - 1)
_WORDS = st.integers(-(2**31), 2**31 - 1)


@given(st.lists(st.tuples(_TIMES, _WORDS, _WORDS), max_size=40), st.integers(0, 2**62), st.integers(1, 6))
def test_columns_of_entries_equal_the_single_entries(rows: list[tuple[int, int, int]], base: int, times: int) -> None:
    """Compiled loops over words fill and check the columns: all 64 bits and the order of entries are right."""
    rows = [row for row in rows for _ in range(times)]
    for suffix, layout, pairs, step in (
        (".index", OFFSET_ENTRY, [(a, b) for _, a, b in rows], 1),
        (".timeindex", TIME_ENTRY, [(time, a) for time, a, _ in rows], 0),
    ):
        while pairs and not any(pairs[-1]):
            pairs.pop()
        entries, found = walked(f"{base:020}{suffix}", b"".join(layout.pack(*pair) for pair in pairs))
        shift = (base, 0) if suffix == ".index" else (0, base)
        assert [tuple(entry) for _, entry in entries] == [(a + shift[0], b + shift[1]) for a, b in pairs]
        before = (-1, -step)
        broken = []
        for at, pair in enumerate(pairs):
            if min(pair) < 0 or pair[0] <= before[0] or pair[1] - before[1] < step:
                broken.append(at * layout.size)
            before = pair
        assert [finding.position for finding in found] == broken


def rules(path: Path | str, data: bytes) -> list[str]:
    return [finding.rule for finding in walked(path, data)[1]]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"0\n0\n", []),
        (b"0\n", []),
        (b"0\n1\n0 0\n", []),
        (b"0\r\n1\r\n0\t+0\r\n", []),
        (b"\n", ["checkpoint-malformed"]),
        (b"1\n0\n", ["checkpoint-malformed"]),
        (b"0\n-1\n", ["checkpoint-malformed"]),
        (b"0\n1\n", ["checkpoint-count"]),
        (b"0\n0\n0 0\n", ["checkpoint-count"]),
        (b"0\n1\n0 -1\n", ["checkpoint-malformed"]),
        (b"0\n1\n0 9223372036854775808\n", ["checkpoint-malformed"]),
        (b"0\n1\n2147483648 0\n", ["checkpoint-malformed"]),
        (b"0\n1\n0 0 0\n", ["checkpoint-malformed"]),
        (b"0\n1\n" + b"7" * 5000, ["checkpoint-malformed"]),
        (b"0\n2\n1 5\n1 6\n", ["epoch-not-increasing"]),
        (b"0\n2\n1 5\n2 5\n", ["epoch-not-increasing"]),
        (b"\0" * 4096, ["checkpoint-malformed"]),
    ],
)
def test_checkpoints_are_read_as_kafka_reads_them(data: bytes, expected: list[str]) -> None:
    """Malformed checkpoints are errors where Kafka's reader throws."""
    assert rules("leader-epoch-checkpoint", data) == expected


def test_a_line_that_cannot_be_read_does_not_hide_the_others() -> None:
    """Other lines of a damaged checkpoint are read."""
    data = b"0\n3\na 0 1\nbroken\nb 1 2\n"
    entries, found = walked("cleaner-offset-checkpoint", data)
    assert [(position, tuple(entry)) for position, entry in entries] == [(4, ("a", 0, 1)), (17, ("b", 1, 2))]
    assert [(finding.rule, finding.position) for finding in found] == [("checkpoint-malformed", 10)]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("partition.metadata", b""),
        ("partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"),
        ("partition.metadata", b"version: -1\ntopic_id: 3Mb7AcgvRwuQFwjHVl29Yw"),
        ("meta.properties", b""),
        ("meta.properties", b"junk"),
        ("meta.properties", b"node.id=1\nversion=1\x1c\x85\ncluster.id=x\n"),
        ("meta.properties", bytes(range(256))),
        ("meta.properties", b"node.id=1\n"),
        ("meta.properties", b"node.id=1\ncluster.id=a\n"),
        ("meta.properties", b"version=0\ncluster.id=a\n"),
        ("meta.properties", b"version=1\ncluster.id=a\nbroker.id=1\n"),
        ("meta.properties", b"version=1\nnode.id=1\n"),
        ("meta.properties", b"version=2\nnode.id=1\ncluster.id=a\n"),
        ("quorum-state", b""),
        ("quorum-state", b"[]"),
        ("quorum-state", b'{"data_version":true}'),
        ("quorum-state", b'{"data_version":0,"currentVoters":[1]}'),
        ("quorum-state", b"[" * 100_000),
        (".kafka_cleanshutdown", b"x"),
        (".kafka_cleanshutdown", b"\xff\xfe"),
        ("meta.properties", b"a" * (2 << 20)),
    ],
)
def test_metadata_that_cannot_be_read_is_one_finding(name: str, data: bytes) -> None:
    """One cause gives one finding."""
    assert [finding.rule for finding in walked(name, data)[1]] == ["metadata-malformed"]


def test_older_metadata_is_read_too() -> None:
    """Before 3.8 the clean shutdown file was empty, before KRaft the broker's id had another name."""
    assert walked(".kafka_cleanshutdown", b"") == ([(0, (None, None))], [])
    assert walked("meta.properties", b"#\nversion=0\nbroker.id=7\ncluster.id=x\\=y\n") == (
        [(0, (0, "x=y", 7, None))],
        [],
    )
    assert walked("meta.properties", b"broker.id=7\n") == ([(0, (0, None, 7, None))], [])
    old = {"leaderId": 1, "leaderEpoch": 2, "votedId": -1, "appliedOffset": 0, "currentVoters": [{"voterId": 1}]}
    entries, found = walked("quorum-state", json.dumps({"clusterId": "", **old, "data_version": 0}).encode())
    assert (entries, found) == ([(0, (0, 1, 2, -1, None, 0, [1]))], [])


def test_properties_are_java_s() -> None:
    """Escapes and continuations follow Java's Properties."""
    text = "# no\n! no\\\n a : b \nc=\\u0041\\t\\\\\nd e\n\nf\rg\\\n  h\\\r\n\ti = j\\"
    assert properties(text) == {"a": "b ", "c": "A\t\\", "d": "e", "f": "", "ghi": "j"}


def test_a_snapshot_is_believed_only_whole() -> None:
    """A snapshot with a wrong CRC has no entries."""
    data = SMALL["producer_state"].read_bytes()
    producers = read_snapshot(data)
    assert producers is not None
    assert len(producers) == (len(data) - HEADER.size) // ENTRY.size
    for bad in (b"", data[:5], data[:-1], data + b"\0", damage.flip(data, 30), damage.flip(data, 9)):
        assert read_snapshot(bad) is None


@pytest.mark.parametrize("kind", SMALL)
def test_every_byte_flipped_and_every_length_cut(kind: str) -> None:
    """Findings or none, never an exception; if a CRC covers the byte, a finding."""
    path = SMALL[kind]
    data = path.read_bytes()[:4096]
    for position in range(len(data)):
        for bits in (0xFF, 0x01, 0x80):
            found = rules(path, damage.flip(data, position, bits))
            assert set(found) <= set(RULES)
            assert found or kind != "producer_state"
        rules(path, data[:position])


FUZZ = settings(max_examples=cases(100))


@FUZZ
@given(st.sampled_from(sorted(SMALL)), st.binary(max_size=400), st.floats(0, 1), st.integers(0, 60))
def test_random_bytes_in_real_files(kind: str, piece: bytes, where: float, gone: int) -> None:
    """A finding has a position within the file, and a message that can be made."""
    path = SMALL[kind]
    data = path.read_bytes()[:4096]
    at = int(where * len(data))
    data = damage.splice(data, at, min(at + gone, len(data)), piece)
    for finding in walked(path, data)[1]:
        assert 0 <= (finding.position or 0) <= (finding.end or len(data)) <= len(data)
        assert finding.message


def test_a_folder_is_validated_with_its_side_files(tmp_path: Path) -> None:
    """Segments are counted as before; other files are named, and are not errors."""
    folder = next(folder for folder in FOLDERS if folder.name == "4.3.0-v2-none-transactions")
    done = kseg("validate", "--format", "jsonl", folder)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == 0
    assert (summary["files"], summary["side_files"], summary["verdict"]) == (6, 22, "sound")
    assert re.search(r"skipped 2 files.*ORIGIN.*expect\.jsonl", done.stderr)
    index = tmp_path / "00000000000000000000.index"
    index.write_bytes(b"\0" * 7)
    alone = kseg("validate", tmp_path)
    assert (alone.returncode, "K501 index-size" in alone.stdout) == (2, True)
    assert "no segment found, but 1 side file" in alone.stderr


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("name", ["table", "jsonl", "csv", "text"])
def test_every_kind_is_dumped_in_every_format(kind: str, name: str) -> None:
    """No combination of kind and format fails."""
    done = invoke("dump", "--format", name, SMALL[kind])
    assert done.exit_code == 0
    entries, _ = walked(SMALL[kind], SMALL[kind].read_bytes())
    assert len(done.stdout.splitlines()) >= len(entries)
    if name == "jsonl":
        assert [json.loads(line)["kind"] for line in done.stdout.splitlines()] == [kind] * len(entries)


@pytest.mark.slow
def test_a_dump_of_several_kinds() -> None:
    """JSON Lines mix kinds; CSV and Parquet have one set of columns, and filters select from segments."""
    segment, index = SMALL["offset_index_entry"].with_suffix(".log"), SMALL["offset_index_entry"]
    done = kseg("dump", "--format", "jsonl", segment, index, MIXED)
    kinds = [json.loads(line)["kind"] for line in done.stdout.splitlines()]
    assert list(dict.fromkeys(kinds)) == ["batch", "offset_index_entry"]
    assert kinds[-1] == "batch"
    limited = kseg("dump", "--format", "jsonl", "--limit", "1", index, segment)
    assert len(limited.stdout.splitlines()) == 1
    for refused in (("--format", "csv", segment), ("--format", "parquet", segment), ("--offsets", "1:")):
        done = kseg("dump", *refused, index)
        assert (done.returncode, done.stdout) == (2, "")
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL)
def test_hex_has_every_byte_once_and_every_entry(kind: str, tmp_path: Path) -> None:
    """Also the bytes before the first entry, and the zeros of preallocation, with one line per block."""
    path = tmp_path / SMALL[kind].name
    path.write_bytes(SMALL[kind].read_bytes() + bytes(10_000 if path.suffix == ".index" else 0))
    done = kseg("dump", "--format", "hex", path)
    assert done.returncode == 0
    found = b""
    for line in done.stdout.splitlines():
        if match := re.match(r" *(\d+)  (?:([\d,]+) bytes? of zeros|((?:[0-9a-f]{2} )*[0-9a-f]{2})(?: |$))", line):
            assert int(match[1]) == len(found)
            found += bytes(int(match[2].replace(",", ""))) if match[2] else bytes.fromhex(match[3])
    assert found == path.read_bytes()
    entries, _ = walked(path, path.read_bytes())
    heads = [line for line in done.stdout.splitlines() if line.startswith("entry at ")]
    assert [int(re.split("[ :]", head)[2]) for head in heads] == [position for position, _ in entries]


@pytest.mark.slow
@pytest.mark.parametrize("kind", SMALL)
def test_parquet_rows_are_those_of_json_lines(kind: str, tmp_path: Path) -> None:
    """Both formats have the same values."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    target = tmp_path / "rows.parquet"
    assert kseg("dump", "--format", "parquet", "-o", target, SMALL[kind]).returncode == 0
    wanted = [json.loads(line) for line in kseg("dump", "--format", "jsonl", SMALL[kind]).stdout.splitlines()]
    table = parquet.read_table(target)
    assert table.column_names == list(wanted[0])
    assert table.to_pylist() == wanted


def test_a_damaged_index_is_dumped_up_to_the_damage(tmp_path: Path) -> None:
    """Entries before the damage are printed."""
    path = tmp_path / "00000000000000000000.index"
    path.write_bytes(SMALL["offset_index_entry"].read_bytes() + b"\0\0\0")
    done = kseg("dump", "--format", "jsonl", path)
    assert done.returncode == 1
    assert done.stdout
    assert "index-size" in done.stderr


def test_the_library_reads_them_by_their_names(tmp_path: Path) -> None:
    """``side_entries`` decodes a file by its name."""
    path = SMALL["producer_state"]
    assert list(side_entries(path)) == read_snapshot(path.read_bytes())
    found: list[Finding] = []
    (tmp_path / "leader-epoch-checkpoint").write_bytes(b"0\n2\n0 0\n")
    assert list(side_entries(tmp_path / "leader-epoch-checkpoint", found.append)) == [(0, 0)]
    assert [finding.rule for finding in found] == ["checkpoint-count"]
    for unreadable in (tmp_path / "other", tmp_path / "meta.properties"):
        with pytest.raises(UnreadableError):
            list(side_entries(unreadable))


WALKS: list[Callable[..., Any]] = [walk_leader_epochs, walk_offset_checkpoint, lambda s, r: walk_offset_index(s, 0, r)]


@pytest.mark.parametrize("walk", WALKS)
def test_a_failing_read_is_a_finding(walk: Callable[..., Any]) -> None:
    """A disk that fails in the middle of a file: all entries before are printed, and the reading ends."""

    class Failing(io.BytesIO):
        def readinto(self, buffer: Any) -> int:
            count = super().readinto(buffer)
            if not count:
                raise OSError(5, "Input/output error")
            return count

    found: list[Finding] = []
    list(walk(Source("f", Failing(b"0\n1\na 0 1\n0 0\n"), 1000), found.append))
    assert found[0].rule == "read-error"


def test_a_checkpoint_is_read_once_for_all_partitions(tmp_path: Path) -> None:
    """It has a line for each partition: to read it for each took time with the square of their number."""
    path = tmp_path / "replication-offset-checkpoint"
    lines = [f"orders {number} {number * 2}" for number in range(50)]
    path.write_text("\n".join(["0", "50", *lines, ""]))
    with local_faults(path) as faults:
        found = [checkpoint_offset(str(tmp_path / f"orders-{number}"), path.name) for number in range(50)]
    assert found == [number * 2 for number in range(50)]
    assert faults.calls < 60  # its status, 50 times
    path.write_text("0\n1\norders 7 8\n")
    assert checkpoint_offset(str(tmp_path / "orders-7"), path.name) == 8
