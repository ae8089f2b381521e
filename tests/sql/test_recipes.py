"""The recipes of `kseg sql` find the planted fault at its place, and none in logs that brokers wrote."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

import kseg as library
from kseg.extras.sql.recipes import RECIPES
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_wrapper
from tests.support.cli import MIXED, SEGMENTS, invoke
from tests.support.cli import kseg_here as kseg
from tests.support.fuzzing import cases

pytest.importorskip("duckdb", reason="duckdb is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

Row = dict[str, Any]
ONE: Row = {"producer_id": 7, "producer_epoch": 0}


def run(*arguments: object) -> Result:
    return invoke("sql", *arguments)


def recipe(name: str, *paths: object, code: int = 0) -> list[Row]:
    done = run("--recipe", name, "--format", "jsonl", *paths)
    assert done.exit_code == code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def batch(offset: int, count: int, value: bytes = b"v", **header: Any) -> bytes:
    records = [PlainRecord(offset + i, b"k%d" % (offset + i), value, 1_000) for i in range(count)]
    return build_batch(records, **header)


def message_set(offset: int, count: int) -> bytes:
    """Return a compressed set of v1, whose header has only its last offset."""
    records = [PlainRecord(offset + i, b"k%d" % (offset + i), b"v", 1_000) for i in range(count)]
    return build_wrapper(records, magic=1, compression="gzip")


def marker(offset: int, **header: Any) -> bytes:
    return build_batch([PlainRecord(offset, b"\0\0\0\1", bytes(6))], control=True, transactional=True, **header)


def segment(folder: Path, offset: int, batches: Sequence[bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{offset:020}.log"
    path.write_bytes(b"".join(batches))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_the_list_has_the_statement_that_a_recipe_runs(name: str) -> None:
    """A statement can be copied from the list and adapted."""
    (listed,) = (json.loads(line) for line in run("--recipes", "--format", "jsonl").stdout.splitlines() if name in line)
    given = run(listed["statement"], SEGMENTS, "--format", "csv")
    of_recipe = run("--recipe", name, SEGMENTS, "--format", "csv")
    assert given.stdout == of_recipe.stdout
    assert of_recipe.exit_code == (1 if listed["problem"] and len(of_recipe.stdout.splitlines()) > 1 else 0)


def test_gaps_and_overlaps(tmp_path: Path) -> None:
    """Planted gaps and overlaps are found, and no others."""
    first = segment(tmp_path / "orders-0", 0, [batch(0, 10)])
    second = segment(tmp_path / "orders-0", 20, [batch(20, 10)])
    third = segment(tmp_path / "orders-0", 25, [batch(25, 10)])
    segment(tmp_path / "other-0", 35, [batch(35, 1)])
    place = {"topic": "orders", "partition": 0}
    (gap,) = recipe("gaps", tmp_path)
    assert gap == {**place, "file": str(first), "next_file": str(second), "first_offset": 10, "last_offset": 19}
    (overlap,) = recipe("overlaps", tmp_path, code=1)
    assert overlap == {**place, "file": str(second), "next_file": str(third), "first_offset": 25, "last_offset": 29}
    assert recipe("gaps", SEGMENTS / "4.3.0-v2-none-segments") == []
    assert recipe("overlaps", SEGMENTS / "4.3.0-v2-none-segments") == []


def test_compressed_sets_of_old_versions_are_opened(tmp_path: Path) -> None:
    """Their headers lack the first offset, and a lower bound such as the file's name would hide gaps and overlaps."""
    segment(tmp_path / "gap-0", 0, [message_set(0, 2)])
    segment(tmp_path / "gap-0", 2, [message_set(20, 2), message_set(22, 3)])
    assert [(row["first_offset"], row["last_offset"]) for row in recipe("gaps", tmp_path)] == [(2, 19)]
    assert recipe("overlaps", tmp_path) == recipe("duplicates", tmp_path) == []
    folder = tmp_path / "again-0"
    segment(folder, 0, [message_set(0, 5)])
    segment(folder, 3, [message_set(3, 4)])
    (overlap,) = recipe("overlaps", folder, code=1)
    (repeated,) = recipe("duplicates", folder, code=1)
    assert (overlap["first_offset"], overlap["last_offset"]) == (3, 4)
    assert (repeated["first_offset"], repeated["last_offset"], repeated["earlier_offset"]) == (3, 6, 4)


