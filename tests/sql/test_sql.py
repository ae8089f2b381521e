"""``kseg sql``: results, errors of statements, exit codes, and limits of statements."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from operator import eq, ge, lt, ne
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import kseg
from kseg.cli.main import main
from kseg.extras.sql.statement import TABLES, TYPES
from tests.support.cli import invoke
from tests.support.fixtures import SEGMENTS
from tests.support.internal_topics import FOLDERS, placed

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

ROLLED = SEGMENTS / "4.3.0-v2-none-segments"
HEADERS = SEGMENTS / "4.3.0-v2-none-headers"
OFFSETS = SEGMENTS / "4.3.0-v2-none-consumer-offsets"
DAMAGED = SEGMENTS.parent / "findings" / "crc-mismatch"


def sql(*arguments: object, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, ["sql", *map(str, arguments)], input=stdin)


def rows(statement: str, *paths: Path, note: str = "") -> list[dict[str, Any]]:
    done = sql(statement, *paths, "--format", "jsonl")
    assert done.exit_code == 0
    assert note in done.stderr
    assert len(done.stderr.splitlines()) == bool(note)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_statements_return_the_rows_of_dump() -> None:
    """Columns, times, keys and values are those of ``kseg dump``."""
    done = invoke("dump", "--deep", "--format", "jsonl", ROLLED)
    dumped = [json.loads(line) for line in done.stdout.splitlines()]
    names = ("file", "position", "offset", "timestamp_type", "sequence", "key", "value", "headers")
    found = rows(f"select {', '.join(names)}, timestamp_ms from records", ROLLED)
    assert [{name: row[name] for name in names} for row in found] == [
        {name: row[name] for name in names} for row in dumped
    ]
    assert [row["timestamp_ms"] for row in found] == [row["timestamp"] for row in dumped]


def test_bytes_are_text_or_base64() -> None:
    """A statement can use functions of texts and JSON on every key, value and header value."""
    known = list(kseg.open_partition(HEADERS).records())
    found = rows(
        "select offset, h.key as k, h.value as v from (select offset, unnest(headers) as h from records)",
        HEADERS,
        note="column headers: some of it is not UTF-8",
    )
    given = [(record.offset, header.key, header.value) for record in known for header in record.headers]
    assert len(found) == len(given)
    assert any(value is not None for _, _, value in given)
    for row, (offset, _, value) in zip(found, given, strict=True):
        assert row["offset"] == offset
        assert (row["v"] is None) == (value is None)
    paths = rows("select value->>'path' as path, count(*) as n from records where value like '{%' group by 1", ROLLED)
    assert sum(row["n"] for row in paths) > 0
    assert all(row["path"].startswith("/products/") for row in paths)


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
def test_every_table_can_be_read(table: str) -> None:
    """``--tables`` lists the columns and types that DuckDB has."""
    listed = rows(f"select column_name, column_type from (describe select * from {table})", ROLLED)
    assert [(row["column_name"], row["column_type"]) for row in listed] == [
        (column.name, TYPES[column.type]) for column in TABLES[table]
    ]
    (total,) = rows(f"select count(*) as n from {table}", SEGMENTS)
    marked = table == "markers"
    assert total["n"] == kseg.scan(SEGMENTS, "records" if marked else table, control=marked).count_rows()
    assert total["n"] or table in ("groups", "schemas", "topics"), "their topics have other names in the fixtures"


def test_formats(tmp_path: Path) -> None:
    """Results of all types can be written in all formats."""
    statement = (
        "select 1 a, 2 a, sum(offset) s, 1.5::decimal(9, 2) d, date '2024-01-01' t, '\\xff'::blob b, 'nan'::double f, "
        "[1, 2] l, {'x': 'é'} o, map {'k': 1} m, interval 1 day i, null n, timestamptz '2024-01-01 00:00:00.123456+00' z "
        "from records"
    )
    (row,) = rows(statement.replace("interval 1 day i, ", ""), ROLLED)
    assert row == {
        "a": 1, "a_2": 2, "s": sum(range(121)), "d": "1.50", "t": "2024-01-01", "b": "/w==", "f": "NaN", "l": [1, 2],
        "o": {"x": "é"}, "m": {"k": 1}, "n": None, "z": "2024-01-01T00:00:00.123456Z",
    }  # fmt: skip
    assert sql(statement, ROLLED).stdout.split()[:3] == ["a", "a_2", "s"]
    assert sql(statement, ROLLED, "--format", "csv").stdout.startswith("a,a_2,s,")
    target = tmp_path / "rows.parquet"
    assert sql("select key, offset from records", ROLLED, "--format", "parquet", "-o", target).exit_code == 0
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(target).column("offset").to_pylist() == list(range(121))
    assert "Ungrouped Aggregate" in sql("explain select count(*) from records", ROLLED).stdout


def test_a_statement_comes_from_an_argument_a_file_or_standard_input(tmp_path: Path) -> None:
    """A first argument that is a path is not a statement."""
    file = tmp_path / "count.sql"
    file.write_text("-- the number of records\nselect count(*) as n from records\n", encoding="utf-8")
    for done in (
        sql("--file", file, ROLLED, "--format", "csv"),
        sql(ROLLED, "--format", "csv", stdin=file.read_text(encoding="utf-8")),
        sql("-", ROLLED, "--format", "csv", stdin=file.read_text(encoding="utf-8")),
    ):
        assert (done.stdout, done.exit_code) == ("n\n121\n", 0)


def test_decoded_values_are_columns() -> None:
    """The options that decode keys and values are those of dump; without them the columns do not exist."""
    done = sql(
        "select value_decoded->>'path' as path, count(*) as n from records where value_error is null group by all",
        *(ROLLED, "--value-as", "json", "--format", "csv"),
    )
    assert (done.exit_code, done.stderr) == (0, "")
    assert "/products/0,15" in done.stdout.splitlines()
    assert "unknown column 'value_decoded'" in sql("select value_decoded from records", ROLLED).stderr
    assert (
        "did you mean value_decoded or" in sql("select value_decode from records", ROLLED, "--value-as", "json").stderr
    )


ERRORS = {
    "select kye from records": "line 1, column 8: unknown column 'kye': did you mean key?",
    "select *\nfrom recods": "line 2, column 6: unknown table 'recods': did you mean records?",
    "select 'é', offset, kye from records": "line 1, column 21: unknown column 'kye': did you mean key?",
    "select offset, offset from records where kye": "line 1, column 42: unknown column 'kye': did you mean key?",
    "selct 1": 'line 1, column 1: syntax error at or near "selct"',
    "select nofn(1)": "line 1, column 8: Scalar Function with name nofn does not exist!",
    "select 1; select 2": "expected one statement, got 2",
    "create table t as select 1": "expected SELECT, WITH, PIVOT, EXPLAIN, DESCRIBE, SUMMARIZE or SHOW, got CREATE",
    "set threads = 9": "expected SELECT, WITH, PIVOT, EXPLAIN, DESCRIBE, SUMMARIZE or SHOW, got SET",
    "select cast(value as int) from records": "Could not convert string",
    " ": "the statement is empty",
}


@pytest.mark.parametrize("statement", ERRORS)
def test_an_error_is_one_line_with_its_position(statement: str) -> None:
    """The position is that in the given text, although ``offset`` is quoted for DuckDB."""
    done = sql(statement, ROLLED)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("kseg: ")
    assert ERRORS[statement] in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_offset_is_a_column_and_a_clause() -> None:
    """DuckDB reserves the word that Kafka's records use most."""
    statement = (
        "select records.offset, max(offset) over () n from records where offset>2 order by offset limit 1 offset 2"
    )
    assert rows(statement, ROLLED) == [{"offset": 5, "n": 120}]
    assert rows('select "offset" from records order by OFFSET desc limit 1', ROLLED) == [{"offset": 120}]
    assert rows("select 'offset' as offset -- offset\n", ROLLED) == [{"offset": "offset"}]
    cast = "select offset::varchar as text from records where records.offset :: int = 5"
    assert rows(cast, ROLLED) == [{"text": "5"}]


