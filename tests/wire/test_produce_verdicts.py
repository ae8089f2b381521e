"""Verdicts on produce requests: against Kafka's own append, real brokers, and in the output of validate."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from hypothesis import given, settings
from hypothesis import strategies as st

from kseg import results
from kseg.extras.wire.produce_verdict import COMPRESSION_TYPES, judge_request
from kseg.extras.wire.set_validation import TopicSettings
from tests.support.cli import invoke
from tests.support.fuzzing import cases
from tools import make_findings, statement_bytes
from tools.lab import produce_oracle

OLD = make_findings.STREAMS / "0.8.2.2" / "02.requests"
NEW = make_findings.STREAMS / "4.3.0-java" / "03.requests"
TOPIC = TopicSettings(now=1_700_000_000_000)


def kseg(*arguments: str | Path) -> Result:
    return invoke("validate", "--as", "requests", *(str(argument) for argument in arguments))


def verdicts(*arguments: str | Path) -> list[dict[str, Any]]:
    *_, summary = [json.loads(line) for line in kseg("--format", "jsonl", *arguments).stdout.splitlines()]
    found: list[dict[str, Any]] = summary.get("produce_verdicts", [])
    return found


def test_kafkas_recorded_answers_are_the_verdicts() -> None:
    """Kafka's answers were recorded, so this test runs without Kafka."""
    found: Counter[str] = Counter()
    for made, answers in produce_oracle.recorded():
        assert list(produce_oracle.differences(made, answers, found)) == [], made.seed
    assert {*found} >= {
        "accepted", "rewritten", "INVALID_RECORD", "MESSAGE_TOO_LARGE", "INVALID_TIMESTAMP", "CORRUPT_MESSAGE",
        "UNKNOWN_SERVER_ERROR", "UNSUPPORTED_COMPRESSION_TYPE", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    }  # fmt: skip


@pytest.mark.kafka
def test_the_recorded_answers_are_kafkas() -> None:
    """The recorded answers are Kafka's, not kseg's."""
    with produce_oracle.ProduceAppend() as kafka:
        for made, answers in produce_oracle.recorded():
            assert [{**answer, "message": None} for answer in kafka.append(made)] == answers, made.seed


@pytest.mark.kafka
@pytest.mark.fuzz
@pytest.mark.parametrize("broker", ["4.3.0", "3.9.1"])
def test_kafkas_leader_does_what_is_predicted(broker: str) -> None:
    """Error names, and the written batch: version, codec, records, bytes and the largest timestamp, for each seed."""
    seeds = range(cases(1000))
    found = [(made.seed, text) for made, text in produce_oracle.disagreements(seeds, version=broker)]
    assert not found


@pytest.mark.kafka
@pytest.mark.parametrize("broker", ["4.3.0", "3.9.1"])
def test_real_brokers_answer_what_is_predicted(broker: str, tmp_path: Path) -> None:
    """The whole way of a request: its parsing, the checks of the request, and the append."""
    from tools.lab import produce_broker

    assert list(produce_broker.differences(broker, tmp_path / "broker", 200)) == []


@pytest.mark.kafka
def test_kafka_4_closes_the_connection_of_an_old_client(tmp_path: Path) -> None:
    """Versions 0 to 2 lack a verdict of Kafka 4, because it does not read them."""
    from tools.lab import produce_broker

    assert [produce_broker.is_answered("4.3.0", tmp_path / str(version), version) for version in (2, 3)] == [
        False,
        True,
    ]


@pytest.mark.slow
@settings(max_examples=cases(100))
@given(st.data())
def test_any_bytes_have_a_verdict(data: st.DataObject) -> None:
    """Damaged requests end in a verdict with a reason, never in an exception."""
    made, _ = data.draw(st.sampled_from(produce_oracle.recorded()[:100]))
    sets = []
    for stored in made.sets:
        damaged = bytearray(stored[: data.draw(st.integers(0, len(stored)))])
        for at, byte in data.draw(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 255)), max_size=3)):
            damaged[at : at + 1] = bytes([byte])
        sets.append(memoryview(damaged))
    for verdict in judge_request(made.version, made.acks, made.transactional_id, sets, made.topic):
        assert verdict.outcome in ("accepted", "rewritten", "rejected", "undetermined")
        assert verdict.outcome == "accepted" or verdict.why
        assert bool(verdict.error) == (verdict.outcome == "rejected")