def test_the_first_offset_of_a_batch_is_that_of_its_first_record() -> None:
    """Of each version, compressed or not; ``batches.base_offset`` is null for compressed sets of v0 and v1."""
    names = [path for path in SEGMENTS.iterdir() if path.is_dir() and "v2" not in path.name] + [MIXED]
    done = run(
        """
        select file, position, base_offset, first_offset, min(records.offset) as read
        from batches join records using (file, position)
        group by all
        """,
        *names,
        "--format",
        "jsonl",
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["base_offset"] is None for row in rows} == {True, False}
    assert all(row["first_offset"] == row["read"] for row in rows)


def test_duplicates_of_offsets_and_of_sequences(tmp_path: Path) -> None:
    """Within one folder only: another replica has all the same offsets."""
    batches = [batch(0, 2, base_sequence=0, **ONE), batch(2, 2, base_sequence=0, **ONE), batch(3, 2)]
    segment(tmp_path / "a" / "orders-0", 0, batches)
    segment(tmp_path / "b" / "orders-0", 0, batches[:1])
    sequence, offset = recipe("duplicates", tmp_path, code=1)
    assert (sequence["repeated"], sequence["first_offset"], sequence["earlier_offset"]) == ("sequence", 2, 1)
    assert (offset["repeated"], offset["first_offset"], offset["earlier_offset"]) == ("offset", 3, 3)
    assert recipe("duplicates", SEGMENTS / "4.3.0-v2-none-transactions", SEGMENTS / "4.3.0-v2-none-segments") == []


def test_offset_commits_of_transactions_are_no_duplicates(tmp_path: Path) -> None:
    """A group coordinator begins the commits of each transaction at sequence 0, for the producer of the transaction."""
    names = ("4.3.0-v2-none-consumer-offsets", "4.3.0-v2-none-internal-consumer-offsets")
    assert recipe("duplicates", *(SEGMENTS / name for name in names)) == []
    batches = [batch(0, 2, base_sequence=0, **ONE), marker(2, **ONE), batch(3, 2, base_sequence=0, **ONE)]
    again = batch(5, 2, base_sequence=0, **ONE)
    segment(tmp_path / "orders-0", 0, batches)
    assert recipe("duplicates", tmp_path) == []
    # In a topic of clients, a batch without a marker before it is one that was written again.
    segment(tmp_path / "orders-0", 0, [*batches, again])
    segment(tmp_path / "__consumer_offsets-0", 0, [*batches, again])
    (found,) = recipe("duplicates", tmp_path, code=1)
    assert (found["topic"], found["first_offset"], found["earlier_offset"]) == ("orders", 5, 4)


def test_sequences_that_restart_are_no_duplicates(tmp_path: Path) -> None:
    """After 2,147,483,647 records a producer's sequences begin again at 0; only equal ones are duplicates."""
    sequences = [5, 2_147_483_600, 0, 3, 5, 9]
    batches = [batch(i, 1, base_sequence=sequence, **ONE) for i, sequence in enumerate(sequences)]
    segment(tmp_path / "orders-0", 0, batches)
    (found,) = recipe("duplicates", tmp_path, code=1)
    assert (found["base_sequence"], found["first_offset"], found["earlier_offset"]) == (5, 4, 0)


def test_old_versions_are_counted() -> None:
    """Batches and bytes of v0 and v1 are those of ``dump``."""
    found = {row["magic"]: row for row in recipe("legacy", MIXED, SEGMENTS / "4.3.0-v2-none")}
    reported = [json.loads(line) for line in kseg("dump", "--format", "jsonl", MIXED).stdout.splitlines()]
    assert set(found) == {0, 1}
    for magic in (0, 1):
        own = [row for row in reported if row["magic"] == magic]
        assert (found[magic]["batches"], found[magic]["bytes"]) == (len(own), sum(row["size"] for row in own))


def test_the_largest_producers_keys_and_records(tmp_path: Path) -> None:
    """They are listed by the bytes that they use, also if keys are not UTF-8: their text is longer."""
    batches = [
        batch(0, 3, bytes(100), producer_id=1, producer_epoch=0, base_sequence=0),
        batch(3, 3, producer_id=2, producer_epoch=0, base_sequence=0),
        build_batch([PlainRecord(6, b"k0", bytes(50)), PlainRecord(7, b"k0", None), PlainRecord(8, b"\xff" * 40, b"")]),
    ]
    segment(tmp_path / "orders-0", 0, batches)
    producers = recipe("top-producers", tmp_path)
    assert [(row["producer_id"], row["bytes"], row["records"], row["partitions"]) for row in producers] == [
        (1, len(batches[0]), 3, 1),
        (2, len(batches[1]), 3, 1),
    ]
    keys = recipe("top-keys", tmp_path)
    assert (keys[0]["key"], keys[0]["bytes"], keys[0]["records"], keys[0]["tombstones"]) == ("k0", 156, 3, 1)
    assert sum(row["records"] for row in keys) == 9
    assert next(row["bytes"] for row in keys if str(row["key"]).startswith("//")) == 40
    records = recipe("largest-records", tmp_path)
    assert [(row["offset"], row["bytes"]) for row in records[:4]] == [(0, 102), (1, 102), (2, 102), (6, 52)]
    (codecs,) = recipe("codecs", tmp_path)
    assert (codecs["compression"], codecs["batches"], codecs["bytes"]) == ("none", 3, sum(map(len, batches)))


