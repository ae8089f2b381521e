"""A new output format, command or Spark view is one row of a table: each test adds one at run time and uses it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kseg.cli.main import COMMANDS
from kseg.report import formats
from tests.support.cli import invoke
from tests.support.fixtures import SEGMENTS

ROOT = SEGMENTS.parents[1]
SEGMENT = SEGMENTS / "4.3.0-v2-none" / "00000000000000000000.log"
SIDE_FILE = SEGMENT.with_suffix(".timeindex")
INTERNAL = SEGMENTS / "4.3.0-v2-none-internal-consumer-offsets" / "00000000000000000000.log"
FRAMED = ROOT / "fixtures" / "framed" / "example" / "data"
REQUESTS = ROOT / "fixtures" / "streams" / "4.3.0-java" / "06.requests"

#: A command for each kind of rows.
ROW_KINDS = {
    "batches": ("dump", SEGMENT),
    "records": ("dump", "--deep", SEGMENT),
    "decoded records": ("dump", "--deep", "--decode", "__consumer_offsets", INTERNAL),
    "side files": ("dump", SIDE_FILE),
    "messages": ("dump", "--as", "wide-crc", FRAMED),
    "requests": ("dump", "--as", "requests", REQUESTS),
    "message sets": ("dump", "--as", "message-set", SEGMENT),
    "effective state": ("dump", "--effective", "--decode", "__consumer_offsets", INTERNAL),
    "findings": ("validate", SEGMENT),
    "counts": ("stats", SEGMENT),
    "differences": ("diff", SEGMENT.parent, SEGMENT.parent),
    "plans": ("recovery", SEGMENT.parent),
    "transactions": ("transactions", SEGMENT.parent),
}
KINDS = [kind for kind in vars(formats).values() if isinstance(kind, formats.ResultKind)]
ALL_FORMATS = sorted({name for kind in KINDS for name in kind.writers})


@pytest.mark.slow
@pytest.mark.parametrize("format_name", ALL_FORMATS)
@pytest.mark.parametrize("kind", ROW_KINDS)
def test_every_format_writes_every_kind_of_rows_or_rejects_it_by_name(
    kind: str, format_name: str, tmp_path: Path
) -> None:
    """A combination that nobody tried must not be a KeyError in the middle of a report."""
    if format_name == "parquet":
        pytest.importorskip("pyarrow")
    target = tmp_path / "output"
    arguments = [*map(str, ROW_KINDS[kind]), "--format", format_name]
    # diff, like all commands, writes to a file if it has the option, and else to stdout.
    if kind not in ("differences", "plans", "transactions"):
        arguments += ["-o", str(target)]
    done = invoke(*arguments)
    if done.exit_code == 2:
        assert "internal error" not in done.stderr
        assert format_name in done.stderr
        assert "jsonl" in done.stderr, "the line names the possible formats"
        assert not target.exists()
    else:
        assert done.exit_code in (0, 1), done.stderr
        assert done.stdout or target.stat().st_size


def test_a_command_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group, its help and the shell completion read one table."""
    monkeypatch.setitem(COMMANDS, "again", ("kseg.cli.rules_command:rules", "List the rules again.", "Look"))
    listed = invoke("--help")
    assert "List the rules again." in listed.stdout
    assert invoke("again").stdout == invoke("rules").stdout


ADD_FORMAT = """
import sys
from types import ModuleType
from kseg.report import formats

def write(dumped, out, view):
    for item in dumped:
        if hasattr(item, "batch"):
            out.write(f"{item.batch.base_offset}\\n")

sys.modules["offsets_writer"] = ModuleType("offsets_writer")
sys.modules["offsets_writer"].write = write
formats.DUMP.writers["offsets"] = "offsets_writer:write"
from kseg.cli.main import main
main(sys.argv[1:])
"""


def test_an_output_format_is_a_row() -> None:
    """The option, its help and the writer come from one table; kinds of rows without a writer are rejected by name."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", ADD_FORMAT, "dump", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)

    assert "offsets" in run("--help").stdout
    done = run("--format", "offsets", SEGMENT)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("0\n")
    for arguments in ((SIDE_FILE,), ("--as", "wide-crc", FRAMED)):
        done = run("--format", "offsets", *arguments)
        assert done.returncode == 2
        assert "--format offsets cannot write" in done.stderr
        assert ": expected table" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_a_spark_view_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options, schema and reading of a view come from one table."""
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from kseg.extras.views import view_table
    from kseg.extras.views.planning import plan
    from kseg.extras.views.split_rows import Task, read
    from kseg.spark.data_source import KsegDataSource
    from kseg.spark.options import ddl, parse

    columns = view_table.VIEWS["batches"].columns
    new = view_table.LogView(columns[:4], "kseg.extras.views.split_rows:read_batches")
    monkeypatch.setitem(view_table.VIEWS, "positions", new)
    given = {"path": str(SEGMENT.parent), "view": "positions"}
    assert KsegDataSource(given).schema() == ddl(columns[:4])
    options = parse(given)
    found = [batch for split in plan(options, options.limits) for batch in read(Task(options, options.limits), split)]
    assert sum(batch.num_rows for batch in found) > 0
    assert found[0].schema.names == [column.name for column in columns[:4]]