def test_a_request_has_a_verdict_for_each_partition() -> None:
    """The row names the request, the partition, and the batch that a leader appends."""
    first, second = verdicts(NEW)
    wanted = {
        "position": 147, "size": 131, "frame": 91, "api_version": 13, "correlation_id": 6, "client_id": "producer-1",
        "topic": None, "topic_id": "NFgTFu9-QgavYx47QRBByw", "partition": 0, "broker": "4.3", "outcome": "accepted",
        "error": None, "why": "", "magic": 2, "compression": "snappy", "records": 2, "bytes": 131,
    }  # fmt: skip
    assert {name: first[name] for name in wanted} == wanted
    assert second["outcome"] == "accepted"
    old = verdicts(OLD)[0]
    assert (old["topic"], old["broker"], old["outcome"], old["magic"]) == ("orders", "3.9", "rewritten", 2)
    assert (old["why"], old["max_timestamp"], old["bytes"]) == ("magic 0 becomes 2", None, None)


@pytest.mark.parametrize(
    ("options", "outcome", "error"),
    [
        (("--max-message-bytes", "100"), "rejected", "MESSAGE_TOO_LARGE"),
        (("--compacted",), "rejected", "INVALID_RECORD"),
        (("--timestamp-before-max-ms", "1000"), "rejected", "INVALID_TIMESTAMP"),
        (("--compression-type", "zstd"), "rewritten", None),
        (("--compression-type", "snappy"), "accepted", None),
    ],
)
def test_the_settings_of_the_topic_decide(options: tuple[str, ...], outcome: str, error: str | None) -> None:
    """Each option is a setting of the topic, and decides for the request of a real client."""
    first = verdicts(*options, NEW)[0]
    assert (first["outcome"], first["error"]) == (outcome, error)


def test_each_value_of_compression_type_is_an_option() -> None:
    """The values are those of Kafka's setting; the batch that is appended has the codec."""
    for name in COMPRESSION_TYPES:
        wanted = {"producer": "snappy", "uncompressed": "none"}.get(name, name)
        assert verdicts("--compression-type", name, NEW)[0]["compression"] == wanted


def test_the_table_has_the_reason_and_the_broker() -> None:
    """Accepted record sets are only counted; the worst comes first; old requests have a note."""
    done = kseg("--compression-type", "lz4", OLD, NEW)
    assert "magic 0 becomes 2, gzip becomes lz4" in done.stdout
    assert "3.9" in done.stdout
    assert "Kafka 4 closes the connection" in done.stdout
    assert "produce requests: 4 record sets: 4 rewritten" in done.stdout
    accepted = kseg(NEW).stdout
    assert "why" not in accepted
    assert "2 record sets: 2 accepted" in accepted


def test_one_set_can_fail_the_whole_request() -> None:
    """KafkaApis reads the first batch of every set before it appends one: a damaged header fails all partitions."""
    good, bad = memoryview(statement_bytes.batch(0, [])), memoryview(bytes(17))
    both = judge_request(9, -1, None, [good, bad], TOPIC)
    assert {(one.outcome, one.error) for one in both} == {("rejected", "CORRUPT_MESSAGE")}
    assert all("fails the whole request" in one.why for one in both)


def test_the_content_of_a_file_is_escaped(tmp_path: Path) -> None:
    """A topic name is data from the wire."""
    path = tmp_path / "requests"
    path.write_bytes(statement_bytes.produce(b"", topic="a\x1b[31m"))
    assert "\x1b" not in kseg("--compression-type", "gzip", path).stdout
    path.write_bytes(statement_bytes.produce(bytes(30), topic="a\x1b[31m"))
    shown = kseg(path).stdout
    assert "CORRUPT_MESSAGE" in shown
    assert "\x1b" not in shown


def test_rows_are_limited_and_all_verdicts_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture has any number of requests."""
    monkeypatch.setattr(results, "MAX_PRODUCED", 3)
    path = tmp_path / "requests"
    path.write_bytes(NEW.read_bytes() * 5)
    (summary,) = [json.loads(line) for line in kseg("--format", "jsonl", path).stdout.splitlines()]
    assert len(summary["produce_verdicts"]) == 3
    assert summary["produce_outcomes"] == {"accepted": 10}


def test_a_run_that_does_not_read_everything_has_no_verdicts() -> None:
    """Without CRCs or records, a verdict would be a guess."""
    assert verdicts("--no-crc", NEW) == verdicts("--shallow", NEW) == []