def test_what_the_cleaner_would_drop(tmp_path: Path) -> None:
    """Superseded records, tombstones before and after their horizon, aborted records, and why other segments stay."""
    past, future, second = 1_000_000, 4_102_444_800_000, 10**12

    def put(offset: int, *pairs: tuple[bytes, bytes | None], **header: Any) -> bytes:
        return build_batch([PlainRecord(offset + i, *pair, second) for i, pair in enumerate(pairs)], **header)

    aborted: dict[str, Any] = {"transactional": True, "producer_id": 7, "producer_epoch": 0}
    segment(tmp_path / "users-0", 0, [
        put(0, (b"a", b"1"), (b"b", b"1"), (b"c", b"1")),
        put(3, (b"x", None), last_offset=4, delete_horizon=past),  # offset 4 is removed already
        put(5, (b"y", None), delete_horizon=future),
    ])  # fmt: skip
    segment(tmp_path / "users-0", 6, [
        put(6, (b"a", b"22"), (b"z", None)),
        put(8, (b"b", b"never"), base_sequence=0, **aborted),
        build_batch([PlainRecord(9, b"\0\0\0\0", bytes(6))], control=True, **aborted),
    ])  # fmt: skip
    segment(tmp_path / "users-0", 10, [put(10, (b"c", b"3"))])
    segment(tmp_path / "late-0", 0, [put(0, (b"k", b"1"))])
    segment(tmp_path / "late-0", 1, [put(1, (b"k", b"1"), max_timestamp=future)])
    segment(tmp_path / "late-0", 2, [put(2, (b"k", b"1"))])
    segment(tmp_path / "late-0", 3, [put(3, (b"k", b"1"))])
    segment(tmp_path / "open-0", 0, [put(0, (b"k", b"1"), base_sequence=0, **aborted)])
    segment(tmp_path / "open-0", 1, [put(1, (b"k", b"1"))])
    names = ("records", "superseded", "expired_tombstones", "waiting_tombstones", "droppable_bytes", "stays_because")
    found: dict[str, list[tuple[Any, ...]]] = {}
    rows = recipe("cleaner", tmp_path)
    for row in rows:
        found.setdefault(row["topic"], []).append(tuple(row[name] for name in names))
    unknown = (None,) * 5
    assert found["users"] == [
        # c stays: its next value is in the active segment. a is superseded, x has expired.
        (5, 1, 1, 1, 2 + 1, None),
        (3, 1, 0, 1, 6, None),
        (*unknown, "active segment"),
    ]
    # Without min.compaction.lag.ms, Kafka looks at no timestamp (LogCleanerManager.cleanableOffsets).
    assert found["late"] == [
        (1, 1, 0, 0, 2, None),
        (1, 1, 0, 0, 2, None),
        (1, 0, 0, 0, 0, "nothing to drop"),
        (*unknown, "active segment"),
    ]
    statement = RECIPES["cleaner"].statement.replace("'0' second", "'1' second")
    done = run("--format", "jsonl", statement, tmp_path / "late-0")
    assert [json.loads(line)["stays_because"] for line in done.stdout.splitlines()] == [
        "nothing to drop", "min.compaction.lag.ms", "after a segment that stays", "active segment",
    ]  # fmt: skip
    assert found["open"] == [(*unknown, "open transaction"), (*unknown, "active segment")]
    sizes = [one.stat().st_size for one in sorted((tmp_path / "users-0").iterdir())]
    first = len(put(0, (b"a", b"1"), (b"b", b"1"), (b"c", b"1")))
    dirty = sum(sizes[:2]) - first - len(put(3, (b"x", None), last_offset=4, delete_horizon=past))
    assert {row["most_dirty_ratio"] for row in rows if row["topic"] == "users"} == {round(dirty / sum(sizes[:2]), 3)}


