"""The commands as functions: they return what the commands print, as typed objects."""

from __future__ import annotations

import base64
import json
import shutil
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import kseg
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import rows_of
from tests.support.commits import commit_value, write_commits
from tests.support.fixtures import SEGMENTS

ROLLED = SEGMENTS / "4.3.0-v2-none-segments"
HEADERS = SEGMENTS / "4.3.0-v2-none-headers"
TRANSACTIONS = SEGMENTS / "4.3.0-v2-none-transactions"
DAMAGED = SEGMENTS.parent / "findings" / "crc-mismatch"
SERIALIZED = SEGMENTS.parent / "serialized"
LOG = f"{0:020}.log"


rows = partial(rows_of, code=None)


def written(folder: Path) -> list[dict[str, Any]]:
    """Return the records that Kafka's own reader found in a fixture; keys and values are base64."""
    lines = (folder / "expect.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == "record"]


def test_records_know_their_place_and_time(tmp_path: Path) -> None:
    """A record is enough for a message about it."""
    folder = tmp_path / "orders-3"
    shutil.copytree(ROLLED, folder)
    found = list(kseg.open_log_dir(tmp_path).records())
    assert [(Path(one.file or "").name, one.position) for one in found] == [
        (row["file"], row["position"]) for row in written(ROLLED)
    ]
    assert {(one.topic, one.partition, Path(one.file or "").parent) for one in found} == {("orders", 3, folder)}
    assert [one.time for one in found] == [
        datetime.fromtimestamp(row["timestamp"] / 1000, UTC) for row in written(ROLLED)
    ]
    (alone,) = {(one.topic, one.partition) for one in kseg.open_partition(ROLLED).records()}
    assert alone == (None, None)


def test_times_can_be_datetimes(tmp_path: Path) -> None:
    """A time is milliseconds, a datetime, or a text, wherever a function takes one."""
    known = written(ROLLED)
    middle = sorted(row["timestamp"] for row in known)[len(known) // 2]
    moment = datetime.fromtimestamp(middle / 1000, UTC)
    wanted = [row["offset"] for row in known if row["timestamp"] >= middle]
    log = kseg.open_partition(ROLLED)
    for time in (middle, moment, moment.isoformat(), moment.astimezone(tz=None), moment.replace(tzinfo=None)):
        assert [one.offset for one in log.records(since=time)] == wanted
        assert [one.offset for one in kseg.grep(ROLLED, since=time)] == wanted
    assert list(log.records(until=moment, since=moment)) == []
    with pytest.raises(kseg.UsageError, match="since: expected ISO 8601"):
        list(log.records(since="soon"))
    now = datetime.now(UTC)
    stamps = [int((now - timedelta(days=age)).timestamp() * 1000) for age in (30, 3, 0)]
    records = [PlainRecord(n, None, b"v", stamp) for n, stamp in enumerate(stamps)]
    (tmp_path / LOG).write_bytes(build_batch(records))
    assert [one.offset for one in kseg.open_partition(tmp_path).records(since="7d")] == [1, 2]


def test_grep_finds_what_kafka_wrote(tmp_path: Path) -> None:
    """Patterns, keys, headers and paths, alone and together, over all files of a folder."""
    known = written(HEADERS)
    for folder in ("a-0", "b-0"):
        shutil.copytree(HEADERS, tmp_path / folder)
    found = list(kseg.grep(tmp_path, "^value 1", fields=["value"]))
    values = {row["offset"] for row in known if base64.b64decode(row["value"] or "").startswith(b"value 1")}
    assert {one.offset for one in found} == values
    assert [one.topic for one in found] == ["a"] * len(values) + ["b"] * len(values)
    first, *others = kseg.grep([tmp_path / "a-0"], key="k1")
    assert (first.offset, first.key, first.value) == (1, b"k1", b"value 1")
    assert [one.offset for one in others] == [row["offset"] for row in known if row["key"] == "azE="][1:]
    with_trace = [row["offset"] for row in known if any(h["key"] == "trace" for h in row["headers"])]
    assert [one.offset for one in kseg.grep(HEADERS, "^trace$", fields=["header-key"])] == with_trace
    assert len(list(kseg.grep(ROLLED, limit=3))) == 3
    of_user = [one.offset for one in kseg.grep(ROLLED, json_paths=["$.user=user-0"], offsets=(10, 100))]
    assert of_user == [
        row["offset"] for row in rows("grep", "--json-path", "$.user=user-0", "--offsets", "10:100", ROLLED)
    ]
    assert of_user
    found = list(kseg.grep(ROLLED, "e", fields=["value"]))
    assert found == list(kseg.grep(ROLLED, "e", fields="value"))  # one name is not the names of its letters
    wrongs: list[dict[str, Any]] = [
        {"isolation": "read-committed"}, {"fields": ["values"]}, {"json_paths": ["x"]}, {"key_as": "x"}, {"offsets": "x"},
        {"since": "x"}, {"until": 1.7e9}, {"limit": -1}, {"offsets": ("5", 6)}, {"offsets": (1, 2, 3)}, {"offsets": 5},
        {"key": 5}, {"headers": {"a": None}},
    ]  # fmt: skip
    for wrong in wrongs:
        with pytest.raises(kseg.UsageError):
            kseg.grep(ROLLED, **wrong)
    with pytest.raises(kseg.UsageError, match="not a regular expression"):
        kseg.grep(ROLLED, "(")
    with pytest.raises(kseg.UsageError, match="patterns: expected texts, got b'e'"):
        kseg.grep(ROLLED, b"e")  # type: ignore[arg-type]
    with pytest.raises(kseg.UnreadableError):
        kseg.grep(tmp_path / "missing")


def test_grep_with_a_condition() -> None:
    """``where`` is that of the command."""
    pytest.importorskip("duckdb", reason="duckdb is not installed")
    found = [one.offset for one in kseg.grep(ROLLED, where="offset between 20 and 30 and value.user = 'user-0'")]
    assert found == [one.offset for one in kseg.grep(ROLLED, json_paths=["$.user=user-0"], offsets=(20, 31))]
    assert found


def test_grep_reports_damage_and_unread_files(tmp_path: Path) -> None:
    """Damage is reported with its file; without ``unread`` a file that is not a segment ends the search."""
    seen: list[tuple[str, str]] = []
    list(kseg.grep(DAMAGED, report=lambda path, finding: seen.append((Path(path).parent.name, finding.rule))))
    assert ("crc-mismatch", "crc-mismatch") in seen
    shutil.copy(ROLLED / LOG, tmp_path / LOG)
    (tmp_path / f"{99:020}.log").write_bytes(b"not a segment " * 20)
    lines: list[str] = []
    assert len(list(kseg.grep(tmp_path, unread=lines.append))) > 0
    assert len(lines) == 1
    with pytest.raises(kseg.UnreadableError):
        list(kseg.grep(tmp_path))


def test_lag(tmp_path: Path) -> None:
    """The lag of a group is the log end minus its last commit, and ``at`` chooses an earlier commit."""
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / LOG).write_bytes(build_batch([PlainRecord(n, b"k", b"v", 1) for n in range(9)]))
    place = ("g", "orders", 0)
    write_commits(
        tmp_path / "__consumer_offsets-0",
        {place: commit_value(2, committed=1_000), ("h", "orders", 0): commit_value(1)},
        {place: commit_value(7, committed=2_000)},
    )
    assert [(one.commit.group, one.commit.offset, one.lag, one.status) for one in kseg.lag(tmp_path)] == [
        ("g", 7, 2, "ok"),
        ("h", 1, 8, "ok"),
    ]
    assert [one.commit.group for one in kseg.lag(tmp_path, groups=["h"])] == ["h"]
    assert not list(kseg.lag(tmp_path, groups="h, not h"))  # one name is not a text with names
    assert [one.commit.group for one in kseg.lag(tmp_path, groups="h")] == ["h"]
    with pytest.raises(kseg.UsageError, match="local log directories only"):
        kseg.lag("s3://bucket/logs")


def test_transactions_stats_diff_and_recovery_are_those_of_the_commands(tmp_path: Path) -> None:
    """One mechanism computes the rows of the commands and the objects of the functions."""
    found = list(kseg.transactions(TRANSACTIONS))
    listed = [row["first_offset"] for row in rows("transactions", TRANSACTIONS) if row["kind"] == "transaction"]
    named = [one for one in found if isinstance(one, kseg.Transaction)]
    assert [one.first_offset for one in named if one.state != "committed"] == listed
    assert isinstance(found[-1], kseg.PartitionTransactions)
    assert {one.state for one in named} >= {"committed", "aborted"}
    *_, total = kseg.stats(ROLLED)
    assert (total.level, total.stats.total("records")) == ("total", len(written(ROLLED)))
    (same,) = kseg.diff(ROLLED, ROLLED)
    assert (same.verdict, same.accepted(())) == ("identical", True)
    (other,) = kseg.diff(ROLLED / f"{0:020}.log", ROLLED / f"{24:020}.log")
    assert other.comparison is not None
    assert other.verdict == "disjoint"
    assert sorted((one.kind, one.lacking, one.count) for one in other.differences) == [
        ("ends-earlier", "a", 24),
        ("starts-later", "b", 24),
    ]
    (unlike,) = kseg.diff(ROLLED, HEADERS)
    assert (unlike.verdict, unlike.comparison) == ("other-topic-id", None)
    for broker in ("b1", "b2"):
        shutil.copytree(ROLLED, tmp_path / broker / "orders-0")
    shutil.copytree(HEADERS, tmp_path / "b2" / "clicks-0")
    assert [(one.pair.topic, one.verdict) for one in kseg.diff(tmp_path / "b1", tmp_path / "b2")] == [
        ("clicks", "missing-in-a"),
        ("orders", "identical"),
    ]
    with pytest.raises(kseg.UsageError):
        kseg.diff(tmp_path / "b1", ROLLED)
    log_dir, *plans = kseg.recovery(tmp_path / "b2", clean=False)
    assert isinstance(log_dir, kseg.LogDirPlan)
    assert [(plan.topic, plan.partition) for plan in plans if isinstance(plan, kseg.PartitionPlan)] == [
        ("clicks", 0),
        ("orders", 0),
    ]


def test_schemas_decode_what_registry_clients_wrote() -> None:
    """The values that Confluent's serializers wrote, as their deserializers read them."""
    pytest.importorskip("fastavro", reason="fastavro is not installed")
    schemas = kseg.Schemas(SERIALIZED)
    assert {schema.subject for schema in schemas} >= {"orders-value", "users-value"}
    wanted = rows("dump", "--deep", "--schemas", SERIALIZED, SERIALIZED / "orders-0")
    records = list(kseg.open_partition(SERIALIZED / "orders-0").records())
    decoded = [schemas.decode(record.value, "orders", headers=record.headers) for record in records]
    assert [(one.value, one.schema_id) for one in decoded] == [
        (row["value_decoded"], row["value_schema_id"]) for row in wanted
    ]
    assert any(one.value for one in decoded)
    assert [schemas.decode_record(record)[1] for record in records] == decoded
    assert schemas.decode(None) == kseg.DecodedValue()
    assert schemas.decode(b"\0\0\0\0\x63x").error
    with pytest.raises(kseg.UsageError):
        schemas.decode(b"", side="values")
    for arguments in ((), (ROLLED,)):
        with pytest.raises(kseg.KsegError):
            kseg.Schemas(*arguments)


def test_scan_reads_the_schemas_once(tmp_path: Path) -> None:
    """Each stream of a scan has them, although their source is gone; a copy in another process reads its own."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("fastavro", reason="fastavro is not installed")
    source = shutil.copytree(SERIALIZED / "_schemas-0", tmp_path / "_schemas-0")
    found = kseg.scan(SERIALIZED / "orders-0", columns=["value_decoded"], schemas=source)
    shutil.rmtree(source)
    rows = found.to_table().to_pylist()
    assert any(row["value_decoded"] for row in rows)
    assert found.to_table().to_pylist() == rows
    assert found.__reduce__()[1][0].decoder is None


def test_scan_decodes() -> None:
    """``schemas`` adds the columns of ``kseg sql``, and ``decoded`` is returned on request."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("fastavro", reason="fastavro is not installed")
    folder = SERIALIZED / "orders-0"
    wanted = [row["value_decoded"] for row in rows("dump", "--deep", "--schemas", SERIALIZED, folder)]
    for given in (SERIALIZED, [SERIALIZED], kseg.Schemas(SERIALIZED)):
        found = kseg.scan(folder, columns=["offset", "value_decoded"], schemas=given).to_table()
        assert [value and json.loads(value) for value in found.column("value_decoded").to_pylist()] == wanted
    assert "value_decoded" in kseg.scan(ROLLED, value_as="json").schema.names
    assert "value_decoded" not in kseg.scan(ROLLED).schema.names
    offsets = SEGMENTS / "4.3.0-v2-none-internal-consumer-offsets"
    assert kseg.scan(offsets, columns=["decoded", "key_encoding"]).to_table().column_names == [
        "decoded",
        "key_encoding",
    ]


def test_messages_of_findings_are_escaped() -> None:
    """Bytes of a file reach a terminal or a log through ``finding.message``."""
    finding = kseg.Finding("malformed-record", facts={"index": 1, "why": "\x1b[31m \u202e ends"})
    assert finding.message == r"record 1: \x1b[31m \u202e ends"
    assert kseg.Verdict("f", kseg.Severity.ERROR, finding).message == finding.message
    assert kseg.Finding("malformed-record", facts={"index": 1, "why": "é \\x"}).message == "record 1: é \\x"
