"""Missing offsets before compressed v0 and v1 message sets, whose headers do not show where they begin."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kseg.format.segment import several_processes
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_wrapper
from kseg.library import validate
from tests.support.fuzzing import cases

pytestmark = pytest.mark.slow

Missing = list[tuple[str, int | None, int | None]]


def missing(folder: Path, jobs: int = 1) -> Missing:
    """Return (rule, first offset, last offset) of each range of missing offsets."""
    found = [verdict.finding for result in validate(folder, jobs=jobs).files for verdict in result.verdicts]
    return sorted(
        (one.rule, one.offset, one.last_offset) for one in found if one.rule in ("missing-batches", "offset-gap")
    )


def sets(seed: int, magic: int, codec: str) -> tuple[list[bytes], list[bytes]]:
    """Return a log of message sets with some of them removed, and the same log as v2 batches.

    Every second log has keys, so that it could be compacted: how many gaps it has decides whether they are lost.
    """
    random, key = Random(seed), b"k" if seed % 2 else None
    old, new, offset = [], [], 0
    for _ in range(random.randint(4, 40)):
        values = [random.randbytes(random.randint(1, 90)) for _ in range(random.randint(1, 6))]
        records = [
            PlainRecord(offset=offset + i, timestamp=magic - 1, key=key, value=value) for i, value in enumerate(values)
        ]
        offset += len(records)
        if random.random() < 0.15:
            continue
        old.append(build_wrapper(records, magic=magic, compression=codec))
        new.append(build_batch(records, base_offset=records[0].offset))
    return old, new


@pytest.mark.parametrize(("magic", "codec"), [(0, "gzip"), (0, "snappy"), (1, "gzip"), (1, "lz4")])
def test_missing_message_sets_are_found_as_missing_batches_are(
    magic: int, codec: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same records as v2 batches have the same findings, also at the start, and with ranges of the file."""
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 500)
    monkeypatch.setattr(several_processes, "SEARCH_REACH", 4_000)
    monkeypatch.setattr(several_processes, "BEGIN_ALONE", False)
    some = 0
    for seed in range(cases(40)):
        found = []
        for version, batches in zip(("old", "new"), sets(seed, magic, codec), strict=True):
            folder = tmp_path / str(seed) / version / "orders-0"
            folder.mkdir(parents=True)
            (folder / f"{0:020}.log").write_bytes(b"".join(batches))
            found.append(missing(folder))
        assert found[0] == found[1], seed
        assert missing(tmp_path / str(seed) / "old" / "orders-0", 2) == found[0], seed
        some += bool(found[0])
    assert some


def test_a_cleaned_log_is_not_called_lost(tmp_path: Path) -> None:
    """The cleaner removes messages from a set and keeps its last offset: gaps are its signs, not losses."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    kept = [(0, 1, 2), (5, 6), (9,), (12, 14), (19,)]
    records = [[PlainRecord(offset=n, timestamp=0, key=b"k%d" % n, value=b"v") for n in offsets] for offsets in kept]
    log = b"".join(build_wrapper(one, magic=1, compression="gzip") for one in records)
    (folder / f"{0:020}.log").write_bytes(log)
    assert missing(folder) == [
        ("offset-gap", 3, 4), ("offset-gap", 7, 8), ("offset-gap", 10, 11), ("offset-gap", 15, 18),
    ]  # fmt: skip