def test_records_without_a_key_are_dropped_by_the_cleaner(tmp_path: Path) -> None:
    """Source: ``Cleaner.shouldRetainRecord``; the rule null-key says so, too. Equal texts of keys are not equal keys."""

    def put(offset: int, *pairs: tuple[bytes | None, bytes | None]) -> bytes:
        return build_batch([PlainRecord(offset + i, *pair, 10**12) for i, pair in enumerate(pairs)])

    folder = tmp_path / "users-0"
    segment(folder, 0, [put(0, (None, b"aa"), (None, None))])
    segment(folder, 2, [put(2, (b"\xff", b"1"), (b"/w==", b"2"), (None, b"bbb"))])  # "/w==" is the base64 of b"\xff"
    segment(folder, 5, [put(5, (b"\xff", b"3"))])
    segment(folder, 6, [put(6, (None, b"active"))])
    names = ("records", "without_key", "superseded", "droppable_bytes", "stays_because")
    assert [tuple(row[name] for name in names) for row in recipe("cleaner", folder)] == [
        (2, 2, 0, 2, None),
        (3, 1, 1, 2 + 3, None),
        (1, 0, 0, 0, "nothing to drop"),
        (None, None, None, None, "active segment"),
    ]
    keys = [(row["key"], row["key_encoding"], row["records"], row["bytes"]) for row in recipe("top-keys", folder)]
    assert keys == [(None, None, 4, 11), ("/w==", None, 1, 5), ("/w==", "base64", 2, 4)]


@pytest.mark.kafka
def test_the_cleaner_drops_what_is_predicted(tmp_path: Path) -> None:
    """Kafka's own Cleaner is the judge: the records and the bytes that it removes, of each kind of key."""
    from kseg.format.log_loader.recovery_plan import BrokerStart
    from tools.lab.load_log import LoadLog

    keys, compacted = (None, b"", b"a", b"b", b"\xff", b"/w=="), {"cleanup.policy": "compact"}
    with LoadLog() as kafka:
        for seed in range(10):
            choose = random.Random(seed)
            folder = tmp_path / f"t{seed}-0"
            for base in (0, 12, 24):
                records = [
                    PlainRecord(base + i, choose.choice(keys), choose.choice((None, bytes(i))), 10**12)
                    for i in range(12)
                ]
                segment(folder, base, [build_batch(records[:5]), build_batch(records[5:])])
            before = _content(folder)
            found = [row for row in recipe("cleaner", folder) if row["records"] is not None]
            assert "failure" not in kafka.load(folder, BrokerStart(clean=True), keep=True, config=compacted)
            for step in ("clean", "tasks", "close"):
                now = {"now": int(time.time() * 1000), "first_dirty": 0}
                assert "error" not in kafka.answer({"dir": str(folder), "do": step, **now})
            after = _content(folder)
            assert sum(row["droppable_bytes"] for row in found) == before[1] - after[1], seed
            assert sum(row["without_key"] + row["superseded"] for row in found) == before[0] - after[0] > 0, seed


def _content(folder: Path) -> tuple[int, int]:
    """Return the number of records of a folder, and the bytes of their keys and values."""
    sizes = library.scan(folder, columns=["key_size", "value_size"]).to_table().to_pylist()
    return len(sizes), sum((row["key_size"] or 0) + (row["value_size"] or 0) for row in sizes)


def test_formats_and_refusals(tmp_path: Path) -> None:
    """An empty result is stated. A recipe takes no other statement."""
    assert run("--recipe", "legacy", SEGMENTS / "4.3.0-v2-none").stderr == "kseg: legacy: none in 1 segment\n"
    assert run("--recipe", "legacy", MIXED, "--format", "csv").stdout.startswith("topic,partition,file,magic")
    for arguments, message in (
        (("--recipe", "gaps", tmp_path / "missing"), "No such file"),
        (("--recipe", "gaps"), "no PATH"),
        (("--recipe", "gaps", "--file", MIXED, MIXED), "cannot be combined"),
    ):
        done = run(*arguments)
        assert (done.exit_code, message in done.stderr) == (2, True), done.stderr


def test_a_file_that_cannot_be_read_fails_the_recipe(tmp_path: Path) -> None:
    """The rows of the other files are printed, and the exit code says that the answer is incomplete."""
    segment(tmp_path / "orders-0", 0, [batch(0, 10)])
    segment(tmp_path / "orders-0", 5, [batch(5, 10)])
    wrong = tmp_path / "noise"
    wrong.write_bytes(b"not a segment " * 100)
    for name in RECIPES:
        done = run("--recipe", name, "--format", "jsonl", tmp_path, wrong)
        assert (done.exit_code, str(wrong) in done.stderr) == (2, True), name
    assert len(recipe("overlaps", tmp_path, wrong, code=2)) == 1


