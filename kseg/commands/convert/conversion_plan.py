"""The settings of a conversion, and which combinations are rejected."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kseg.commands.convert import another_cluster as another_clusters  # few conversions are for one
from kseg.errors import UsageError
from kseg.format.compress.codecs import CODECS
from kseg.format.sidefiles.indexes import INDEX_INTERVAL_BYTES
from kseg.format.writer.records_builder import codec_id
from kseg.text import unknown_name

#: The conversions: versions accepted and version written. A conversion of a version to itself can change the codec.
DIRECTIONS = {
    **{f"v{a}-to-v{b}": (frozenset({a}), b) for a in range(3) for b in range(3)},
    "any-to-v2": (frozenset({0, 1}), 2),
}

#: The largest batch size in bytes for ``rebatch``, far above usual values of max.message.bytes.
MAX_REBATCH = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ConversionPlan:
    """A conversion. ``codec`` None keeps each batch's codec. ``rebatch`` (bytes before compression) None keeps batches.

    ``another_cluster`` removes the data that another cluster must not have, None for the same cluster.
    """

    direction: str
    codec: int | None = None
    rebatch: int | None = None
    skip_damaged: bool = False
    force: bool = False
    another_cluster: another_clusters.AnotherCluster | None = None
    index_interval: int = INDEX_INTERVAL_BYTES

    @classmethod
    def of(
        cls,
        direction: str,
        *,
        compression: str = "keep",
        rebatch: int | None = None,
        lossy: bool = False,
        skip_damaged: bool = False,
        force: bool = False,
        for_another_cluster: bool = False,
        keep_producers: bool = False,
    ) -> ConversionPlan:
        """Return the plan for the command line's values. Raises UsageError for values that contradict each other."""
        if direction not in DIRECTIONS:
            raise UsageError(unknown_name("conversion", direction, DIRECTIONS))
        sources, target = DIRECTIONS[direction]
        if sources == {target} and compression == "keep" and not for_another_cluster:
            raise UsageError(f"{direction} only changes the codec: add --compression")
        if for_another_cluster and target < 2:
            raise UsageError(
                "--for-another-cluster needs v2 as the target: older versions have no producers and epochs"
            )
        if target < max(sources) and not lossy:
            raise UsageError(
                f"{direction} loses fields that v{target} does not have: add --lossy to allow and list that"
            )
        codec = None if compression == "keep" else codec_id(compression)
        if codec is not None and CODECS[codec].first_magic > target:
            raise UsageError(f"v{target} does not have {compression} (KIP-110): choose another --compression")
        if rebatch is not None and target < 2:
            raise UsageError("--rebatch needs v2 as the target: only v2 batches are packed")
        if rebatch is not None and rebatch > MAX_REBATCH:
            raise UsageError(
                f"--rebatch: expected at most {MAX_REBATCH:,} bytes, because each batch is built in memory"
            )
        another_cluster = another_clusters.AnotherCluster(keep_producers) if for_another_cluster else None
        return cls(direction, codec, rebatch, skip_damaged, force, another_cluster)

    def of_segment(self, path: str) -> ConversionPlan:
        """Return the plan for a segment."""
        if self.another_cluster is None:
            return self
        return replace(self, another_cluster=self.another_cluster.of_segment(path))

    @property
    def sources(self) -> frozenset[int]:
        """Return the versions that are converted; batches of the target's version are copied."""
        return DIRECTIONS[self.direction][0]

    @property
    def target(self) -> int:
        return DIRECTIONS[self.direction][1]

    @property
    def downwards(self) -> bool:
        return self.target < max(self.sources)

    def why_rejected(self, magic: int) -> str:
        """Return why the conversion rejects a batch of version ``magic``, and which ones accept it."""
        target, taken = self.target, ", ".join(f"v{one}" for one in sorted({*self.sources, self.target}))
        if target >= 2:
            advice = "any-to-v2"
        else:  # a conversion of a version to itself accepts no other one
            own = target in self.sources
            advice = f"v{magic}-to-v{target}" if own else f"any-to-v2, and v2-to-v{target} on its result"
        return f"v{magic}, but this conversion accepts only {taken}: use {advice}"
