"""Requests and responses of real clients and brokers, old and new: every field equals that of Kafka's own classes."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kseg as kseg_library
from kseg.commands.validate.validate import validate_segment
from kseg.errors import UsageError
from kseg.extras.wire import apis, connections
from kseg.format.segment.records_chunk import Header
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.results import Settings
from tests.support.cli import invoke
from tests.support.cli import rows_of as rows
from tests.support.fuzzing import cases

STREAMS = Path(__file__).parents[2] / "fixtures" / "streams"
FOLDERS = sorted(path.parent for path in STREAMS.glob("*/expect.jsonl"))
PRODUCED = STREAMS / "4.3.0-java" / "03.requests"
OF_FRAMES = ("kind", "file", "position", "api_key", "api_name", "api_version", "correlation_id", "client_id", "body")


def pair(requests: Path) -> tuple[str | Path, ...]:
    return "--as", "requests", "--as", "responses", requests, requests.with_suffix(".responses")


def of_folder(folder: Path, *options: str) -> list[dict[str, Any]]:
    """Return the rows of all connections, with files by their names."""
    found = [row for path in sorted(folder.glob("*.requests")) for row in rows("dump", *pair(path), *options)]
    return [{**row, "file": Path(row["file"]).name} for row in found]


def test_there_are_streams_of_every_kind() -> None:
    """A glob without matches would let every comparison below pass."""
    lines = [json.loads(line) for folder in FOLDERS for line in (folder / "expect.jsonl").read_text().splitlines()]
    requested = {(row["api_name"], row["api_version"]) for row in lines if row["kind"] == "request"}
    assert {("Produce", 0), ("Produce", 1), ("Produce", 2), ("Fetch", 0), ("Fetch", 1), ("Fetch", 3)} <= requested
    assert {("Produce", 3), ("Produce", 9), ("Produce", 13), ("Fetch", 5), ("Fetch", 12), ("Fetch", 18)} <= requested
    assert {("ApiVersions", 4), ("JoinGroup", 9), ("OffsetCommit", 9)} <= requested
    assert {name for name, _ in requested} >= {
        "Metadata",
        "InitProducerId",
        "CreateTopics",
        "DescribeConfigs",
        "UpdateMetadata",
    }


@pytest.mark.parametrize("path", sorted(STREAMS.glob("*/*.re*s")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_kind_of_a_capture_is_named(path: Path) -> None:
    """Whoever reads it without --as is told which one it needs; with batches in it, by the first finding."""
    done = invoke("dump", path)
    way = "`--as requests`" if path.suffix == ".requests" else "`--as requests --as responses REQUESTS RESPONSES`"
    assert done.exit_code
    assert f"read them with {way}" in done.stderr.splitlines()[0]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_frames_equal_kafkas(folder: Path) -> None:
    """Header and body, field by field."""
    expected = [json.loads(line) for line in (folder / "expect.jsonl").read_text(encoding="utf-8").splitlines()]
    frames = [row for row in of_folder(folder) if row["kind"] in ("request", "response")]
    assert [{name: row[name] for name in OF_FRAMES if name in row} for row in frames] == expected


@pytest.mark.parametrize(
    "folder", sorted(path.parent for path in STREAMS.glob("*/sent.json")), ids=lambda path: path.name
)
def test_records_are_those_that_were_sent(folder: Path) -> None:
    """Produced and consumed again: the records that the client had, in the frame of the right API."""
    sent = json.loads((folder / "sent.json").read_text(encoding="utf-8"))
    found = of_folder(folder, "--bytes", "hex")
    frames = {(row["file"], row["position"]): row for row in found if row["kind"] in ("request", "response")}
    for kind, api in (("request", "Produce"), ("response", "Fetch")):
        records = [row for row in found if row["kind"] == "record" and row["file"].endswith(f"{kind}s")]
        assert [[row["key"], row["value"]] for row in records] == sent
        for row in records:
            frame = frames[row["file"], row["frame"]]
            assert (frame["api_name"], frame["correlation_id"]) == (api, row["correlation_id"])
            assert frame["position"] < row["position"] < frame["position"] + 4 + frame["size"]
            assert row["partition"] == 0
            # Clients of 4.x name topics by id alone; a Metadata response on the Java consumer's connection has the
            # name.
            reported = row["topic_id"] is None or (folder.name, kind) == ("4.3.0-java", "response")
            assert (row["topic"], len(row["topic_id"] or "")) == (
                "orders" if reported else None,
                22 if row["topic_id"] else 0,
            )


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_real_streams_are_sound(folder: Path) -> None:
    """The frames of brokers and clients are not damage; a client's quirk and a fetch's end are reported."""
    for path in sorted(folder.glob("*.requests")):
        *found, summary = rows("validate", *pair(path))
        assert summary["verdict"] == "sound"
        assert {finding["rule"] for finding in found} <= {"body-left-over", "partial-entry", "codec-quirk"}


def test_a_last_entry_in_part_is_a_fetchs_end() -> None:
    """0.8's consumer had room for 200 bytes: the second message came in part, then completely."""
    *found, summary = rows("validate", *pair(STREAMS / "0.8.2.2" / "05.requests"))
    assert [(finding["rule"], finding["severity"]) for finding in found] == [("partial-entry", "info")]
    assert (summary["lost_bytes"], summary["batches"]) == (0, 2)