@pytest.mark.parametrize(
    "statement",
    [
        "select * from read_text('{file}')",
        "select * from '{file}'",
        "select * from glob('{folder}/*')",
        "select * from read_csv('{file}')",
        "copy (select 1) to '{folder}/new'",
        "attach '{folder}/new'",
        "install httpfs",
        "select * from query('copy (select 1) to ''{folder}/new''')",
        "set enable_external_access = true",
    ],
)
def test_a_statement_cannot_access_files(statement: str, tmp_path: Path) -> None:
    """A statement from somebody else reads the given segments, and nothing else."""
    secret = tmp_path / "secret.csv"
    secret.write_text("secret\n", encoding="utf-8")
    done = sql(statement.format(file=secret, folder=tmp_path), ROLLED)
    assert done.exit_code == 2
    assert "secret\n" not in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]


def test_exit_codes(tmp_path: Path) -> None:
    """As of dump: 1 if damage was skipped, 2 if a file could not be read. Findings are printed once."""
    done = sql("select count(*) as n from records a join records b using (offset)", DAMAGED, "--format", "csv")
    assert done.exit_code == 1
    assert done.stdout == f"n\n{kseg.scan(DAMAGED).count_rows()}\n"
    assert done.stderr.count("crc-mismatch") == 2, "in the path and in the message"
    shutil.copytree(ROLLED, tmp_path, dirs_exist_ok=True)
    (tmp_path / "00000000000000000999.log").write_bytes(b"not a segment " * 20)
    done = sql("select count(*) as n from records", tmp_path, "--format", "csv")
    assert (done.exit_code, done.stdout) == (2, "n\n121\n")
    assert "00000000000000000999.log" in done.stderr
    assert sql("select count(*) from records", tmp_path / "missing").exit_code == 2
    assert sql("select 1").exit_code == 2
    assert "standard input is empty: nothing was read" in sql("select count(*) from records", "-").stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("interval '1 month 2 days 03:04:05.5'", "1 month 2 days 03:04:05.5"),
        ("interval '-3 hours'", "-03:00:00"),
        ("timestamp '2020-01-01 00:01' - timestamp '2020-01-01'", "00:01:00"),
        ("interval '0 seconds'", "00:00:00"),
        ("interval '1000000000 months'", "83333333 years 4 months"),
        ("[interval '1 day']", ["1 day"]),
        ("{'a b': interval '1 day', 'bit': '10110'::bit}", {"a b": "1 day", "bit": "10110"}),
        ("map {'k': 340282366920938463463374607431768211455::uhugeint}", {"k": str(2**128 - 1)}),
        ("union_value(k := 1)", "1"),
        ("array_value(interval '1 day')", ["1 day"]),
        ("'12:00:00+02'::timetz", "12:00:00+02"),
        ("123456789012345678901234567890::bignum", "123456789012345678901234567890"),
        ("date '290309-12-22 (BC)'", "-290308-12-22"),
        ("timestamptz '294247-01-10 04:00:54.775806+00'", "294247-01-10T04:00:54.775806Z"),
        ("timestamp_ns '2024-01-01 00:00:00.123456789'", "2024-01-01T00:00:00.123456789"),
        ("date 'infinity'", "infinity"),
        ("timestamptz '-infinity'", "-infinity"),
        ("date '12000-02-03'", "12000-02-03"),
        ("{'a': date '12000-02-03', 'b': [1.50, null]}", {"a": "12000-02-03", "b": ["1.50", None]}),
        ("map {'k': [timestamptz '-infinity', null]}", {"k": ["-infinity", None]}),
    ],
)
def test_values_that_arrow_or_python_lacks_are_texts(expression: str, text: object) -> None:
    """Differences of timestamps are usual, and Python lacks infinite times and years after 9999."""
    done = sql("--format", "jsonl", f"select {expression} as x, null as y", ROLLED)
    assert json.loads(done.stdout) == {"x": text, "y": None}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("-12345678901234567.80::decimal(19, 2)", "-12345678901234567.80"),
        ("0::decimal(38, 30)", f"0.{'0' * 30}"),
        ("sum(1.123456789012345678::decimal(38, 18))", "135.938271470493827038"),
        ("{'a': 1.10, 'l': [2.50]}", {"a": "1.10", "l": ["2.50"]}),
        ("map {1.50: {'m': map {'k': [0.10]}}}", {"1.50": {"m": {"k": ["0.10"]}}}),
        ("[1.5, 2.25]::decimal(5, 2)[2]", ["1.50", "2.25"]),
        ("sum(offset)", 7260),
        ("sum(offset::hugeint) * 1000000000000000000000::hugeint", 7260 * 10**21),
        ("5::decimal(10, 0)", 5),
        ("avg(offset)", 60.0),
        ("['nan'::double, 'inf', '-inf', 0.5]", ["NaN", "Infinity", "-Infinity", 0.5]),
        ("'-inf'::float", "-Infinity"),
        ("map {true: map {}}", {"true": {}}),
        ("map {'\\xff'::blob: 1}", {"/w==": 1}),
    ],
)
def test_numbers_are_those_of_dump(expression: str, value: object) -> None:
    """A statement of SQL invents no digit and loses none: decimals are texts in JSON, as in the decoded values of dump."""
    statement = f"select distinct {expression} as x from records"
    (row,) = rows(statement, ROLLED)
    assert row == {"x": value}
    if isinstance(value, str):
        assert sql(statement, ROLLED, "--format", "csv").stdout == f"x\n{value}\n"
        assert value in sql(statement, ROLLED).stdout.split()


