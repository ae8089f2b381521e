"""``kseg dump --follow`` prints each complete appended batch once and in order; Ctrl-C ends it with exit code 0."""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.dump.follow import Follower
from kseg.findings import do_nothing
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cleaned_log import CleanedLog
from tests.support.cli import kseg
from tests.support.fixtures import SEGMENTS
from tests.support.following import following, offsets
from tests.support.transactional_logs import ABORT, COMMIT, CONTROL, TRANSACTIONAL, batch
from tests.support.writer import Writer

pytestmark = pytest.mark.slow


def test_rows_come_as_they_are_written_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    """Incomplete batches, new segments, and a segment that is deleted after it was printed."""
    writer = Writer(tmp_path / "orders-3", segment_batches=3)
    writer.append(2)
    with following("--deep", "--format", "jsonl", writer.folder) as (running, lines):
        assert offsets(lines, 8) == list(range(8))
        writer.append(1, torn=True)
        time.sleep(0.5)
        assert lines.empty()
        writer.append(2, torn=True)
        assert offsets(lines, 8) == list(range(8, 16))
        (writer.folder / f"{0:020d}.log").unlink()
        writer.append(4)
        assert offsets(lines, 20) == list(range(16, 36))
        running.send_signal(signal.SIGINT)
        assert running.wait(300) == 0
        assert running.stderr is not None
        assert running.stderr.read().decode() == ""
        assert lines.empty()


@pytest.mark.parametrize("zeros", ["at first", "appended later"])
def test_batches_that_are_written_over_zeros_are_shown(zeros: str, tmp_path: Path) -> None:
    """With ``log.preallocate`` the size of a segment does not change as a broker writes, also in a part of a batch."""
    path = tmp_path / f"{0:020}.log"
    data = [build_batch([PlainRecord(n, None, b"value", 1_700_000_000_000)]) for n in range(5)]
    size = len(data[0])
    path.write_bytes(data[0] + data[1] + bytes(5000 if zeros == "at first" else 0))
    with following("--deep", "--format", "jsonl", path) as (running, lines):
        assert offsets(lines, 2) == [0, 1]
        with path.open("r+b") as out:
            if zeros == "appended later":
                out.seek(0, os.SEEK_END)
                out.write(bytes(5000))
                out.flush()
                time.sleep(0.5)
            for number in (2, 3, 4):
                for begin, end in ((0, 30), (30, size)):
                    out.seek(number * size + begin)
                    out.write(data[number][begin:end])
                    out.flush()
                    time.sleep(0.3)
                assert offsets(lines, 1) == [number]
        running.send_signal(signal.SIGINT)
        assert running.wait(300) == 0
        assert lines.empty()


def test_a_limit_ends_it_and_columns_are_named_once(tmp_path: Path) -> None:
    """As with tail -f and head: a script can wait for the next N rows."""
    writer = Writer(tmp_path / "orders-3")
    writer.append(1)
    with following("--format", "csv", "--limit", 2, writer.path) as (running, lines):
        assert lines.get(timeout=300).startswith(b"kind,")
        assert b",0,3," in lines.get(timeout=300)
        writer.append(1)
        assert b",4,7," in lines.get(timeout=300)
        assert running.wait(300) == 0
        assert lines.empty()


def test_damage_is_reported_when_it_is_certain(tmp_path: Path) -> None:
    """A batch that may be incomplete is reported only after a valid batch follows. The exit code is that of any dump."""
    path = tmp_path / "00000000000000000000.log"
    data = (SEGMENTS.parent / "findings" / "crc-mismatch" / path.name).read_bytes()
    path.write_bytes(data[:743])  # the second half of a batch with a wrong CRC
    with following("--deep", "--format", "jsonl", path) as (running, lines):
        first = offsets(lines, 12)
        time.sleep(0.5)
        assert (first, lines.empty()) == (list(range(12)), True)
        path.write_bytes(data)
        assert offsets(lines, 1)[0] > 12
        time.sleep(0.3)
        running.send_signal(signal.SIGINT)
        assert running.wait(300) == 1
        assert running.stderr is not None
        assert b"crc-mismatch at byte 475" in running.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["-o", "rows.jsonl"], "--follow cannot be combined with --output: it writes segments to stdout"),
        (["--format", "parquet"], "--follow cannot be combined with --format parquet: it writes segments to stdout"),
    ],
)
def test_inputs_that_cannot_be_followed_are_rejected(arguments: list[str], line: str, tmp_path: Path) -> None:
    """A file that is replaced atomically can't grow, and the size of a pipe is unknown."""
    done = kseg("dump", "--follow", *arguments, SEGMENTS / "4.3.0-v2-none", cwd=tmp_path)
    assert (done.returncode, line in done.stderr) == (2, True)
    piped = kseg("dump", "--follow", "-")
    assert piped.returncode == 2
    assert "--follow accepts local files only" in piped.stderr or "standard input is empty" in piped.stderr
    missing = kseg("dump", "--follow", tmp_path / "missing.log")
    assert (missing.returncode, "missing.log: No such file" in missing.stderr) == (2, True)