def test_responses_alone_are_shown_as_they_are() -> None:
    """A response does not contain the API that it answers."""
    (first, *_) = rows("dump", "--as", "responses", PRODUCED.with_suffix(".responses"))
    assert (first["api_key"], first["api_name"], first["body_encoding"]) == (None, None, "base64")


def test_bodies_that_were_not_decoded_are_not_called_sound(tmp_path: Path) -> None:
    """Neither without the requests nor with an unknown API; ignoring the rule does not make a body read."""
    for more in ((), ("--rule", "unread-bodies=ignore")):
        *_, summary = rows("validate", "--as", "responses", *more, PRODUCED.with_suffix(".responses"))
        assert (summary["verdict"], summary["unchecked"]) == ("undetermined", 1)
    path = tmp_path / "a"
    path.write_bytes(PRODUCED.read_bytes() + frame(header(999, 0), b"body"))
    done = invoke("validate", "--as", "requests", path)
    assert done.stdout.splitlines()[-1].startswith("undetermined: ")
    assert "bodies of frames were not checked" in done.stdout


def test_the_library_has_the_rows_with_their_bytes() -> None:
    """``framed_rows`` returns keys and values as bytes."""
    found = list(kseg_library.framed_rows(PRODUCED, "requests"))
    assert [row["value"] for row in found if row["kind"] == "record"][:2] == [b"this is the first message", b"no key"]
    answers = list(kseg_library.framed_rows(PRODUCED.with_suffix(".responses"), "responses", requests=PRODUCED))
    assert [row["api_name"] for row in answers] == ["ApiVersions", "InitProducerId", "Produce", "Produce"]
    with pytest.raises(UsageError, match="expected message-set, message, wide-crc, requests or responses"):
        kseg_library.framed_rows(PRODUCED, "frames")


def test_header_keys_that_are_not_utf_8_stay_different(tmp_path: Path) -> None:
    """The library keeps their bytes, as ``Header`` does; outputs replace them as Kafka does, in frames, too."""
    records = build_batch([PlainRecord(0, None, None, 0, (Header("\udca0", None), Header("\udca1", b"x")))])
    topic = struct.pack(">ih1sii", 1, 1, b"t", 1, 0) + struct.pack(">i", len(records)) + records
    path, target = tmp_path / "a", tmp_path / "rows.parquet"
    path.write_bytes(frame(header(0, 3), struct.pack(">hhi", -1, 1, 100) + topic))
    _, row = kseg_library.framed_rows(path, "requests")
    assert [one["key"] for one in row["headers"]] == ["\udca0", "\udca1"]
    assert [one["key"] for one in rows("dump", "--as", "requests", path)[1]["headers"]] == ["\ufffd"] * 2
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    assert invoke("dump", "--as", "requests", "--format", "parquet", "-o", target, path).exit_code == 0
    assert [one["key"] for one in parquet.read_table(target)["headers"][1].as_py()] == ["\ufffd"] * 2