def random_log(home: Path, seed: int) -> None:
    """Write folders of segments with repeated batches, repeated sequences, gaps, overlaps, markers and wrong CRCs."""
    choose = random.Random(seed)
    for name in choose.sample(["orders-0", "orders-1", "__consumer_offsets-3", "loose"], 2):
        offset, past = 0, [batch(0, 1)]
        next_sequence = dict.fromkeys(range(3), 0)
        for _ in range(3):
            batches, base = [], offset
            for _ in range(choose.randrange(25)):
                count, producer = choose.randint(1, 3), choose.randrange(4)
                if choose.random() < 0.1:
                    batches.append(choose.choice(past))
                    continue
                header: Row = {"producer_id": producer, "producer_epoch": 0} if producer < 3 else {}
                if header and choose.random() < 0.2:
                    count = 1
                    batches.append(marker(offset, **header))
                    next_sequence[producer] *= choose.randrange(2)
                else:
                    if header:
                        header["base_sequence"] = max(next_sequence[producer] - choose.choice([0, 0, 0, 0, 2]), 0)
                        next_sequence[producer] = header["base_sequence"] + count
                    batches.append(batch(offset, count, **header))
                if choose.random() < 0.05:
                    batches[-1] = batches[-1][:-1] + b"\xff"
                past.append(batches[-1])
                offset += count + choose.choice([0, 0, 0, 4])
            segment(home / name, base, batches)
            offset = max(offset + choose.choice([0, 0, 5, -2]), base + 1)


def expected(rows: Sequence[Row], topic: str | None) -> Iterator[tuple[str, str, int]]:
    """Yield (kind, file, position or offset) of the problems of a folder, from the batches that ``dump`` shows."""
    valid = [row for row in rows if row["crc_valid"]]
    for i, row in enumerate(valid):
        if any(row["base_offset"] <= before["last_offset"] for before in valid[:i]):
            yield "offset", row["file"], row["position"]
        if row["control"] or row["base_sequence"] < 0:
            continue
        of_producer = (one for one in valid[: i + 1] if one["producer_id"] == row["producer_id"])
        if _repeats([one for one in of_producer if one["control"] or one["base_sequence"] >= 0], topic):
            yield "sequence", row["file"], row["position"]
    files = [[row for row in valid if row["file"] == name] for name in dict.fromkeys(row["file"] for row in valid)]
    for here, there in pairwise(files):
        end, begin = max(row["last_offset"] for row in here) + 1, min(row["base_offset"] for row in there)
        if begin != end:
            yield "gap" if begin > end else "overlap", here[0]["file"], min(begin, end)


def _repeats(own: Sequence[Row], topic: str | None) -> bool:
    """Return whether the last batch of a producer has the sequence of an earlier one since the sequences began again."""
    seen: dict[int, int] = {}
    after_marker, last = False, own[-1]
    for row in own:
        sequence = row["base_sequence"]
        if not row["control"] and (sequence or topic != "__consumer_offsets"):
            if sequence == 0 and after_marker:
                seen.clear()
            first: int = seen.setdefault(sequence, row["last_offset"])
            if row is last:
                return bool(first != row["last_offset"])
        after_marker = row["control"] or (after_marker and not sequence and topic == "__consumer_offsets")
    return False


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(cases(8)))
def test_random_logs_have_the_problems_of_a_simple_search(seed: int, tmp_path: Path) -> None:
    """The statements agree with a search in Python over the batches that ``dump`` shows."""
    random_log(tmp_path, seed)
    wanted: set[tuple[str, str, int]] = set()
    for folder in tmp_path.iterdir():
        shown = [json.loads(line) for line in kseg("dump", "--format", "jsonl", folder).stdout.splitlines()]
        wanted |= {*expected(shown, folder.name.rpartition("-")[0] or None)}
    assert wanted == {*_found(tmp_path)}


def _found(folder: Path) -> Iterable[tuple[str, str, int]]:
    for name, kind, place in (("duplicates", None, "position"), ("gaps", "gap", "first_offset"),
                              ("overlaps", "overlap", "first_offset")):  # fmt: skip
        for line in run("--recipe", name, "--format", "jsonl", folder).stdout.splitlines():
            row = json.loads(line)
            yield kind or row["repeated"], row["file"], row[place]
