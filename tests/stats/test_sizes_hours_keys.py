"""`kseg stats` counts sizes of records, hours and keys as an independent count of the same records does."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from html import escape
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from kseg.commands.stats import totals
from kseg.commands.stats.counting import EXACT, SIZES, largest_in, size_bucket
from kseg.commands.stats.levels import levels, stats_of
from kseg.format.storage.segment_files import find_segments
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.report.stats_rows import stats_row
from kseg.results import Settings
from kseg.text import iso_time
from tests.support.cli import invoke

HOUR = 3_600_000


def total(*arguments: object) -> dict[str, Any]:
    run = invoke("stats", "--format", "jsonl", *arguments)
    assert run.exit_code == 0, run.stderr
    row: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return row


def write(folder: Path, batches: list[bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    return folder


def test_each_size_has_one_bucket() -> None:
    """Buckets follow each other, and are at most an eighth of their sizes wide."""
    sizes = [*range(5000), *(2**power + delta for power in range(13, 31) for delta in (-1, 0, 1))]
    for size in sizes:
        bucket = size_bucket(size)
        assert 0 <= bucket < SIZES
        assert size <= largest_in(bucket) <= size + size // (EXACT // 2)
        assert size_bucket(largest_in(bucket)) == bucket
        assert size_bucket(largest_in(bucket) + 1) == bucket + 1


@pytest.mark.parametrize("seed", range(4))
def test_random_records(seed: int, tmp_path: Path) -> None:
    """Percentiles within an eighth, hours and keys exactly, in two segments and with and without compression."""
    chance = random.Random(seed)
    sizes: list[int] = []
    hours: defaultdict[int, Counter[str]] = defaultdict(Counter)
    keys: defaultdict[str | None, list[float]] = defaultdict(lambda: [0, 0])
    batches, offset = [], 0
    for _ in range(60):
        records = []
        time = chance.randrange(40) * HOUR + chance.randrange(HOUR)
        for _ in range(chance.randint(1, 20)):
            key = None if chance.random() < 0.1 else b"k%d" % chance.randrange(12)
            value = None if chance.random() < 0.1 else chance.randbytes(int(chance.expovariate(0.01)))
            records.append(PlainRecord(offset, key, value, time))
            offset += 1
        batch = build_batch(records, compression=chance.choice(["none", "gzip", "zstd"]))
        batches.append(batch)
        hours[time // HOUR].update(batches=1, bytes=len(batch), records=len(records))
        contents = [len(one.key or b"") + len(one.value or b"") for one in records]
        sizes += contents
        for one, size in zip(records, contents, strict=True):
            found = keys[one.key.decode() if one.key is not None else None]
            found[0] += 1
            found[1] += len(batch) * (size + 8) / sum(content + 8 for content in contents)
    folder = write(tmp_path / "orders-0", batches)
    row = total("--deep", "--top-keys", "--limit", 100, folder)
    assert row["by_hour"] == [{"timestamp": hour * HOUR, **hours[hour]} for hour in sorted(hours)]
    assert row["hours_exact"]
    ordered = sorted(sizes)
    for part in (50, 90, 99):
        exact = ordered[-(-len(sizes) * part // 100) - 1]
        assert exact <= row["record_size"][f"p{part}"] <= exact + exact / 8
    assert row["record_size"]["max"] == ordered[-1]
    assert {one["key"]: one["records"] for one in row["keys"]["top"]} == {key: one[0] for key, one in keys.items()}
    for one in row["keys"]["top"]:
        assert abs(one["disk_bytes"] - keys[one["key"]][1]) <= one["records"]  # each record is rounded
    assert row["keys"]["exact"]
    assert [one["disk_bytes"] for one in row["keys"]["top"]] == sorted(
        (one["disk_bytes"] for one in row["keys"]["top"]), reverse=True
    )
    assert abs(sum(one["disk_bytes"] for one in row["keys"]["top"]) - row["bytes"]) <= len(sizes)
    assert len(total("--deep", "--top-keys", "--limit", 3, folder)["keys"]["top"]) == 3
    shallow = total(folder)
    assert shallow["by_hour"] == row["by_hour"]
    assert (shallow["record_size"], shallow["keys"]) == (None, None)


def test_of_many_keys_the_largest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, and the row says that its sums are lower bounds."""
    monkeypatch.setattr(totals, "MAX_PRODUCERS", 10)
    batches = [
        build_batch([PlainRecord(2 * i, b"large", bytes(500)), PlainRecord(2 * i + 1, b"k%d" % i, b"v")])
        for i in range(200)
    ]
    folder = write(tmp_path / "orders-0", batches)
    counted = stats_of(find_segments(str(folder)), Settings(keys=True))
    *_, last = levels(counted, True)
    assert last.stats.keys is not None
    assert len(last.stats.keys.by_id) <= 20
    found = stats_row(last, 5)["keys"]
    assert not found["exact"]
    assert (found["top"][0]["key"], found["top"][0]["records"]) == ("large", 200)