def test_every_format_has_frames_and_records(tmp_path: Path) -> None:
    """Each format has the header of a frame and its records."""
    for name in ("table", "csv", "text"):
        out = invoke("dump", "--as", "requests", "--format", name, PRODUCED).stdout
        for word in ("Produce", "producer-1", "this is the first message"):
            assert word in out, name
    assert invoke("dump", "--as", "requests", "--format", "parquet", "-o", tmp_path / "p", PRODUCED).exit_code == 0
    import pyarrow.parquet as pq

    found = pq.read_table(tmp_path / "p").to_pylist()
    assert [row["kind"] for row in found] == ["request"] * 3 + ["record"] * 2 + ["request"] + ["record"] * 3
    assert json.loads(found[2]["body"])["acks"] == -1
    assert found[3]["value"] == b"this is the first message"
    entries = rows("dump", "--as", "requests", "--shallow", PRODUCED)
    assert [row["record_count"] for row in entries if row["kind"] == "batch"] == [2, 3]


def test_files_of_responses_need_their_requests() -> None:
    """Responses can be decoded only with their requests."""
    done = invoke("dump", "--as", "requests", "--as", "requests", "--as", "responses", PRODUCED, PRODUCED, PRODUCED)
    assert (done.exit_code, "needs a file of requests" in done.stderr) == (2, True)
    done = invoke("dump", "--as", "requests", "--as", "responses", "-", PRODUCED.with_suffix(".responses"))
    assert (done.exit_code, "standard input" in done.stderr) == (2, True)


