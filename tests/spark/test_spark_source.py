"""The Spark data source returns the rows of ``kseg dump``, however they are split, filtered and damaged.

kseg is not registered in the session, so that the tests use the data source that Spark finds by itself.
"""

from __future__ import annotations

import json
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kseg import schema
from kseg.format.sidefiles.transaction_states import TransactionLogs
from tests.support import fleet, growing_logs
from tests.support.cli import kseg
from tests.support.evolving_values import KINDS, write_topic
from tests.support.fixtures import FOLDERS, SEGMENTS, dumped, expected
from tests.support.parquet import as_json

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed")

from pyspark.sql import Observation, SparkSession  # noqa: E402
from pyspark.sql.functions import col  # noqa: E402

from kseg.spark import SETTINGS, observe, register  # noqa: E402

pytestmark = pytest.mark.spark
DAMAGED = SEGMENTS.parent / "findings"
ROOT = SEGMENTS.parents[1]
PAGE = ROOT / "docs" / "how-to" / "query-with-spark.md"


def load(spark: SparkSession, *paths: object, **options: object) -> Any:
    texts = {name: str(value) for name, value in options.items()}
    return spark.read.format("kseg").options(**texts).load([str(path) for path in paths])


def by_file(table: Any) -> dict[str, Any]:
    """Return the rows of a table by file, in their order."""
    import pyarrow.compute as pc

    return {str(file): table.filter(pc.equal(table["file"], file)) for file in pc.unique(table["file"]).to_pylist()}


@pytest.mark.parametrize(("view", "kind"), [("records", "record"), ("batches", "batch")])
def test_rows_of_every_fixture_are_those_of_dump(spark: SparkSession, view: str, kind: str) -> None:
    """Spark found the format by itself: nothing has registered it here."""
    paths = [folder / name for folder in FOLDERS for name in expected(folder)]
    wanted = {path: dumped(path, kind == "record", TransactionLogs().of(str(path))) for path in paths}
    found = by_file(load(spark, *wanted, view=view).toArrow())
    assert {path: list(as_json(table, kind)) for path, table in found.items()} == {
        str(path): same for path, same in wanted.items() if same
    }


def test_the_schema_is_that_of_parquet(spark: SparkSession, tmp_path: Path) -> None:
    """One list of columns: Spark reads the columns of ``dump --format parquet`` with the types of the view."""
    target = tmp_path / "rows.parquet"
    source = SEGMENTS / "4.3.0-v2-none-headers"
    assert kseg("dump", "--deep", "--format", "parquet", "-o", target, source).returncode == 0
    wanted = load(spark, source).drop("damage")
    written = spark.read.parquet(str(target))
    assert written.dtypes == wanted.dtypes
    assert [name for name, _ in written.dtypes if not name.endswith("_ms")] == [
        column.name for column in schema.RECORD_TABLE
    ]
    assert written.exceptAll(wanted).count() == 0


def test_keys_and_values_are_decoded(spark: SparkSession) -> None:
    """The columns are those of ``kseg dump``; each task opens the schemas for itself."""
    fixture = SEGMENTS.parent / "serialized"
    found = load(spark, fixture / "orders-0", schemas=str(fixture / "_schemas-0"), keyAs="string").orderBy("offset")
    rows = found.select("key_decoded", "value_decoded", "value_schema_id").collect()
    assert json.loads(rows[0].key_decoded) == "order-0"
    assert json.loads(rows[3].value_decoded)["total"] == {"amount": "-0.25", "currency": "CHF"}
    assert [row.value_schema_id for row in rows] == [2, 2, 2, 3, 3, 3, None]
    with pytest.raises(Exception, match="unknown deserializer 'arvo'"):
        load(spark, fixture / "orders-0", valueAs="arvo").collect()


