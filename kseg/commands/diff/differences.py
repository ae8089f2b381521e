"""The kinds of difference between two replicas of a partition, and the verdict over all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

from kseg.commands.diff.replica_union import ReplicaUnion

#: Kinds of difference and their meanings.
KINDS: Mapping[str, str] = {
    "leader-epoch": "the same batches with different leader epochs",
    "batching": "the same records in different batches",
    "starts-later": "only the other replica has these first offsets (retention)",
    "ends-earlier": "only the other replica has these last offsets (follower lag)",
    "missing": "only the other replica has these offsets (compaction, or loss)",
    "unopened": "different batches, whose records were not compared",
    "damaged": "this replica is damaged here, only the other one has these offsets",
    "content": "both replicas have these offsets, with different records",
}
#: Kind -> the unit of its count.
COUNTED: Mapping[str, str] = {
    **dict.fromkeys(KINDS, "record"),
    "leader-epoch": "batch",
    "batching": "batch",
    "unopened": "place",
}
#: Kinds that leave the content the same.
SAME_CONTENT = frozenset({"leader-epoch", "batching"})

# From best to worst: the verdict is the first row whose kinds include every kind that was found.
_VERDICTS: tuple[tuple[str, frozenset[str]], ...] = (
    ("identical", frozenset()),
    ("same", SAME_CONTENT),
    ("consistent", SAME_CONTENT | {"starts-later", "ends-earlier", "missing"}),
    ("undetermined", frozenset(KINDS) - {"damaged", "content"}),
    ("damaged", frozenset(KINDS) - {"content"}),
    ("diverged", frozenset(KINDS)),
)


@dataclass(frozen=True, slots=True)
class DifferencePlace:
    """The place of a batch in a replica. ``leader_epoch`` is None for v0 and v1, which have none."""

    file: str
    position: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Offsets ``first_offset`` to ``last_offset`` (inclusive) that differ in one way.

    ``lacking`` is the replica, ``a`` or ``b``, that lacks these offsets; None if both have them. ``a`` and ``b`` are the
    places of the first difference. ``count`` is the number of records (an unopened compressed message set counts as
    one), of batches in replica a for leader-epoch and batching, or of places for unopened. ``detail`` describes the first.
    """

    kind: str
    first_offset: int
    last_offset: int
    lacking: str | None
    count: int
    a: DifferencePlace | None
    b: DifferencePlace | None
    detail: str = ""


@dataclass(slots=True)
class Comparison:
    """The outcome of a comparison: the number of differences and of records or batches by kind.

    ``lacking`` counts the records that a replica lacks, by kind and replica (``a`` or ``b``). ``last_common_offset`` is the
    last offset with equal records before ``first_difference``, the first offset with different records; without such a
    difference it is the last offset with equal records of the whole log. ``union`` is what the replicas have together.
    """

    stretches: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    lacking: Counter[tuple[str, str]] = field(default_factory=Counter)
    last_common_offset: int | None = None
    first_difference: Difference | None = None
    damage: int = 0
    union: ReplicaUnion = field(default_factory=ReplicaUnion)

    @property
    def whole(self) -> bool | None:
        """Whether one of the replicas can read each offset that the other one has lost; None if headers do not show it."""
        if self.union.unread_count:
            return False
        return None if "unopened" in self.counts else True

    @property
    def verdict(self) -> str:
        """One of ``identical``, ``same`` (content), ``consistent`` (equal wherever both have records), ``disjoint`` (no
        common offset), ``undetermined`` (headers alone do not decide), ``damaged``, ``diverged``."""
        kinds = set(self.counts) | ({"damaged"} if self.damage else set())
        if kinds == {"starts-later", "ends-earlier"} and self.last_common_offset is None:
            return "disjoint"
        return next(name for name, enough in _VERDICTS if kinds <= enough)

    def accepted(self, kinds: Set[str]) -> bool:
        """Return whether only differences of these kinds were found, both replicas are readable, and they overlap."""
        return set(self.counts) <= kinds and not self.damage and self.verdict != "disjoint"
