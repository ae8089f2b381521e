"""What client libraries read of the fixtures (``fixtures/clients.jsonl``), compared with what kseg reads."""

from __future__ import annotations

import json
from collections import defaultdict
from hashlib import sha256

import kseg
from tests.support.cli import ROOT
from tools.lab.clients.consume import row

FIXTURES = ROOT / "fixtures"
RESULTS = [json.loads(line) for line in (FIXTURES / "clients.jsonl").read_text(encoding="utf-8").splitlines()]
ALL = {"java", "librdkafka", "franz-go", "sarama", "kafka-python", "aiokafka"}
#: The clients whose records are not the first ones that kseg reads, or that end without an error before the last one.
OTHER = {
    # Sarama and franz-go keep the timestamps of the producer in v1 batches that a broker compressed with its own time.
    "segments/0.10.2.2-v1-gzip-log-append-time": {"franz-go", "sarama"},
    "segments/0.10.2.2-v1-lz4-log-append-time": {"franz-go", "sarama"},
    # librdkafka checks no CRC by default. The others stop.
    "findings/crc-mismatch": {"librdkafka"},
    # The name of the file is the first offset for a broker: consumers never ask for the batches before it.
    "findings/file-name-mismatch": ALL,
    # The broker looks at the wrong place, because of the index.
    "findings/index-mismatch": {"java", "librdkafka", "kafka-python", "aiokafka"},
    # What is decompressed before the fault differs.
    "findings/inner-crc-mismatch": {"franz-go"},
    "findings/mixed-wrapper-codecs": {"librdkafka"},
    "findings/nested-compression": {"librdkafka"},
    # franz-go skips a batch whose offsets do not fit its number of records.
    "findings/invalid-offset-range": {"franz-go"},
    # Sarama reads timestamps before -1 as another number.
    "findings/invalid-timestamp": {"sarama"},
    # kseg shows 10,000 headers of a record.
    "findings/limit-reached": ALL,
    # Consumers skip records before the offset that they expect.
    "findings/non-monotonic-offset": {"java", "franz-go", "sarama", "aiokafka"},
    "findings/record-offset-mismatch": {"java", "franz-go", "sarama", "aiokafka"},
    # The batch has more records than its header says, and librdkafka reads all of them.
    "findings/record-count-mismatch": {"librdkafka"},
    # The first file that the broker reads has the offsets of a later one.
    "findings/segment-order": ALL,
}
#: Its keys are not UTF-8, which most clients cannot return.
NOT_COMPARED = "findings/invalid-header-key"


def test_kseg_reads_the_records_that_clients_read() -> None:
    """Six client libraries and kseg agree on the rows of each fixture, but for the listed cases and up to their errors."""
    other: dict[str, set[str]] = defaultdict(set)
    compared = 0
    for files in sorted({one["files"] for one in RESULTS if one["client"]} - {NOT_COMPARED}):
        rows = [
            row(one.offset, one.timestamp, one.key, one.value, [(header.key, header.value) for header in one.headers])
            for one in kseg.open_partition(FIXTURES / files).records()
            if one.control is None
        ]
        for one in (one for one in RESULTS if one["files"] == files):
            first = sha256(b"".join(rows[: one["records"]])).hexdigest()
            if first != one["sha256"] or (one["records"] < len(rows) and "error" not in one):
                other[files].add(one["client"].split()[0])
            compared += 1
    assert dict(other) == OTHER
    assert compared > 1000


def test_clients_without_an_error_read_all_records_that_brokers_wrote() -> None:
    """The result of a client that was not run, or that stopped for a reason of this machine, would be missing or short."""
    clients = {one["client"] for one in RESULTS if one["client"]}
    assert {name.split()[0] for name in clients} == ALL
    for files in sorted({one["files"] for one in RESULTS}):
        found = {one["client"]: one for one in RESULTS if one["files"] == files}
        assert set(found) in (clients, {None}), files
        java = next((one for name, one in found.items() if name and name.startswith("java")), None)
        if files.startswith("segments/"):
            assert java is not None, files
            assert "error" not in java, files