@pytest.mark.parametrize("kind", KINDS)
def test_typed_columns_are_what_other_libraries_read(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """valueAs=struct: Spark's rows have the typed values, and reasons for the others; Spark writes them as Parquet."""
    topic = write_topic(tmp_path, kind, count=45)
    table = load(spark, topic.log, schemas=str(topic.schemas), valueAs="struct").select(
        "offset", "value_decoded", "value_error"
    )
    rows = {row["offset"]: row for row in table.toArrow().to_pylist()}
    assert rows.keys() == topic.truth.keys() | topic.undecodable.keys()
    for offset, row in rows.items():
        assert row["value_decoded"] == topic.truth.get(offset), offset
        assert (row["value_error"] is not None) == (offset in topic.undecodable)
    table.write.parquet(str(tmp_path / "rows"))
    assert spark.read.parquet(str(tmp_path / "rows")).where("value_decoded.id is not null").count() == sum(
        bool(value and value["id"] is not None) for value in topic.truth.values()
    )


def test_internal_topics_are_decoded_where_that_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    """The column of ``kseg dump``, by the folder's name or by the topic's; without the option it is absent."""
    source = SEGMENTS / "4.3.0-v2-none-internal-transaction-state"
    folder = tmp_path / "__transaction_state-0"
    shutil.copytree(source, folder)
    lines = kseg("dump", "--deep", "--format", "jsonl", folder).stdout.splitlines()
    wanted = [json.loads(line)["decoded"] for line in lines]
    for path, decode in ((folder, "auto"), (source, "__transaction_state")):
        found = load(spark, path, decode=decode, columns="offset,decoded").orderBy("offset").collect()
        assert [json.loads(row.decoded) for row in found] == wanted
    assert load(spark, source, decode="auto").where("decoded is not null").count() == 0
    assert "decoded" not in load(spark, folder).columns


def test_findings_and_segments(spark: SparkSession) -> None:
    """For every damaged fixture, the findings and verdicts of ``kseg validate``, row by row.

    Side files and checks of whole folders are included.
    """
    folders = [folder for folder in sorted(DAMAGED.iterdir()) if not (folder / "settings.json").exists()]
    columns = ("file", "position", "end", "offset", "last_offset", "rule", "severity", "message")
    reported = [json.loads(line) for line in kseg("validate", "--format", "jsonl", *folders).stdout.splitlines()]
    # Spark fails on a path that can't be read.
    wanted = [
        tuple(row[name] for name in columns)
        for row in reported
        if row["kind"] == "finding" and row["rule"] != "read-error"
    ]
    found = load(spark, *folders, view="findings").where("rule is not null").select(*columns).collect()
    assert len(folders) > 50
    assert sorted(map(str, map(tuple, found))) == sorted(map(str, wanted))
    wrong = {row["file"] for row in reported if row["kind"] == "finding" and row["severity"] == "error"}
    with_logs = [folder for folder in folders if list(folder.rglob("*.log"))]
    for row in load(spark, *with_logs, view="segments").collect():
        assert row.errors == 0 or (row.verdict == "damaged" and row.file in wrong)
    mixed = load(spark, SEGMENTS / "2.8.2-v0v1v2-mixed", view="segments").collect()
    assert sorted({magic for row in mixed for magic in row.magics}) == [0, 1, 2]


def test_damage_is_a_row_an_error_or_nothing(spark: SparkSession) -> None:
    """A fleet's job must not fail because of one bad block: the mode decides. Rows are records, unless damage is asked
    for: a row without key and value would be a tombstone.
    """
    path = DAMAGED / "crc-mismatch" / "00000000000000000000.log"
    sound = load(spark, path, mode="dropmalformed").count()
    lines = kseg("dump", "--deep", "--format", "jsonl", path).stdout.splitlines()
    nulls = sum(row["key"] is None and row["value"] is None for row in map(json.loads, lines))
    for table in (load(spark, path), load(spark, path, columns="key,value"), load(spark, path).select("key", "value")):
        assert table.count() == sound
        assert table.where("key is null and value is null").count() == nulls
    typed = spark.read.format("kseg").schema("offset bigint, key binary, value binary").load(str(path))
    assert (typed.count(), typed.where("key is null and value is null").count()) == (sound, nulls)
    assert load(spark, path, mode="dropmalformed", columns="*,damage").count() == sound
    whole = load(spark, path, columns="*,damage")
    assert whole.count() == sound + 1
    (row,) = whole.where("damage is not null").collect()
    assert (row.position, row.offset, row.damage.split(":")[0], row.value) == (475, 12, "crc-mismatch", None)
    with pytest.raises(Exception, match=r"crc-mismatch/0+\.log: byte 475: crc-mismatch: CRC mismatch"):
        load(spark, path, mode="failfast").count()


def test_problems_come_at_load_in_one_line(spark: SparkSession) -> None:
    """Before a task runs, and with the remedy; test_spark_planning has all of them."""
    path = SEGMENTS / "4.3.0-v2-none"
    with pytest.raises(Exception, match="unknown option 'colums': did you mean columns"):
        load(spark, path, colums="key")
    with pytest.raises(Exception, match="missing: No such file or directory"):
        load(spark, path, path / "missing")


def test_columns_and_schema_are_honoured(spark: SparkSession) -> None:
    """Spark doesn't pass the used columns to a source: they are an option, and the others are not gathered."""
    path = SEGMENTS / "4.3.0-v2-none-headers"
    whole = [(row.value, row.offset) for row in load(spark, path).collect()]
    assert [tuple(row) for row in load(spark, path, columns="value, offset").collect()] == whole
    schema = "value binary, offset bigint"
    assert [tuple(row) for row in spark.read.format("kseg").schema(schema).load(str(path)).collect()] == whole
    assert load(spark, path, columns="headers").dtypes == [("headers", "array<struct<key:string,value:binary>>")]


@pytest.mark.parametrize("pushdown", ["false", "true"])
def test_filters_give_the_same_rows_pushed_down_or_not(spark: SparkSession, pushdown: str) -> None:
    """Spark rejects readers with pushFilters if the setting is off, as it is by default: this one runs in both."""
    folder = SEGMENTS / "4.3.0-v2-none-segments"
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    whole = load(spark, folder).collect()
    moment = datetime(2023, 11, 14, 23, 13, 20, 30_000, tzinfo=UTC)
    offset = col("offset")
    for condition, keep in (
        (offset.between(20, 30), lambda row: 20 <= row.offset <= 30),
        (offset.isin(3, 50), lambda row: row.offset in (3, 50)),
        (col("timestamp") >= moment, lambda row: row.timestamp_ms >= 1_700_003_600_030),
        (col("timestamp") == moment, lambda row: row.timestamp_ms == 1_700_003_600_030),
        (col("timestamp_ms") <= 1_700_003_600_030, lambda row: row.timestamp_ms <= 1_700_003_600_030),
        (col("topic") == "other", lambda row: False),
        ((offset == 3) | (offset == 60), lambda row: row.offset in (3, 60)),
    ):
        wanted = [row.offset for row in whole if keep(row)]
        assert [row.offset for row in load(spark, folder, pushdown=True).where(condition).collect()] == wanted


def test_a_table_is_whole_again_after_a_filter(spark: SparkSession) -> None:
    """Spark reuses the reader that a filter has narrowed for the next query; kseg's is narrowed only on request."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    table = load(spark, SEGMENTS / "4.3.0-v2-none-segments")
    assert table.where("offset > 100").count() == 20
    assert table.count() == 121
    assert table.where("offset > 100").union(table.where("offset <= 100")).count() == 121


def test_what_a_filter_excludes_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """A segment that isn't needed can have any content: the query does not open it."""
    for file in (SEGMENTS / "4.3.0-v2-none-segments").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "00000000000000000048.log").write_bytes(b"no segment any more" * 50)
    register(spark)
    assert {name: spark.conf.get(name) for name in SETTINGS} == SETTINGS
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    table = load(spark, tmp_path, mode="failfast", pushdown=True)
    assert table.where("offset >= 72 and offset < 80").count() == 8
    # Given as options, it works without pushdown.
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    assert load(spark, tmp_path, mode="failfast", offsets="25:30").count() == 5


