"""How two replicas of a partition can differ: the kinds, a difference, and the verdict over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: Kinds of difference, with what they mean.
KINDS: Mapping[str, str] = {
    "leader-epoch": "the same batches, but for the partition leader epoch in their headers",
    "batching": "the same records in other batches",
    "starts-later": "only the other replica goes back that far, as after retention",
    "ends-earlier": "only the other replica goes on that far, as ahead of a follower",
    "missing": "only the other replica has these offsets, as after compaction",
    "unopened": "batches differ; whether their records do was not looked at",
    "damaged": "only the other replica has what is damaged here",
    "content": "both replicas have these offsets, with different records",
}
#: What their counts are of.
COUNTED: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(KINDS, ("record", "records")),
    "leader-epoch": ("batch", "batches"),
    "batching": ("batch", "batches"),
    "unopened": ("place", "places"),
}
#: Those that leave the content the same.
SAME_CONTENT = frozenset({"leader-epoch", "batching"})

# From good to bad: the first whose kinds hold all that was found.
_VERDICTS: tuple[tuple[str, frozenset[str]], ...] = (
    ("identical", frozenset()),
    ("same", SAME_CONTENT),
    ("consistent", SAME_CONTENT | {"starts-later", "ends-earlier", "missing"}),
    ("undetermined", frozenset(KINDS) - {"damaged", "content"}),
    ("damaged", frozenset(KINDS) - {"content"}),
    ("diverged", frozenset(KINDS)),
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entry is in a replica. ``leader_epoch`` is None where its version has none."""

    file: str
    position: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Offsets ``first_offset`` to ``last_offset`` (inclusive) that differ in one way.

    ``lacking`` is the replica, a or b, that has nothing there; None where both have. ``a`` and ``b`` are where the first
    of them stand. ``count`` are records (an unopened wrapper is one), entries of a for leader-epoch and batching,
    or places for unopened. ``detail`` says more of the first.
    """

    kind: str
    first_offset: int
    last_offset: int
    lacking: str | None
    count: int
    a: Place | None
    b: Place | None
    detail: str = ""


@dataclass(slots=True)
class Comparison:
    """The outcome: stretches, records or entries by kind, and where the replicas part.

    ``last_common_offset`` is the last one before ``first_difference``, the first offset with different records, that
    both have alike; without such a difference the last common one of all.
    """

    stretches: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    last_common_offset: int | None = None
    first_difference: Difference | None = None
    damage: int = 0

    @property
    def verdict(self) -> str:
        """``identical``, ``same`` content, ``consistent`` where both have records, ``disjoint`` where they never do,
        ``undetermined`` by headers alone, ``damaged`` or ``diverged``."""
        kinds = set(self.counts) | ({"damaged"} if self.damage else set())
        if kinds == {"starts-later", "ends-earlier"} and self.last_common_offset is None:
            return "disjoint"
        return next(name for name, enough in _VERDICTS if kinds <= enough)
