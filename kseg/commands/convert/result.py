"""What became of a conversion: counts before and after, and what the target's version could not hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class Loss:
    """What the target's version can't hold: how many there were, from the first such offset to the last."""

    count: int
    first_offset: int
    last_offset: int


@dataclass(slots=True)
class Conversion:
    """What became of one segment. Sizes are bytes, counts without a word are of entries.

    ``copied`` were of the target's version already, ``skipped`` damaged; ``lost_bytes`` are theirs, and those that
    are no entry at all. ``codecs_before`` and ``codecs_after`` count entries by codec. ``lost`` is by kind, see
    ``LOSSES``. ``leader_epochs`` are [epoch, first offset, last offset] of the batches written. Before byte
    ``epochless_bytes`` of the target no batch has an epoch of its own, None where none has. ``first_offset`` and
    ``last_offset`` are those of the batches converted, None where there are none.
    """

    source: str
    target: str
    entries_before: int = 0
    entries_after: int = 0
    copied: int = 0
    skipped: int = 0
    records: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    lost_bytes: int = 0
    largest_before: int = 0
    largest_after: int = 0
    codecs_before: Counter[str] = field(default_factory=Counter)
    codecs_after: Counter[str] = field(default_factory=Counter)
    lost: dict[str, Loss] = field(default_factory=dict)
    leader_epochs: list[list[int]] = field(default_factory=list)
    epochless_bytes: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None

    def count_loss(self, kind: str, count: int, first_offset: int, last_offset: int) -> None:
        """Count a loss of one of LOSSES."""
        if not count:
            return
        loss = self.lost.setdefault(kind, Loss(0, first_offset, last_offset))
        loss.count += count
        loss.last_offset = last_offset

    def merge(self, other: Conversion) -> None:
        """Add what became of the next range of the same segment."""
        if self.epochless_bytes is None and other.epochless_bytes is not None:
            self.epochless_bytes = self.bytes_after + other.epochless_bytes
        for each in fields(self):
            if each.name in ("epochless_bytes", "first_offset", "last_offset"):
                continue
            mine, more = getattr(self, each.name), getattr(other, each.name)
            if each.name.startswith("largest_"):
                setattr(self, each.name, max(mine, more))
            elif isinstance(mine, (int, Counter)):
                setattr(self, each.name, mine + more)
        for kind, loss in other.lost.items():
            self.count_loss(kind, loss.count, loss.first_offset, loss.last_offset)

    def as_row(self) -> dict[str, Any]:
        """One flat object, fit for JSON."""
        row = {each.name: getattr(self, each.name) for each in fields(self)}
        return {**row, "lost": {kind: asdict(loss) for kind, loss in self.lost.items()}}

    @classmethod
    def of_row(cls, row: Mapping[str, Any]) -> Conversion:
        """What ``as_row`` was made of."""
        codecs = {name: Counter(row[name]) for name in ("codecs_before", "codecs_after")}
        return cls(**{**row, **codecs, "lost": {kind: Loss(**loss) for kind, loss in row["lost"].items()}})


#: What a down-conversion can lose, and what is counted of it.
LOSSES = {
    "headers": "record headers",
    "timestamps": "records with a timestamp",
    "control-records": "control records",
    "transactions": "transactional batches; aborted ones are visible from now on",
    "sequences": "batches of idempotent producers",
    "leader-epochs": "batches with a leader epoch",
    "delete-horizons": "batches with a delete horizon",
    "empty-batches": "empty batches, kept by compaction",
}
#: Of these the records are counted, of others the batches.
COUNTED_BY_RECORD = ("headers", "control-records")