def test_an_uncommitted_read_shows_what_a_committed_one_leaves_out(spark: SparkSession) -> None:
    """Through Spark as through the plan (test_spark_planning has the cases)."""
    folder = SEGMENTS / "4.3.0-v2-none-transactions"
    everything = load(spark, folder)
    committed = load(spark, folder, isolation="read_committed")
    assert 0 < committed.count() < everything.where("control is null").count()
    assert committed.where("control is not null").count() == 0


def test_files_that_are_no_log(spark: SparkSession) -> None:
    """The rows of ``kseg dump --as``; those of a record set are like those of a segment."""
    requests = SEGMENTS.parent / "streams" / "4.3.0-java" / "05.requests"
    responses = requests.with_suffix(".responses")
    reader = spark.read.format("kseg").option("as", "responses").option("requests", str(requests))
    table = reader.load(str(responses)).collect()
    done = kseg("dump", "--as", "requests", "--as", "responses", "--format", "jsonl", requests, responses)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    alone = [row for row in lines if row["file"] == str(responses)]
    for name in (
        "kind",
        "position",
        "api_name",
        "api_version",
        "correlation_id",
        "frame",
        "topic_id",
        "partition",
        "offset",
    ):
        assert [row[name] for row in table] == [row.get(name) for row in alone]
    assert [json.loads(row.body) for row in table if row.body] == [row["body"] for row in alone if "body" in row]
    assert next(row.value for row in table if row.kind == "record") == b"this is the first message"
    damaged = spark.read.format("kseg").option("columns", "*,damage")
    wide = SEGMENTS.parent / "framed"
    found = damaged.option("as", "wide-crc").load(str(wide / "example" / "data")).collect()
    (message,) = [row for row in found if row.damage is None]  # its codec is claimed, which is a row, too
    assert (message.key, message.crc, message.damage) == (b"first", 4252115574, None)
    found = damaged.option("as", "message").load(str(wide / "message-article" / "data")).collect()
    (message,) = [row for row in found if row.damage is None]
    assert (message.key, message.value, message.offset, message.damage) == (b"key", b"value", None, None)
    *_, damage = damaged.option("as", "wide-crc").load(str(wide / "truncated" / "data")).collect()
    assert damage.damage.startswith("truncated-tail")
    findings = spark.read.format("kseg").option("as", "wide-crc").option("view", "findings")
    assert [row.rule for row in findings.load(str(wide / "wrong-crc" / "data")).collect()] == ["crc-mismatch"]
    segment = SEGMENTS / "4.3.0-v2-none" / f"{0:020}.log"
    plain = spark.read.format("kseg").load(str(segment)).collect()
    assert spark.read.format("kseg").option("as", "message-set").load(str(segment)).collect() == plain