def test_names_of_columns_are_escaped_in_json() -> None:
    """Each line of JSON Lines is JSON, whatever name a statement gives a column; DuckDB names ``map {1: 2}`` with quotes."""
    for name in ('a"b', "a\\b", "a\nb"):
        quoted = name.replace('"', '""')
        assert rows(f'select distinct 1 as "{quoted}" from records', ROLLED) == [{name: 1}]
    assert rows("select distinct map {1: 2} from records", ROLLED)


def test_an_interval_is_text_in_parquet(tmp_path: Path) -> None:
    """Parquet has no intervals and no unions."""
    statement = "select interval '1 day' as i, union_value(k := 1) as u, 1 as n"
    done = sql(statement, ROLLED, "--format", "parquet", "-o", tmp_path / "rows.parquet")
    assert done.exit_code == 0, done.stderr
    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == [{"i": "1 day", "u": "1", "n": 1}]


def test_an_archive_comes_from_standard_input() -> None:
    """The log directory of a pod: ``kubectl exec POD -- tar c DIR | kseg sql STATEMENT -``. A table can be read twice."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(ROLLED, "orders-0")
    statement = "select topic, count(*) as n from records join batches using (topic, position) group by 1"
    command = [sys.executable, "-m", "kseg", "sql", statement, "-", "--format", "csv"]
    done = subprocess.run(command, input=archive.getvalue(), capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(b"topic,n\norders,")


def test_only_named_tables_are_read() -> None:
    """A damaged segment matters only if the statement reads it; a table without rows has none."""
    assert rows("select 1 as one", DAMAGED) == [{"one": 1}]
    assert {row["rule"] for row in rows("select rule from findings where severity = 'error'", DAMAGED)} == {
        "crc-mismatch"
    }


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_ends_a_statement(times: int, number: signal.Signals, tmp_path: Path) -> None:
    """DuckDB itself does not react to Ctrl-C, and it refuses to close a busy connection. Temporary files are deleted.

    timeout(1) sends its signal twice.
    """
    endless = "select count(*) from range(1000000000000) where range % 7 = 3"
    command = [sys.executable, "-m", "kseg", "sql", endless, str(ROLLED)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, text=True) as running:
        while running.poll() is None and not list(tmp_path.iterdir()):
            time.sleep(0.05)
        time.sleep(0.5)
        for _ in range(times):
            running.send_signal(number)
            time.sleep(0.001)
        try:
            _, messages = running.communicate(timeout=300)
        finally:
            running.kill()
    assert messages.strip() == ("kseg: interrupted" if number == signal.SIGINT else "kseg: ended by SIGTERM")
    assert running.returncode in (128 + number, -number)  # a shell reports both as 128 + N
    assert list(tmp_path.iterdir()) == []


SWALLOWED = """
import os, signal, time
from contextlib import contextmanager
from kseg.extras.sql import statement
before = statement.connected
@contextmanager
def connected(*given):
    with before(*given) as connection:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        except KeyboardInterrupt:
            pass
        yield connection
