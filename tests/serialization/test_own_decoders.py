"""``--decoder``: a function of the user's own decodes values, and cannot harm the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.support.cli import invoke, rows_of

FIXTURE = Path(__file__).parents[2] / "fixtures" / "serialized"

FUNCTION = """
import datetime, decimal
def decode(topic, side, data, headers):
    if data[-1] == 0:
        raise LookupError("two\\nlines")
    return {"topic": topic, "side": side, "data": data[:3], "headers": headers, "d": decimal.Decimal("1.0"),
            "t": datetime.date(2026, 1, 2), "nan": float("nan")}
def other(topic, side, data, headers):
    return object()
def deep(topic, side, data, headers):
    found = []
    for _ in range(5000):
        found = [found]
    return found
"""


def dump(topic: str, *arguments: str) -> Result:
    return invoke("dump", FIXTURE / f"{topic}-0", "--format", "jsonl", *arguments)


def rows(topic: str, *arguments: str) -> list[dict[str, Any]]:
    return rows_of("dump", FIXTURE / f"{topic}-0", *arguments)


def test_a_function_decodes_keys_and_values(tmp_path: Path) -> None:
    """Its result is JSON, with bytes, decimals and dates as text; an exception is the reason, in one line."""
    path = tmp_path / "own.py"
    path.write_text(FUNCTION, encoding="utf-8")
    place = f"{path}:decode"
    found = rows("events", "--decoder", place)[1]
    headers = found["value_decoded"].pop("headers")
    assert found["value_decoded"] == {
        "topic": "events", "side": "value", "data": "eyJu", "d": "1.0", "t": "2026-01-02", "nan": "NaN"
    }  # fmt: skip
    assert [header[0] for header in headers] == ["__key_schema_id", "__value_schema_id"]
    assert found["value_kind"] == place
    first = rows("orders", "--decoder", place, "--key-as", "string")[0]
    assert (first["key_kind"], first["key_decoded"]) == ("string", "order-0")
    assert (first["value_decoded"], first["value_error"]) == (None, "LookupError: two lines")
    assert first["value"]
    assert rows("orders", "--decoder", f"{path}:other")[0]["value_error"] == (
        "ValueError: the result has a object, which JSON does not have"
    )
    assert "nested deeper than 100" in rows("orders", "--decoder", f"{path}:deep")[0]["value_error"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise BaseException('x')", "BaseException: x"),
        ("import sys; sys.exit(5)", "SystemExit: 5"),
        ("raise type('Own', (Exception,), {'__str__': lambda self: 1 / 0})", "Own"),
        ("return 10 ** 5000", "ValueError: the result has a whole number of more than 4,000 digits"),
        ("x = []; x.append(x); return x", "ValueError: the result is nested deeper than 100 levels"),
    ],
)
def test_a_function_cannot_end_the_run(tmp_path: Path, body: str, reason: str) -> None:
    """What it raises or returns is the reason of its value, and all records are there."""
    path = tmp_path / "own.py"
    path.write_text(f"def decode(*_): {body}\n", encoding="utf-8")
    found = rows("orders", "--decoder", f"{path}:decode")
    assert len(found) == 7
    assert found[0]["value_error"] == reason


def test_times_of_a_function_are_in_utc(tmp_path: Path) -> None:
    """A time without a zone has none. Two names with the same text are an error: one would be lost."""
    path = tmp_path / "own.py"
    path.write_text(
        "import datetime as d\n"
        "def decode(*_):\n"
        "    zoned = d.datetime(2026, 1, 1, 1, tzinfo=d.timezone(d.timedelta(hours=2)))\n"
        "    return [zoned, d.datetime(2026, 1, 1, 1), d.time(1, 2), d.datetime.min.replace(tzinfo=zoned.tzinfo)]\n"
        "def same(*_): return {1: 'a', '1': 'b'}\n",
        encoding="utf-8",
    )
    assert rows("orders", "--decoder", f"{path}:decode")[0]["value_decoded"] == [
        "2025-12-31T23:00:00Z", "2026-01-01T01:00:00", "01:02:00", "0001-01-01T00:00:00+02:00"
    ]  # fmt: skip
    reason = rows("orders", "--decoder", f"{path}:same")[0]["value_error"]
    assert reason == "SameNameError: two entries of a map have the same name '1'"


def test_results_that_are_not_unicode_are_written(tmp_path: Path) -> None:
    """A half of a surrogate pair in a result does not end the run, and is not a byte of a file name."""
    path = tmp_path / "own.py"
    path.write_text("def decode(*_): return ['\\ud800', '\\udcff']\n", encoding="utf-8")
    assert rows("orders", "--decoder", f"{path}:decode")[0]["value_decoded"] == ["\ufffd", "\ufffd"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--decoder", "json"], "expected module:function or file.py:function"),
        (["--decoder", "absent_module:f"], "ModuleNotFoundError: No module named 'absent_module'"),
        (["--decoder", "absent.py:f"], "No such file or directory"),
        (["--decoder", "ends.py:f"], "SystemExit: 3"),
        (["--decoder", "json:absent"], "there is no function 'absent'"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: list[str], message: str) -> None:
    """One clear line each, before the first row."""
    arguments = [argument.replace("ends.py", str(tmp_path / "ends.py")) for argument in arguments]
    (tmp_path / "ends.py").write_text("import sys; sys.exit(3)", encoding="utf-8")
    done = dump("orders", *arguments)
    assert (done.exit_code, "Traceback" in done.output) == (2, False)
    assert message in done.output


@pytest.mark.parametrize(
    "command",
    [
        ["dump", "--format", "jsonl"],
        ["dump", "--format", "csv", "-o", "-"],
        ["dump"],
        ["grep", "--format", "jsonl", "7"],
        ["sql", "select value_decoded from records", "--format", "jsonl"],
    ],
    ids=" ".join,
)
def test_what_a_function_prints_is_not_in_the_results(tmp_path: Path, command: list[str]) -> None:
    """It is on stderr, also what its module prints while it is imported. Programs read the rows on stdout."""
    path, quiet = tmp_path / "prints.py", tmp_path / "silent.py"  # tables are as wide as their names
    quiet.write_text("def decode(*_): return 7\n", encoding="utf-8")
    path.write_text(
        "import sys\nfrom sys import stdout\nprint('imported')\n"
        "def decode(topic, side, data, headers):\n"
        "    print('printed', side)\n    sys.stdout.write('written\\n')\n    stdout.write('kept\\n')\n    return 7\n",
        encoding="utf-8",
    )
    if command[0] == "sql":
        pytest.importorskip("duckdb", reason="duckdb is not installed")
    before = sys.stdout
    folder = FIXTURE / "orders-0"
    found = invoke(*command, folder, "--decoder", f"{path}:decode")
    wanted = invoke(*command, folder, "--decoder", f"{quiet}:decode")
    assert found.exit_code == wanted.exit_code == 0
    assert wanted.stdout
    assert found.stdout.replace("prints.py", "silent.py") == wanted.stdout
    assert {"imported", "printed value", "written", "kept"} <= set(found.stderr.splitlines())
    assert sys.stdout is before


def test_messages_after_the_reader_of_rows_has_ended_are_on_stderr(tmp_path: Path) -> None:
    """The closed pipe is that of the rows."""
    path = tmp_path / "own.py"
    path.write_text("def decode(*_):\n    print('printed')\n    return 'x' * 1_000_000\n", encoding="utf-8")
    command = [sys.executable, "-m", "kseg", "dump", "--format", "jsonl", str(FIXTURE / "orders-0")]
    run = subprocess.Popen(
        [*command, "--decoder", f"{path}:decode"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout
    assert run.stdout.read(1) == "{"
    run.stdout.close()
    assert run.stderr
    lines = run.stderr.read().splitlines()
    run.stderr.close()
    assert (run.wait(), set(lines)) == (0, {"printed"})
