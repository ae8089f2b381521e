"""A log with deletions and aborted transactions, and replicas of it that a model of Kafka's log cleaner has cleaned.

The model is ``Cleaner.cleanInto`` with the delete horizons of KIP-534: a pass removes overwritten and aborted records up to
an offset, and sets the horizon of batches with deletions or markers. A later pass removes these if the horizon is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from kseg.format.writer.records_builder import PlainRecord, build_batch, build_wrapper
from tests.support.damage import flip
from tests.support.records import NOW

KEYS = [b"k%d" % n for n in range(6)]


@dataclass(frozen=True)
class Batch:
    """A batch of offsets ``base`` to ``last``. ``kind``: "data" or the marker "commit" or "abort", of a producer or of -1.

    ``ended`` is the offset of the marker that ends its transaction, None for an open one. ``state`` is that of its records.
    """

    base: int
    last: int
    records: tuple[PlainRecord, ...]
    kind: str = "data"
    producer: int = -1
    sequence: int = -1
    state: str | None = None
    ended: int | None = None
    horizon: bool = False

    def data(self, magic: int) -> bytes:
        """Return its bytes: a wrapper if ``magic`` is 1."""
        if magic == 1:
            return build_wrapper(self.records, magic=1, compression="gzip")
        own = self.producer >= 0
        return build_batch(
            self.records, base_offset=self.base, last_offset=self.last, producer_id=self.producer,
            producer_epoch=0 if own else -1, base_sequence=self.sequence, transactional=own, control=self.kind != "data",
            partition_leader_epoch=0, delete_horizon=NOW + 10**9 if self.horizon else None,
        )  # fmt: skip


def random_log(random: Random, magic: int) -> list[Batch]:
    """Return the batches of a log; wrappers have no transactions."""
    log: list[Batch] = []
    open_at: dict[int, list[int]] = {}
    sequences: dict[int, int] = {}
    end = 0
    for _ in range(random.randrange(8, 30)):
        if magic == 2 and open_at and random.random() < 0.4:
            producer = random.choice([*open_at])
            kind = random.choice(("commit", "abort", "abort"))
            for n in open_at.pop(producer):
                log[n] = replace(log[n], state=f"{kind}{'ted' if kind == 'commit' else 'ed'}", ended=end)
            marker = PlainRecord(end, bytes((0, 0, 0, kind == "commit")), bytes(6), NOW + end)
            log.append(Batch(end, end, (marker,), kind, producer))
            end += 1
            continue
        producer = random.choice((-1, -1, 7, 8)) if magic == 2 else -1
        count = random.choice((1, 1, 2, 3))
        records = tuple(
            PlainRecord(n, random.choice(KEYS), None if random.random() < 0.4 else b"v%d" % n, NOW + n)
            for n in range(end, end + count)
        )
        log.append(Batch(end, end + count - 1, records, producer=producer))
        if producer >= 0:
            log[-1] = replace(log[-1], state="open", sequence=sequences.get(producer, 0))
            sequences[producer] = sequences.get(producer, 0) + count
            open_at.setdefault(producer, []).append(len(log) - 1)
        end += count
    return log


def until(log: Sequence[Batch], end: int) -> list[Batch]:
    """Return the batches before an offset, as a replica has them that has copied no more."""
    return [
        replace(batch, state="open", ended=None) if batch.ended is not None and batch.ended >= end else batch
        for batch in log
        if batch.last < end
    ]


def cleaned(log: Sequence[Batch], stop: int, magic: int, *, expired: bool) -> list[Batch]:
    """Return a log after a pass of the cleaner before offset ``stop``; ``expired``: horizons of earlier passes are over.

    No open transaction is cleaned. Old formats have no horizons: there a deletion is removed if it is old enough.
    """
    stop = min([stop, *(batch.base for batch in log if batch.state == "open")])
    latest = {
        record.key: record.offset
        for batch in log
        if batch.kind == "data" and batch.last < stop and batch.state != "aborted"
        for record in batch.records
    }
    last_of = {batch.producer: batch.base for batch in log if batch.kind == "data"}
    used = {
        (batch.producer, batch.ended)
        for batch in log
        if batch.last < stop and batch.records and batch.ended is not None
    }
    found = []
    for batch in log:
        if batch.last >= stop:
            found.append(batch)
        elif batch.kind != "data":
            if not (expired and batch.horizon and (batch.producer, batch.base) not in used):
                found.append(replace(batch, horizon=True))
        else:
            over = expired and (batch.horizon or magic == 1)
            kept = tuple(
                record
                for record in batch.records
                if batch.state != "aborted"
                and record.offset >= latest[record.key]
                and not (over and record.value is None)
            )
            horizon = batch.horizon or (magic == 2 and any(record.value is None for record in kept))
            if kept or (batch.producer >= 0 and last_of[batch.producer] == batch.base):
                found.append(replace(batch, records=kept, horizon=horizon))
    return found


def write(folder: Path, batches: Sequence[Batch], magic: int, random: Random) -> set[int]:
    """Write a replica of random segments with some damaged batches; return the offsets of the others' records."""
    folder.mkdir(parents=True)
    intact: set[int] = set()
    out = (folder / f"{0:020}.log").open("wb")
    harm = random.choice((0, 0, 0.1, 0.2))
    for batch in batches:
        if random.random() < 0.1 and batch.base:
            out.close()
            out = (folder / f"{batch.base:020}.log").open("wb")
        data = batch.data(magic)
        if random.random() < harm:
            data = flip(data, len(data) - 1 if magic == 2 else len(data) - 4)
        else:
            intact |= {record.offset for record in batch.records}
        out.write(data)
    out.close()
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return intact