def test_keys_that_are_not_text(tmp_path: Path) -> None:
    """They are base64 in rows, and control characters do not reach a terminal."""
    records = [PlainRecord(0, b"\xff\x00", b"v", 1), PlainRecord(1, b"\x1b[31m", b"v", 1)]
    folder = write(tmp_path / "orders-0", [build_batch(records)])
    found = {one["key"]: one.get("key_encoding") for one in total("--deep", "--top-keys", folder)["keys"]["top"]}
    assert found == {"/wA=": "base64", "\x1b[31m": None}
    for format_name in ("table", "html"):
        run = invoke("stats", "--deep", "--top-keys", "--format", format_name, folder)
        assert run.exit_code == 0
        assert "\x1b" not in run.stdout
        assert "on disk" in run.stdout


def test_keys_that_are_not_text_are_not_shown_as_others(tmp_path: Path) -> None:
    """Base64 of a key, and the name of a missing key, can be another key: tables and plots show them as dump does."""
    keys = (b"\xff\xfe", b"//4=", None, b"null", b"None")
    folder = write(tmp_path / "orders-0", [build_batch([PlainRecord(n, key, b"v", 1) for n, key in enumerate(keys)])])
    table, html = (invoke("stats", "--top-keys", "--format", name, folder).stdout for name in ("table", "html"))
    for shown in ("0xfffe (2 B)", "//4=", '"null"', "None"):
        assert table.count(f"key {shown}: 1 record") == 1, shown
        assert escape(shown) in html
    assert ">null<" in html


def test_the_size_of_a_long_key_is_a_least_one(tmp_path: Path) -> None:
    """Only the first bytes of a key are kept, and with them no size: the rest of a long key is not said to be missing."""
    keys = (b"x" * 5_000, b"\xff" * 5_000, b"y" * 200)
    folder = write(tmp_path / "orders-0", [build_batch([PlainRecord(n, key, b"v", 1) for n, key in enumerate(keys)])])
    table = " ".join(invoke("stats", "--top-keys", folder).stdout.split())
    for size in ("(1,024 bytes or more): 1 record", "(1,024 B or more): 1 record", "(200 bytes): 1 record"):
        assert size in table


def test_a_plot_by_hour(tmp_path: Path) -> None:
    """Hours without a batch are empty; many hours share a column, so that the plot fits in 80 columns."""
    for number, hours in enumerate(([0, 0, 2], [*range(0, 600, 3)])):
        batches = [build_batch([PlainRecord(i, b"k", b"v", hour * HOUR)]) for i, hour in enumerate(hours)]
        out = invoke("stats", write(tmp_path / f"orders-{number}", batches)).stdout
        (plot,) = [line for line in out.splitlines() if line.startswith("by hour")]
        assert len(plot) <= 80
        assert "│█ ▄│" in plot or number
        assert ("10 hours per column" in out) == bool(number)
        newest = iso_time(hours[-1] * HOUR)[:13]
        assert f" to {newest}Z, " in out  # not the begin of the last column


def test_the_records_of_a_batch_that_cannot_be_opened_are_unknown(tmp_path: Path) -> None:
    """A row says null, as documented: 0 records are those of an empty batch."""
    records = [PlainRecord(i, b"k", b"v" * 100, i) for i in range(20)]
    good, batch = (build_batch(records, base_offset=0, producer_id=7, producer_epoch=0, base_sequence=at,
                               compression="gzip") for at in (0, 20))  # fmt: skip
    bad = bytearray(batch)
    bad[-8:] = bytes(8)  # the checksum and the size of gzip
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    bad[:8] = (20).to_bytes(8, "big")
    run = invoke("stats", "--format", "jsonl", "--deep", write(tmp_path / "orders-0", [good, bytes(bad)]))
    assert run.exit_code == 1
    row = json.loads(run.stdout.splitlines()[-1])
    assert (row["batches"], row["records"]) == (2, None)
    assert row["records_per_batch"] == {"min": 20, "mean": 20.0, "max": 20}
    assert [one["records"] for one in (row["magics"]["2"], row["compressions"]["gzip"], *row["by_hour"])] == [None] * 3
    assert row["producers"]["top"][0]["records"] == 40  # of the headers, which the CRC covers
    assert "overhead_bytes" not in row["magics"]["2"]


def test_keys_need_the_records(tmp_path: Path) -> None:
    """One line says what is missing."""
    folder = write(tmp_path / "orders-0", [build_batch([PlainRecord(0, b"k", b"v", 1)])])
    assert invoke("stats", "--top-keys", folder).stdout == invoke("stats", "--deep", "--top-keys", folder).stdout
