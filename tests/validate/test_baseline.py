"""Known findings don't fail a run, new findings do, and known findings that no longer occur are reported."""

import json
import shutil
from pathlib import Path

import pytest

from tests.support.cli import DAMAGED, PLAIN, SEGMENTS
from tests.support.cli import kseg_here as kseg

FINDINGS = DAMAGED.parent
NAME = "00000000000000000000.log"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two damaged segments and a valid one."""
    for number, source in enumerate((DAMAGED / NAME, FINDINGS / "lost-bytes" / NAME, PLAIN)):
        folder = tmp_path / "logs" / f"orders-{number}"
        folder.mkdir(parents=True)
        shutil.copy(source, folder / NAME)
    return tmp_path / "logs"


@pytest.mark.slow
def test_known_damage_does_not_fail_a_run(logs: Path, tmp_path: Path) -> None:
    """The facts stay: only the exit code and the list change."""
    known = tmp_path / "known.json"
    first = kseg("validate", logs, "--write-baseline", known, "--format", "jsonl")
    assert first.returncode == 1
    again = kseg("validate", logs, "--baseline", known, "--format", "jsonl")
    assert again.returncode == 0
    rows = [json.loads(line) for line in again.stdout.splitlines()]
    assert [
        {**row, "known": True} if row["kind"] == "finding" else row
        for row in map(json.loads, first.stdout.splitlines())
    ] == rows
    assert "0 no longer occur" in again.stderr
    table = kseg("validate", logs, "--baseline", known)
    assert "crc-mismatch" not in table.stdout
    assert "known finding" in table.stdout
    assert table.stdout.splitlines()[-1].startswith("damaged: ")


@pytest.mark.slow
def test_new_damage_fails_a_run(logs: Path, tmp_path: Path) -> None:
    """New damage in a file with known damage counts, too."""
    known = tmp_path / "known.json"
    kseg("validate", logs, "--write-baseline", known)
    damaged = logs / "orders-0" / NAME
    content = bytearray(damaged.read_bytes())
    content[-1] ^= 1
    damaged.write_bytes(content)
    run = kseg("validate", logs, "--baseline", known, "--format", "jsonl")
    assert run.returncode == 1
    errors = [row for row in map(json.loads, run.stdout.splitlines()) if row.get("severity") == "error"]
    assert sorted(row.get("known", False) for row in errors) == [False, True, True]


def test_mended_damage_is_reported(logs: Path, tmp_path: Path) -> None:
    """An entry of the baseline that no longer occurs may hide new damage one day."""
    known = tmp_path / "known.json"
    kseg("validate", logs, "--write-baseline", known)
    shutil.copy(PLAIN, logs / "orders-0" / NAME)
    run = kseg("validate", logs, "--baseline", known)
    assert run.returncode == 0
    assert "1 no longer occur" in run.stderr
    assert "crc-mismatch" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("change", ["other path", "missing", "unreadable"])
def test_findings_of_files_that_were_not_read_are_not_gone(change: str, logs: Path, tmp_path: Path) -> None:
    """Damage that a run did not look for must not be reported as repaired."""
    known = tmp_path / "known.json"
    kseg("validate", logs, "--write-baseline", known)
    files = [entry["file"] for entry in json.loads(known.read_text())["findings"]]
    if change == "other path":
        logs = logs.rename(tmp_path / "other")
    elif change == "missing":
        shutil.rmtree(logs / "orders-0")
    else:
        (logs / "orders-0" / NAME).write_bytes(b"junk" * 100)
    run = kseg("validate", logs, "--baseline", known)
    unread = len(files) if change == "other path" else sum("orders-0" in file for file in files)
    assert unread > 0
    assert f"; 0 no longer occur; {unread} of files that were not read" in run.stderr
    assert "no longer found" not in run.stderr


def test_a_side_file_without_damage_was_read(tmp_path: Path) -> None:
    """The findings of an index belong to the index, which is read with its segment."""
    folder = tmp_path / "orders-0"
    shutil.copytree(SEGMENTS / "0.10.2.2-v1-gzip-segments", folder)
    index = folder / "00000000000000000000.timeindex"
    valid, known = index.read_bytes(), tmp_path / "known.json"
    index.write_bytes(b"\xff" * 12)
    kseg("validate", folder, "--write-baseline", known)
    count = len(json.loads(known.read_text())["findings"])
    index.write_bytes(valid)
    run = kseg("validate", folder, "--baseline", known)
    assert count > 0
    assert f"; {count} no longer occur\n" in run.stderr


@pytest.mark.slow
def test_more_findings_than_are_listed_are_compared(tmp_path: Path) -> None:
    """The limit of listed findings must not let new damage pass as known."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    content = bytearray(PLAIN.read_bytes())
    size = 12 + int.from_bytes(content[8:12], "big")
    content[size - 1] ^= 1
    (folder / NAME).write_bytes(content * 30)
    known = tmp_path / "known.json"
    assert kseg("validate", folder, "--write-baseline", known, "--limit", "2").returncode == 1
    assert kseg("validate", folder, "--baseline", known, "--limit", "2").returncode == 0
    (folder / NAME).write_bytes(content * 31)
    assert kseg("validate", folder, "--baseline", known, "--limit", "2").returncode == 1