statement.connected = connected
from kseg.cli.main import main
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_signal_that_duckdb_drops_is_not_lost() -> None:
    """One that came while DuckDB called Python for a table was dropped: some runs under load then never ended."""
    endless = "select count(*) from range(1000000000000) where range % 7 = 3"
    command = [sys.executable, "-c", SWALLOWED, "sql", endless, str(ROLLED)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stderr.strip()) == (143, "kseg: ended by SIGTERM")


def test_too_little_memory_is_one_line() -> None:
    """Sorting uses temporary files; what cannot be stored there ends the statement."""
    done = sql("select list(range) from range(10000000)", ROLLED, "--memory", "16")
    assert done.exit_code == 2
    assert done.stderr.endswith(": allow more with --memory\n")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("limit", ["5", "x"])
def test_a_wrong_limit_names_what_is_expected(limit: str) -> None:
    """As in the other commands."""
    assert f"expected a whole number of at least 16, got '{limit}'" in sql("--memory", limit, "select 1", ROLLED).stderr


def test_an_error_while_rows_are_read_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow raises OSError for some errors of DuckDB, which was reported as an error of standard output."""

    def fail(*_: object) -> None:
        facts = {"exception_type": "Out of Memory", "exception_message": "failed to pin\n\nPossible solutions: none"}
        raise OSError(f"Out of Memory Error: {json.dumps(facts)}")

    monkeypatch.setattr("kseg.extras.sql.statement.next", fail, raising=False)
    done = sql("select 1", ROLLED)
    assert (done.exit_code, done.stderr) == (2, "kseg: failed to pin: allow more with --memory\n")


def test_a_statement_that_needs_more_memory_is_run_again() -> None:
    """Most need little, and then kseg does, too. A limit that is set is kept."""
    statement = "select len(list(range)) as n from range(3000000)"
    done = sql(statement, ROLLED, "--format", "csv")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "n\n3000000\n", "")
    assert sql(statement, ROLLED, "--memory", "32").exit_code == 2


@pytest.mark.parametrize("library", ["duckdb", "pyarrow"])
def test_a_missing_library_is_one_line(library: str) -> None:
    """kseg works without the libraries of an extra, and names what this command needs."""
    code = f"import sys\nsys.modules[{library!r}] = None\nfrom kseg.cli.main import main\nmain(sys.argv[1:])"
    command = [sys.executable, "-c", code, "sql", "select 1", str(ROLLED)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 2
    assert "pip install 'kseg[sql]', which has duckdb and pyarrow" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_stderr_is_empty_after_a_statement() -> None:
    """DuckDB's bindings print objects that are alive when the interpreter exits."""
    command = [sys.executable, "-m", "kseg", "sql", "select count(*) as n from records", str(ROLLED), "--format", "csv"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "n\n121\n", "")


