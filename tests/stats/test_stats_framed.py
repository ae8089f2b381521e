"""`kseg stats --as` counts the rows of `kseg dump --as`: the tests compute its numbers from dump's rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kseg.commands.dump.framed_dump import framed_rows
from kseg.commands.stats.levels import levels, stats_of
from kseg.commands.validate.validate import validate_segment
from kseg.findings import do_nothing
from kseg.format.segment.framed_files import framed_files
from kseg.format.storage.segment_files import SegmentFile, find_segments
from kseg.report.stats_rows import stats_row
from kseg.results import Settings
from kseg.text import count_of
from tests.support.cli import SEGMENTS
from tests.support.cli import kseg as kseg_process
from tests.support.cli import kseg_here as kseg
from tests.support.framed_files import FRAMED, bare

FIXTURES = SEGMENTS.parent
STREAMS = sorted((FIXTURES / "streams").glob("*/*.requests"))
Row = dict[str, Any]


def total(*paths: Path, framings: Sequence[str], deep: bool = False) -> Row:
    files = framed_files([str(path) for path in paths], framings)
    return stats_row([*levels(stats_of(files, Settings(deep=deep)), deep)][-1], 10)


def dumped(*paths: Path, framings: Sequence[str], deep: bool = False) -> list[Row]:
    files = framed_files([str(path) for path in paths], framings)
    return [row for file in files for row in framed_rows(file, do_nothing, deep=deep, verify_crc=True)]


@pytest.mark.parametrize("requests", STREAMS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_frames_and_their_batches_are_those_of_dump(requests: Path) -> None:
    """Promise 5: two commands give the same facts about what clients and brokers of every release sent each other."""
    paths, framings = (requests, requests.with_suffix(".responses")), ("requests", "responses")
    rows = dumped(*paths, framings=framings)
    frames = [row for row in rows if row["kind"] in ("request", "response")]
    row = total(*paths, framings=framings)
    counted = {(one["kind"], one["api_name"]): one["frames"] for one in row["frames"]}
    assert counted == Counter((one["kind"], one["api_name"]) for one in frames)
    assert sum(one["bytes"] for one in row["frames"]) == sum(one["size"] + 4 for one in frames) == row["file_bytes"]
    batches = [one for one in rows if one["kind"] == "batch"]
    assert row["batches"] == len(batches)
    assert row["bytes"] == sum(one["size"] for one in batches)
    records = [one for one in dumped(*paths, framings=framings, deep=True) if one["kind"] == "record"]
    assert total(*paths, framings=framings, deep=True)["records"] == len(records)


def test_a_damaged_message_has_no_size_of_a_batch(tmp_path: Path) -> None:
    """Sizes are those of what is counted: nothing was, or the sound message alone."""
    bad, good = tmp_path / "bad", tmp_path / "good"
    sound = bare(b"key", b"value")
    good.write_bytes(sound)
    bad.write_bytes(bytes([sound[0] ^ 1]) + sound[1:])
    assert total(bad, framings=["message"])["batch_size"] == {"min": None, "mean": None, "max": None}
    size = len(sound)
    assert total(bad, good, framings=["message"])["batch_size"] == {"min": size, "mean": float(size), "max": size}
    run = kseg("stats", "--as", "message", bad)
    assert (run.returncode, "batch size" in run.stdout) == (1, False)


@pytest.mark.parametrize("name", [name for name, (kind, _) in FRAMED.items() if kind in ("message", "wide-crc")])
@pytest.mark.parametrize("deep", [True, False])
def test_messages_have_the_sizes_of_the_file(name: str, deep: bool, tmp_path: Path) -> None:
    """A message without offset and size is counted without them: the sizes are those of bytes that the file has."""
    framing, data = FRAMED[name]
    path = tmp_path / "data"
    path.write_bytes(data)
    row = total(path, framings=[framing], deep=deep)
    rows = [one for one in dumped(path, framings=[framing]) if one["crc_valid"]]
    assert row["batches"] == len(rows)
    assert row["bytes"] == sum(one["size"] for one in rows)
    assert row["batch_size"]["max"] == max((one["size"] for one in rows), default=None)
    assert (row["framed_files"], row["segments"], row["max_timestamp_at"]) == (1, 0, None)
    checked = validate_segment(SegmentFile(str(path), framing=framing), Settings(deep=deep))
    assert row["lost_bytes"] == checked.summary.lost_bytes


def test_a_record_set_is_counted_as_a_segment(tmp_path: Path) -> None:
    """The bytes are the same, so the numbers are the same; only time retention does not apply."""
    log = SEGMENTS / "4.3.0-v2-none-transactions" / f"{0:020}.log"
    own = total(log, framings=["message-set"], deep=True)
    segment = stats_row([*levels(stats_of(find_segments(str(log)), Settings()), deep=True)][-1], 10)
    differing = {name for name in segment if own[name] != segment[name]}
    assert differing == {"segments", "framed_files", "max_timestamp_at"}


def test_one_process_counts_as_several() -> None:
    """Promise 5: the order of files and their numbers do not depend on the processes."""
    files = [path for path in STREAMS if path.parent.name == "4.3.0-java"]
    given = ["stats", "--as", "requests", *files, "--format", "jsonl"]
    assert kseg_process(*given, "--jobs", "1").stdout == kseg_process(*given, "--jobs", "2").stdout


@pytest.mark.slow
@pytest.mark.parametrize("framing", ["message-set", "message", "wide-crc", "requests", "responses"])
def test_bad_input_is_one_line(framing: str, tmp_path: Path) -> None:
    """An empty file, a missing file and a folder are one clear line and exit code 2."""
    empty = tmp_path / "empty"
    empty.touch()
    for path in (empty, tmp_path / "missing", tmp_path):
        done = kseg("stats", "--as", framing, path)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert path.name in done.stderr


def test_the_table_names_the_apis() -> None:
    """The largest first, as one line that a person can read."""
    path = FIXTURES / "streams" / "4.3.0-java" / "03.requests"
    shown = kseg("stats", "--as", "requests", path).stdout
    assert f"requests     4, {count_of(path.stat().st_size, 'byte')}: Produce 2, ApiVersions 1" in shown