def test_a_truncated_log_is_reported(tmp_path: Path) -> None:
    """A follower that truncates removes rows that were printed: this is reported once, and following continues."""
    writer = Writer(tmp_path / "orders-3")
    writer.append(3)
    reported: list[str] = []
    shown: list[tuple[Any, ...]] = []

    def show(*place: Any) -> Iterator[Any]:
        shown.append(place[1:])
        yield from ()

    rows = Follower([str(writer.folder)], show, reported.append).rows()
    whole = writer.path.stat().st_size
    assert next(rows) is None
    os.truncate(writer.path, whole // 3)
    assert next(rows) is next(rows) is None
    writer.path.write_bytes(writer.path.read_bytes() * 2)
    assert next(rows) is None
    assert shown == [(0, whole), (whole // 3, whole // 3 * 2)]
    assert reported == [
        f"{writer.path}: truncated from {whole:,} to {whole // 3:,} bytes: rows after that byte no longer exist"
    ]


@pytest.mark.parametrize("more", [0, 1])
def test_a_log_that_is_written_again_is_reported(more: int, tmp_path: Path) -> None:
    """A follower truncates and fetches batches of the same sizes between two looks: size and inode tell nothing."""
    path = tmp_path / "orders-3" / f"{0:020}.log"
    path.parent.mkdir()
    first, old, *new = (
        batch(at, at, [(at, b"key", value)]) for at, value in ((0, b"a"), (1, b"old"), (1, b"new"), (2, b"c"))
    )
    path.write_bytes(first + old)
    reported: list[str] = []
    shown: list[tuple[int, int]] = []

    def show(path: str, start: int, end: int) -> Iterator[Any]:
        shown.append((start, end))
        yield from ()

    rows = Follower([str(path.parent)], show, reported.append).rows()
    next(rows)
    time.sleep(0.05)  # the next time of modification
    with path.open("r+b") as out:
        out.seek(len(first))
        out.write(b"".join(new[: 1 + more]))
    assert next(rows) is next(rows) is None
    whole = len(first + old)
    assert shown == [(0, whole), (whole, path.stat().st_size)][: 1 + more]
    assert reported == [f"{path}: truncated and written again: below offset 2 can be other rows, which are not shown"]


def test_a_topic_that_is_made_again_is_shown_from_its_first_row(tmp_path: Path) -> None:
    """Its offsets begin anew: rows below the last shown offset are other ones."""
    writer = Writer(tmp_path / "orders-3")
    writer.append(5)
    reported: list[str] = []
    shown: list[tuple[int, int]] = []

    def show(path: str, start: int, end: int) -> Iterator[Any]:
        shown.append((start, end))
        yield from ()

    rows = Follower([str(tmp_path)], show, reported.append).rows()
    next(rows)
    writer.folder.rename(tmp_path / f"orders-3.{'0' * 32}-delete")
    assert next(rows) is None
    again = Writer(tmp_path / "orders-3")
    again.append(2)
    assert next(rows) is next(rows) is None
    assert shown[1:] == [(0, again.path.stat().st_size)]
    assert reported == [f"{writer.folder}: deleted and made again: all its rows follow"]


@pytest.mark.parametrize("when", ["between two looks", "while a row waits"])
def test_offsets_that_are_deleted_before_they_are_shown_are_reported(when: str, tmp_path: Path) -> None:
    """Retention deletes what a slow reader has not shown: the log starts after the next offset. Other gaps prove nothing."""
    writer = Writer(tmp_path / "orders-3", segment_batches=1)
    writer.append(2)
    reported: list[str] = []
    shown: list[str] = []

    def delete(*offsets: int) -> None:
        for offset in offsets:
            (writer.folder / f"{offset:020}.log").unlink()

    def show(path: str, start: int, end: int) -> Iterator[Any]:
        shown.append(os.path.basename(path))
        if when == "while a row waits" and len(shown) == 3:
            delete(0, 4, 8, 12, 16)
        yield "row"

    rows = Follower([str(writer.folder)], show, reported.append).rows()
    assert [next(rows) for _ in range(3)] == ["row", "row", None]
    writer.append(4)
    if when == "between two looks":
        delete(0, 4, 8, 12, 16)
    while next(rows) is not None or next(rows) is not None:
        pass
    first = 8 if when == "between two looks" else 12
    assert shown == [f"{offset:020}.log" for offset in (0, 4, 8, 20) if offset != 8 or first == 12]
    assert reported == [f"{writer.folder}: deleted before they were shown: offsets {first}..19"]
    writer.append(3)
    delete(28)
    assert [next(rows) for _ in range(3)] == ["row", "row", None]
    delete(20)
    assert next(rows) is next(rows) is None
    assert len(reported) == 1


def test_a_truncation_removes_the_markers(tmp_path: Path) -> None:
    """The state of a transaction is that of the log as it is now: a new leader can have another marker for it."""
    path = tmp_path / "t-0" / f"{0:020}.log"
    path.parent.mkdir()
    kept, second = (batch(at, at, [(at, b"key", b"value")], TRANSACTIONAL, 5, 0, at) for at in range(2))

    def marker(offset: int, kind: int) -> bytes:
        record = (offset, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
        return batch(offset, offset, [record], TRANSACTIONAL | CONTROL, 5, 0)

    path.write_bytes(kept + second + marker(2, ABORT))
    with following("--deep", "--no-control", "--format", "jsonl", path.parent) as (_, lines):
        before = [json.loads(lines.get(timeout=300)) for _ in range(2)]
        os.truncate(path, len(kept))
        time.sleep(1)
        with path.open("ab") as out:
            out.write(second + marker(2, COMMIT))
        after = json.loads(lines.get(timeout=300))
    assert [(row["offset"], row["transaction_state"]) for row in (*before, after)] == [
        (0, "aborted"),
        (1, "aborted"),
        (1, "committed"),
    ]


def test_each_record_comes_once_beside_a_cleaner(tmp_path: Path) -> None:
    """A reader that lags, or waits for its pipe, finds segments merged, truncated and replaced: by offset, not by byte."""
    for seed in range(60):
        chance = random.Random(seed)
        log = CleanedLog(tmp_path / str(seed) / "orders-0", chance)
        log.append(6)
        written: list[int] = []

        def show(path: str, start: int, end: int, written: list[int] = written) -> Iterator[Any]:
            data = Path(path).read_bytes()[:end]
            while start < end:  # each range is whole batches
                base_offset, size = struct.unpack_from(">qi", data, start)
                written += range(base_offset, base_offset + 1 + int.from_bytes(data[start + 23 : start + 27]))
                start += 12 + size
            assert start == end
            yield "rows"

        rows = Follower([str(tmp_path / str(seed))], show, do_nothing).rows()
        for _ in range(30):
            next(rows)
            chance.choice((log.clean, log.truncate, partial(log.append, 1), do_nothing))()
        while next(rows) is not None or next(rows) is not None:
            pass
        assert len(written) == len(set(written)), seed
        assert set(log.offsets()) <= set(written), seed


def test_the_moment_of_a_replacement_loses_no_record(tmp_path: Path) -> None:
    """A cleaner renames the old files before the new ones: a file that is missing for a moment is not passed over."""
    for seed in range(30):
        log = CleanedLog(tmp_path / str(seed) / "orders-0", random.Random(seed))
        log.append(8)
        written: set[str] = set()

        def show(path: str, start: int, end: int, written: set[str] = written) -> Iterator[Any]:
            written.add(os.path.basename(path))
            yield "rows"

        rows = Follower([str(tmp_path / str(seed))], show, do_nothing).rows()
        next(rows)
        log.clean(partial(list, islice(rows, 9)))
        while next(rows) is not None or next(rows) is not None:
            pass
        logs = (tmp_path / str(seed) / "orders-0").glob("*.log")
        assert {path.name for path in logs if path.stat().st_size} <= written, seed