@pytest.mark.slow
def test_new_findings_have_their_range(tmp_path: Path) -> None:
    """Known findings are not in the range of the new ones, and a limit of listed findings does not cut it."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    content = bytearray(PLAIN.read_bytes())
    size = 12 + int.from_bytes(content[8:12], "big")
    content[size - 1] ^= 1
    (folder / NAME).write_bytes(content * 3)
    known = tmp_path / "known.json"
    kseg("validate", folder, "--write-baseline", known)
    (folder / NAME).write_bytes(content * 30)
    table = kseg("validate", folder, "--baseline", known, "--limit", "5").stdout
    assert f"{3 * len(content)}..{29 * len(content) + size - 1} " in table
    assert "crc-mismatch ×27 " in table
    page = tmp_path / "page.html"
    kseg("validate", folder, "--baseline", known, "--limit", "5", "--format", "html", "-o", page)
    assert f"{3 * len(content)}..{29 * len(content) + size - 1}" in page.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"kseg_baseline": 9, "findings": []}', '{"kseg_baseline": 1}'])
def test_anything_else_is_no_baseline(content: str, tmp_path: Path) -> None:
    """A wrong file is one clear line with exit code 2."""
    (tmp_path / "known.json").write_text(content)
    run = kseg("validate", PLAIN, "--baseline", tmp_path / "known.json")
    assert (run.returncode, run.stdout) == (2, "")
    assert "--write-baseline" in run.stderr


@pytest.mark.slow
def test_several_reports_come_from_one_run(logs: Path, tmp_path: Path) -> None:
    """A CI job needs a table in its log, JUnit for the server and HTML for people."""
    reports = {
        name: tmp_path / f"report.{name}" for name in ("junit", "html", "sarif", "markdown", "prometheus", "jsonl")
    }
    options = [argument for name, path in reports.items() for argument in ("--report", f"{name}={path}")]
    run = kseg("validate", logs, *options)
    assert run.returncode == 1
    for name, path in reports.items():
        alone = kseg("validate", logs, "--format", name).stdout
        if name not in ("prometheus", "html", "junit"):  # they have the time
            assert path.read_text() == alone, name
    assert 'rule="crc-mismatch",code="K201"} 1\n' in reports["prometheus"].read_text()


@pytest.mark.parametrize("report", ["junit", "junit=", "json=x", "=x"])
def test_a_wrong_report_is_refused(report: str) -> None:
    """Options are checked before the first file is read."""
    run = kseg("validate", PLAIN, "--report", report)
    assert (run.returncode, run.stdout) == (2, "")
    assert "FORMAT=FILE" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["--baseline", "known.json", "-o", "known.json"],
        ["--baseline", "known.json", "--report", "junit=known.json"],
        ["--cache", "state", "--report", "junit=./state"],
        ["--report", "junit=a", "--report", "html=a"],
        ["-o", "a", "--write-baseline", "a"],
        ["--report", "junit=-"],
        ["--write-baseline", "-"],
    ],
)
def test_no_output_replaces_another(arguments: list[str], tmp_path: Path) -> None:
    """A wrong option must not destroy the known findings or the state."""
    known = '{"kseg_baseline": 1, "findings": [\n\n]}\n'
    (tmp_path / "known.json").write_text(known)
    run = kseg("validate", *arguments, PLAIN, cwd=tmp_path)
    assert (run.returncode, run.stdout) == (2, "")
    assert (tmp_path / "known.json").read_text() == known
    assert [path.name for path in tmp_path.iterdir()] == ["known.json"]
