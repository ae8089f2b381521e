"""`--format text` prints the lines of kafka-dump-log for every segment and index of a real broker."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest

from kseg.commands.dump.dumped_rows import dump_side_file
from kseg.format.sidefiles.registry import recognise
from kseg.report import dump_other_files as side_output
from kseg.report.dump_report import write_text
from kseg.report.formats import View
from tests.support.fixtures import FOLDERS, dump_segment

pytestmark = pytest.mark.kafka

# kafka-dump-log fails at a zero tail with a stack trace, so those files can't be compared.
PREALLOCATED = ("preallocated", "log-dir")


def logs() -> list[Path]:
    return [
        path
        for folder in FOLDERS
        if not any(word in folder.name for word in PREALLOCATED)
        for path in sorted(folder.glob("*.log"))
    ]


def lines_by_file(text: str) -> dict[str, list[str]]:
    """Return the tool's output for several files, split at its headings."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n"):
        if line.startswith("Dumping "):
            found[line.removeprefix("Dumping ")] = current = [line]
        elif line:
            current.append(line)
    return found


@pytest.mark.parametrize("deep", [False, True], ids=["shallow", "deep"])
def test_text_equals_kafka_dump_log(tmp_path: Path, deep: bool) -> None:
    """The tool creates an empty index next to its input, so it gets copies."""
    from tools.lab.oracle import dump_log_segments

    copies: list[str] = []
    for path in logs():
        copy = tmp_path / path.parent.name / path.name
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(path, copy)
        copies.append(str(copy))
    arguments = ["--print-data-log"] if deep else []
    wanted = lines_by_file(dump_log_segments([*arguments, "--files", ",".join(copies)]))
    assert len(wanted) == len(copies) > 80
    for copy_name in copies:
        out = (tmp_path / "out").open("w+", encoding="utf-8", newline="")
        with out:
            view = View(deep=deep, encoding="auto", terminal=False)
            write_text(dump_segment(copy_name, deep=deep, headings=True), out, view)
            out.seek(0)
            printed = [line for line in out.read().split("\n") if line]
        assert printed == wanted[copy_name], copy_name


def side_files() -> list[Path]:
    """Return the side files that the tool knows, except in folders where it fails at zeros in the log."""
    return [
        path
        for folder in FOLDERS
        if not any(word in folder.name for word in PREALLOCATED)
        for path in sorted(folder.iterdir())
        if (known := recognise(str(path))) and known.side.line
    ]


def test_text_of_side_files_equals_kafka_dump_log(tmp_path: Path) -> None:
    """Offset, time and transaction indexes and producer snapshots, each with its segment, which the tool needs."""
    from tools.lab.oracle import dump_log_segments

    copies: list[str] = []
    for path in side_files():
        target = tmp_path / path.parent.name
        if not target.exists():
            shutil.copytree(path.parent, target)
        copies.append(str(target / path.name))
    wanted = lines_by_file(dump_log_segments(["--files", ",".join(copies)]))
    assert len(wanted) == len(copies) > 280
    for copy in copies:
        known = recognise(copy)
        assert known
        out = io.StringIO()
        view = View(deep=False, encoding="auto", terminal=False)
        side_output.write_text(dump_side_file(copy, known), out, view)
        assert [line for line in out.getvalue().split("\n") if line] == wanted[copy], copy