def examples() -> list[str]:
    """Return the Python examples of the documentation's page on Spark."""
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def test_the_first_example_runs(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example runs unchanged, in a folder as it expects."""
    monkeypatch.chdir(ROOT)
    found: dict[str, Any] = {}
    exec(examples()[0], found)
    assert found["log"].count() > found["committed"].count() > 0
    assert found["few"].count() == found["log"].where("offset between 20 and 60").count()
    assert {row.verdict for row in found["verdicts"].collect()} == {"sound"}


def test_the_examples_of_damage_and_of_nightly_loads_run(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The damaged place is shown; the load has what a consumer gets, up to the last stable offset."""
    monkeypatch.chdir(ROOT)
    found: dict[str, Any] = {}
    for example in (examples()[0], *examples()[2:4]):
        exec(example, found)
    assert "crc-mismatch: CRC mismatch" in capsys.readouterr().out
    assert found["tonight"].count() == found["committed"].count()
    assert found["tonight"].agg({"offset": "max"}).first()[0] < found["stable"] < found["log"].count()


def test_the_example_of_three_brokers(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From damaged log dirs to a table of findings and the answer of a recipe, in ten lines."""
    fleet.make(tmp_path / "backup")
    code = examples()[1]
    assert len([line for line in code.splitlines() if line]) <= 10
    # Spark's Java was started elsewhere.
    exec(code.replace('"backup/', f'"{tmp_path}/backup/').replace('"report/', f'"{tmp_path}/report/'), {})
    shown = capsys.readouterr().out.replace(f"{tmp_path}/", "")
    wanted = PAGE.read_text(encoding="utf-8").split(examples()[1])[1].split("```")[2]
    assert cells(wanted) == cells(shown)[-len(cells(wanted)) :]
    found = spark.read.parquet(str(tmp_path / "report" / "findings")).where("severity = 'error'").collect()
    assert sorted((Path(row.file).parts[-3], row.rule) for row in found) == [
        ("broker-2", "crc-mismatch"),
        ("broker-2", "truncated-tail"),
    ]


def test_the_tasks_count_rows_bytes_and_damage(spark: SparkSession, tmp_path: Path) -> None:
    """While one action reads the rows, and in each progress of a stream."""
    rows = spark.read.format("kseg").option("columns", "key,value,timestamp,damage").load(str(DAMAGED / "crc-mismatch"))
    seen = Observation()
    found = observe(rows, seen).collect()
    damaged = [row for row in found if row.damage is not None]
    assert damaged
    assert seen.get == {
        "rows": len(found),
        "bytes": sum(len(row.key or b"") + len(row.value or b"") for row in found),
        "damage": len(damaged),
        "newest": max(row.timestamp for row in found if row.timestamp),
    }
    stream = observe(spark.readStream.format("kseg").load(str(DAMAGED / "crc-mismatch")), "log")
    query = (
        stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )
    query.awaitTermination()
    counts = [one["observedMetrics"]["log"]["rows"] for one in query.recentProgress if one["observedMetrics"]]
    assert sum(counts) == len(found) - len(damaged)


def cells(table: str) -> list[list[str]]:
    """Return the lines that ``show`` prints, independent of the widths of its columns."""
    return [[cell.strip() for cell in line.split("|")] for line in table.splitlines() if line.startswith("|")]


def test_an_inventory_written_by_spark_leaves_segments_out(spark: SparkSession, tmp_path: Path) -> None:
    """The view ``segments``, as Spark writes it: without indexes, only segments with times of the window are planned."""
    folder = tmp_path / "logs" / "orders-0"
    folder.parent.mkdir()
    for first in range(0, 400, 100):
        growing_logs.write(folder, [growing_logs.batch(n) for n in range(first, first + 100)], first=first, index=False)
    inventory = str(tmp_path / "inventory")
    load(spark, tmp_path / "logs", view="segments").write.parquet(inventory)
    window = {"since": "1700000110000", "until": "1700000120000"}
    for view in ("records", "batches"):
        wanted = load(spark, tmp_path / "logs", view=view, **window).collect()
        found = load(spark, tmp_path / "logs", view=view, inventory=inventory, **window).collect()
        assert found == wanted != []
        # The header of a batch does not have the oldest timestamp of its records.
        last = (400,) if view == "records" else (400, 800, 1200)
        assert {row.file for row in found} == {str(folder / f"{offset:020}.log") for offset in last}
    with pytest.raises(Exception, match="inventory: view segments reads whole files"):
        load(spark, tmp_path / "logs", view="segments", inventory=inventory).collect()