def frame(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return struct.pack(">i", len(body)) + body


def header(key: int, version: int, correlation_id: int = 1) -> bytes:
    return struct.pack(">hhih", key, version, correlation_id, -1)


def test_a_broker_answers_version_0_where_it_does_not_know_the_asked(tmp_path: Path) -> None:
    """KIP-511: a client does not know the supported versions beforehand."""
    requests, responses = tmp_path / "a", tmp_path / "b"
    requests.write_bytes(frame(header(18, 4), b"\x00\x02a\x02b\x00"))
    responses.write_bytes(frame(struct.pack(">ihi", 1, 35, 1), struct.pack(">hhh", 18, 0, 3)))
    answer = rows("dump", *("--as", "requests", "--as", "responses", requests, responses))[-1]
    wanted = {"errorCode": 35, "apiKeys": [{"apiKey": 18, "minVersion": 0, "maxVersion": 3}]}
    assert (answer["api_name"], answer["api_version"], answer["body"]) == ("ApiVersions", 0, wanted)


def test_a_request_without_a_client_id(tmp_path: Path) -> None:
    """Only ControlledShutdown of 0.8 has the oldest header."""
    path = tmp_path / "a"
    path.write_bytes(frame(struct.pack(">hhii", 7, 0, 5, 3)))
    (row,) = rows("dump", "--as", "requests", path)
    assert (row["api_name"], row["client_id"], row["body"]) == ("ControlledShutdown", None, {"brokerId": 3})


def test_what_is_not_known_is_shown_raw(tmp_path: Path) -> None:
    """A frame of an unknown API is shown as bytes."""
    path = tmp_path / "a"
    path.write_bytes(frame(header(999, 0), b"body") + frame(header(0, 99), b"body") + PRODUCED.read_bytes())
    done = invoke("dump", "--as", "requests", "--format", "jsonl", path)
    first, second, *others = map(json.loads, done.stdout.splitlines())
    assert (first["api_key"], first["api_name"], first["body"], first["body_encoding"]) == (
        999,
        None,
        "Ym9keQ==",
        "base64",
    )
    assert (second["api_name"], second["api_version"], second["body"]) == ("Produce", 99, "Ym9keQ==")
    assert (done.exit_code, done.stderr.count("unknown-api"), len(others)) == (0, 2, 9)


def test_an_unknown_api_is_named_whatever_its_header_is(tmp_path: Path) -> None:
    """The header of an unknown API is unknown, too: that it cannot be read is not the client's fault."""
    path = tmp_path / "a"
    path.write_bytes(frame(struct.pack(">hhih", 30_000, 3, 7, 50), b"abc"))
    finding, summary = rows("validate", "--as", "requests", path)
    assert (finding["rule"], finding["facts"]["api_key"]) == ("unknown-api", 30_000)
    assert (summary["lost_bytes"], summary["verdict"]) == (0, "undetermined")


def test_requests_in_a_segments_place_are_recognised(tmp_path: Path) -> None:
    """By their first frame, if its API is Kafka's; an unknown API number is not a hint."""
    for path in STREAMS.glob("*/00.requests"):
        done = invoke("validate", path)
        assert (done.exit_code, "--as requests" in done.stderr) == (2, True), path
    path = tmp_path / "a"
    for head in (header(999, 0), header(18, 99), header(18, 0)[:-2] + b"\x7f\xff"):
        path.write_bytes(frame(head, b"body"))
        assert "read them with `--as requests`" not in invoke("validate", path).stderr


def test_a_huge_body_of_an_unknown_api_is_not_held_several_times(tmp_path: Path) -> None:
    """Memory is that of one frame: the printed part has a limit."""
    path = tmp_path / "a"
    path.write_bytes(frame(struct.pack(">i", 1), bytes(3 << 20)) + frame(struct.pack(">i", 2), b"next"))
    first, second = rows("dump", "--as", "responses", path)
    assert (first["size"], len(first["body"])) == ((3 << 20) + 4, -(-(1 << 20) // 3) * 4)
    assert second["body"] == "bmV4dA=="


def test_reading_continues_after_a_wrong_size(tmp_path: Path) -> None:
    """A wrong size costs one frame."""
    path = tmp_path / "a"
    data = PRODUCED.read_bytes()
    for size in (-1, 3, 1 << 30, 5000):
        path.write_bytes(frame(header(18, 0)) + struct.pack(">i", size) + b"\x01\x02\x03\x04\x05" + data)
        finding, summary = rows("validate", "--as", "requests", path, code=1)
        assert (finding["rule"], finding["position"], finding["end"]) == ("frame-size", 14, 23)
        assert (summary["lost_bytes"], summary["records"]) == (9, 5)


def test_tokens_of_sasl_are_frames(tmp_path: Path) -> None:
    """After SaslHandshake of version 0, tokens without a header come: they are not lost bytes (KIP-152)."""
    path = tmp_path / "a"
    tokens = frame(b"n,,n=admin,r=1q2w3e4r5t") + frame(b"c=biws,r=1q2w3e4r5t,p=dGhlIHByb29m")
    path.write_bytes(frame(header(17, 0), b"\0\rSCRAM-SHA-256") + tokens + PRODUCED.read_bytes())
    found = rows("dump", "--as", "requests", "--shallow", path)
    assert [row["api_name"] for row in found if row["kind"] == "request"][:4] == [
        "SaslHandshake",
        None,
        None,
        "ApiVersions",
    ]


def test_two_requests_can_share_a_byte(tmp_path: Path) -> None:
    """The last byte of a request and the first one of the next size are 0. If one is lost, both requests are complete."""
    path, data = tmp_path / "a", PRODUCED.read_bytes()
    *_, last = (row["position"] for row in rows("dump", "--as", "requests", PRODUCED) if row["kind"] == "request")
    path.write_bytes(data[:last] + data[last + 1 :])
    finding, summary = rows("validate", "--as", "requests", path, code=1)
    assert (finding["rule"], finding["position"], finding["end"]) == ("frame-size", last, last)
    assert (summary["lost_bytes"], summary["records"]) == (0, 5)
    assert f"at {last - 1}, " in invoke("dump", "--as", "requests", "--format", "hex", path).stdout


def test_an_array_is_no_way_to_fill_the_memory() -> None:
    """A byte of the frame becomes an object of hundreds: a Metadata request of ten million topics is not decoded."""
    count = 10_000_000
    data = header(3, 4, 7)[4:]
    body = struct.pack(">i", count) + b"\x00" * (2 * count)
    message = apis.read_request(memoryview(struct.pack(">hh", 3, 4) + data + body))
    assert message.body is None
    assert message.fault is not None
    assert "items" in message.fault[1]["why"]


def test_answers_of_one_id_come_in_the_order_of_their_requests(tmp_path: Path) -> None:
    """As Kafka 0.8's controller numbers its requests: also if one answer waits for another."""
    requests, responses = tmp_path / "a", tmp_path / "b"
    requests.write_bytes(frame(header(4, 0, 7)) + frame(header(6, 0, 7)) + frame(header(18, 0, 8)))
    responses.write_bytes(b"".join(frame(struct.pack(">ih", number, 0)) for number in (8, 7, 7)))
    found = rows("dump", "--as", "requests", "--as", "responses", requests, responses, code=1)
    assert [row["api_key"] for row in found if row["kind"] == "response"] == [18, 4, 6]


def test_requests_are_read_only_as_far_as_they_are_answered(tmp_path: Path) -> None:
    """Missing answers don't fill the memory, and an unknown id doesn't use up the requests."""
    path = tmp_path / "a"
    path.write_bytes(b"".join(frame(header(18, 0, number)) for number in range(25_000)))
    requested = connections._SentRequests(str(path))
    assert requested.find(3) == (18, 0)
    assert requested.find(-1) is None
    assert requested.find(9_000) == (18, 0)
    assert requested.find(18_000) == (18, 0)
    assert len(requested._waiting) <= 2 * 10_000 + 1
    requested.close()


def pieces() -> Iterator[bytes]:
    for folder in FOLDERS:
        for path in sorted(folder.glob("*.requests")):
            yield path.read_bytes()
            yield path.with_suffix(".responses").read_bytes()


PIECES = list(pieces())


@settings(max_examples=cases(60))
@given(st.data())
def test_any_bytes_end_in_findings(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Flips and cuts of either direction: never an exception."""
    at = 2 * data.draw(st.integers(0, len(PIECES) // 2 - 1))
    files = []
    for name, sound in zip(("requests", "responses"), PIECES[at : at + 2], strict=True):
        raw = bytearray(sound)
        for place in data.draw(st.lists(st.integers(0, len(raw) - 1), max_size=3)):
            raw[place] ^= data.draw(st.integers(1, 255))
        del raw[data.draw(st.integers(len(raw) // 2, len(raw))) :]
        files.append(tmp_path_factory.getbasetemp() / f"fuzzed.{name}")
        files[-1].write_bytes(raw)
    for file in (
        SegmentFile(str(files[0]), framing="requests"),
        SegmentFile(str(files[1]), framing="responses", requests=str(files[0])),
    ):
        result = validate_segment(file, Settings())
        assert result.unread is None
        assert result.summary.bytes == Path(file.path).stat().st_size
    assert invoke("dump", "--as", "requests", "--as", "responses", *files).exit_code in (0, 1)


@pytest.mark.kafka
def test_kafkas_classes_say_so_today() -> None:
    """The stored expectations are the output of Kafka's classes, and not edited."""
    from tools.lab.streams import judge_of, said

    for version in {judge_of(folder) for folder in FOLDERS}:
        judged = [folder for folder in FOLDERS if judge_of(folder) == version]
        kept = "".join((folder / "expect.jsonl").read_text(encoding="utf-8") for folder in judged)
        assert said(version, judged) == kept, version
