"""No record of a compressed v0 or v1 message set whose header is lost is read at its relative offset.

The codecs store messages as they are if they are hardly compressible. Each value names the true offset of its record.
"""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.errors import KsegError
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.storage.source import open_source
from tests.support.fuzzing import cases
from tests.support.stored_sets import MIXED, PURE, Log, damage, random_log, wrong

pytestmark = pytest.mark.slow

#: Base offsets of first segments, and of others.
FIRST, LATER = (0, 1, 40, 300), (1000, 5000, 123_456)


def _records(path: Path) -> list[tuple[int, bytes]]:
    """Return the records of a segment as (offset, value)."""
    found = []
    try:
        with SegmentReader(open_source(path)) as reader:
            opener = DeepIterator()
            for window in reader.windows():
                for chunk in opener.chunks(window):
                    found += [(chunk.records.offset[i], chunk.value(i) or b"") for i in range(chunk.records.count)]
    except KsegError:
        pass
    return found


def problems(seed: int, folder: Path, codecs: list[str], bases: tuple[int, ...]) -> tuple[list[str], Log, int]:
    """Return wrong records of a random case, its log, and how many undamaged uncompressed messages of it are read."""
    dice = random.Random(seed)
    log, other = random_log(dice, 0, codecs, bases), random_log(dice, 1, codecs, bases)
    damage(log, other, dice)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    name = f"{log.base:020}.log"
    path, out = folder / name, folder / "out" / name
    out.parent.mkdir()
    path.write_bytes(log.data)
    read = _records(path)
    found = {"read": read}
    with suppress(KsegError):  # the batches of another log can ask for another name
        repair(str(path), str(out), RepairPlan())
    found["repaired"] = _records(out) if out.exists() else []
    bad = [f"seed {seed}: {what}: {wrong(log, records)[:4]}" for what, records in found.items() if wrong(log, records)]
    own = {offset for offset, value in read if value.startswith(b"0/")}
    return bad, log, sum(offset in own for _, _, offset in log.bare)


def _shares_read(logs: list[tuple[Log, int]]) -> dict[str, float]:
    """Return the share of undamaged uncompressed messages that are read, by what their values are."""
    return {
        style: sum(read for log, read in logs if log.style == style)
        / sum(len(log.bare) for log, _ in logs if log.style == style)
        for style in {log.style for log, _ in logs}
    }


@pytest.mark.fuzz
@pytest.mark.parametrize("codecs", [MIXED, PURE], ids=["mixed", "uncompressed"])
@pytest.mark.parametrize(
    ("bases", "least"), [(FIRST, {"text": 0.95, "both": 0.94, "random": 0.9}), (LATER, {})], ids=["first", "later"]
)
def test_no_inner_message_is_read_at_its_relative_offset(
    tmp_path: Path, codecs: list[str], bases: tuple[int, ...], least: dict[str, float]
) -> None:
    """Of random damage to sectors, to bytes and by cuts, in segments at the start of a partition and in later ones.

    Some of the log's own messages cannot be told from inner ones: few incompressible ones of a first segment.
    """
    found = [problems(seed, tmp_path / "case", codecs, bases) for seed in range(cases(150))]
    assert [one for wrong, *_ in found for one in wrong] == []
    shares = _shares_read([(log, read) for _, log, read in found])
    assert all(share >= least.get(style, 0.97) for style, share in shares.items()), shares