def test_bytes_sizes_and_encodings_are_those_that_kafka_wrote(tmp_path: Path) -> None:
    """Text never hides which of it is base64, and the bytes are exact. Kafka's own reading is the truth."""
    folder = tmp_path / "mixed-0"
    shutil.copytree(HEADERS, folder)
    wanted = [json.loads(line) for line in (HEADERS / "expect.jsonl").read_text(encoding="utf-8").splitlines()]
    names = "offset, key_bytes, value_bytes, headers_bytes, key_size, value_size, headers_size, value, value_encoding"
    found = rows(f"select {names} from records", folder)
    records = [row for row in wanted if row["kind"] == "record"]
    assert len(found) == len(records) > 0
    for row, record in zip(found, records, strict=True):
        assert (row["offset"], row["key_bytes"], row["value_bytes"]) == tuple(
            map(record.get, ("offset", "key", "value"))
        )
        assert row["headers_bytes"] == [{"key": one["key"], "value": one["value"]} for one in record["headers"]]
        stored = {name: None if record[name] is None else base64.b64decode(record[name]) for name in ("key", "value")}
        assert (row["key_size"], row["value_size"]) == tuple(data and len(data) for data in stored.values())
        sizes = (len(one["key"].encode()) + len(base64.b64decode(one["value"] or "")) for one in record["headers"])
        assert row["headers_size"] == sum(sizes)
        decode: Callable[[str], bytes] = base64.b64decode if row["value_encoding"] == "base64" else str.encode
        assert (row["value"] and decode(row["value"])) == stored["value"]


def test_base64_in_a_text_column_is_not_silent() -> None:
    """Keys of Kafka's coordinators are UTF-8, and their values are not: one line says which column has base64."""
    done = sql("select key, value from records limit 1", OFFSETS)
    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "kseg: column value: some of it is not UTF-8, and is base64: value_encoding says which, value_bytes has the bytes"
    ]
    assert rows("select key, value_bytes, value_size from records limit 1", OFFSETS)
    assert rows("select count(value_encoding) > 0 as found from records where value > ''", OFFSETS) == [{"found": True}]


def test_null_is_not_an_empty_text() -> None:
    """A tombstone and an empty value are different cells of the table."""
    done = sql("select '' as a, null as b, '-' as c, [null] as d", ROLLED)
    assert done.stdout.splitlines()[2].split() == ["NULL", "-", "[null]"]


@pytest.mark.parametrize("topic", FOLDERS)
def test_records_of_internal_topics_are_decoded(topic: str, tmp_path: Path) -> None:
    """``decoded`` is that of ``kseg dump``, whose truth is kafka-dump-log; records of other topics have none."""
    folder = placed(topic, tmp_path)
    done = invoke("dump", "--deep", "--format", "jsonl", folder)
    dumped = [row for row in map(json.loads, done.stdout.splitlines()) if row["control"] is None]
    found = rows("select decoded from records", folder)
    assert [json.loads(row["decoded"]) for row in found] == [row["decoded"] for row in dumped]
    assert any(row["decoded"] for row in dumped)
    assert rows("select count(decoded) as n from records", ROLLED) == [{"n": 0}]


def test_a_column_that_is_not_used_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Internal topics can have millions of records: without ``decoded`` none is decoded."""
    monkeypatch.setattr("kseg.report.arrow_rows.decoded_record", lambda *_: pytest.fail("decoded"))
    monkeypatch.setattr("kseg.report.arrow_rows.RecordRows.encodings", lambda *_: pytest.fail("encodings"))
    assert rows("select count(*) as n, sum(key_size) as m from records", OFFSETS)[0]["n"] > 0


def test_pivot() -> None:
    """DuckDB reads the names of the columns first, with another statement."""
    wanted = dict(Counter(batch.base_offset % 3 for batch in kseg.open_partition(ROLLED).batches()))  # type: ignore[operator]
    statement = "pivot (select base_offset % 3 as third from batches) on third using count(*)"
    assert rows(statement, ROLLED) == [{str(third): n for third, n in sorted(wanted.items())}]
    assert rows(f"select * from ({statement})", ROLLED) == rows(statement, ROLLED)
    assert sql("pivot records on kye using count(*)", ROLLED).exit_code == 2


@pytest.mark.slow
def test_random_conditions_are_those_of_python() -> None:
    """Statements with random conditions and groups against the same in plain Python, over the records that Kafka read."""
    random = Random(29)
    wanted = [json.loads(line) for line in (HEADERS / "expect.jsonl").read_text(encoding="utf-8").splitlines()]
    known = [row for row in wanted if row["kind"] == "record"]

    def size(row: dict[str, Any], name: str) -> int | None:
        return None if row[name] is None else len(base64.b64decode(row[name]))

    fields: dict[str, Callable[[dict[str, Any]], int | None]] = {
        '"offset"': lambda row: row["offset"],
        "key_size": lambda row: size(row, "key"),
        "value_size": lambda row: size(row, "value"),
        "timestamp_ms": lambda row: row["timestamp"],
        "octet_length(value_bytes)": lambda row: size(row, "value"),
        "len(headers_bytes)": lambda row: len(row["headers"]),
    }
    signs: dict[str, Callable[[int, int], bool]] = {"<": lt, ">=": ge, "=": eq, "<>": ne}
    statements, results = [], []
    for _ in range(25):
        (one, first), (other, second) = random.sample(list(fields.items()), 2)
        sign, limit = (
            random.choice(list(signs)),
            random.choice([value for value in map(first, known) if value is not None]),
        )
        kept = [row for row in known if (value := first(row)) is not None and signs[sign](value, limit)]
        groups: defaultdict[int | None, int] = defaultdict(int)
        for row in kept:
            groups[second(row)] += 1
        statements.append(f"select {other} as g, count(*) as n from records where {one} {sign} {limit} group by 1")
        results.append({(group, n) for group, n in groups.items()})
    for statement, result in zip(statements, results, strict=True):
        assert {(row["g"], row["n"]) for row in rows(statement, HEADERS)} == result, statement
