"""Decide what the new cluster is: its topics with their ids, the replicas of each partition, leaders and configurations.

The leader of a partition is the replica with the latest leader epoch; of those the one whose last valid batch ends last,
and then the one with the most offsets. The others truncate to it, and delete the records before its log start, as in any
cluster (KIP-101).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kseg.commands.adopt.disks import AdoptedReplica, Disk
from kseg.commands.adopt.old_metadata import OldMetadata
from kseg.commands.adopt.topic_choice import topics_of
from kseg.commands.adopt.topic_settings import (
    MOST_PARTITIONS,
    TIERED,
    configuration,
    partitions_of,
    starts_in_tier,
    tiered_topics,
    uses_tier,
)
from kseg.format.log_loader.loaded_files import LeaderEpochCache, truncation_offset
from kseg.format.record.layout import INT32_MAX
from kseg.format.sidefiles.checkpoints import LeaderEpoch, checkpoint_offsets
from kseg.format.storage.naming import CLEANER_OFFSETS
from kseg.text import span

#: Leader epochs that are left out: the disk of the last leader can be lost. Clients ignore a leader of an epoch before the
#: last one that they know.
_SPARE_EPOCHS = 100


@dataclass(frozen=True, slots=True)
class AdoptedPartition:
    """A partition: its replicas, the leader first, and ``order``, the nodes as the cluster lists them.

    ``leader_epoch`` is after all epochs of its replicas and of the metadata. ``lost`` has a line for each replica with
    records that the leader's history excludes, that a start would cut off, or that the leader does not have. Without
    replicas no disk has a folder of it: it starts empty.
    """

    number: int
    replicas: tuple[AdoptedReplica, ...]
    order: tuple[int, ...]
    leader_epoch: int
    lost: tuple[str, ...]

    @property
    def leader(self) -> AdoptedReplica | None:
        """The replica that leads, None for an empty partition."""
        return self.replicas[0] if self.replicas else None


@dataclass(frozen=True, slots=True)
class AdoptedTopic:
    """A topic. ``configs_from`` says where its configuration is from: the old metadata, or why it was guessed."""

    name: str
    topic_id: str
    partitions: tuple[AdoptedPartition, ...]
    configs: Mapping[str, str]
    configs_from: str


@dataclass(slots=True)
class AdoptionPlan:
    """The new cluster. ``left_out`` are folders with the reason, ``blocked`` what keeps it from being written.

    ``new_ids`` are topics of which neither a folder nor the old metadata has the id.
    """

    disks: Sequence[Disk]
    topics: list[AdoptedTopic] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    blocked: list[tuple[str, str]] = field(default_factory=list)
    new_ids: list[str] = field(default_factory=list)

    @property
    def replicas(self) -> Iterator[tuple[AdoptedTopic, AdoptedPartition, AdoptedReplica]]:
        """Each replica with its topic and partition."""
        for topic in self.topics:
            for partition in topic.partitions:
                for replica in partition.replicas:
                    yield topic, partition, replica


def plan_of(disks: Sequence[Disk], replicas: Iterable[AdoptedReplica], old: OldMetadata) -> AdoptionPlan:
    """Return the plan of a cluster with these replicas."""
    made = AdoptionPlan(disks)
    replicas = [*replicas]
    has_tier = uses_tier(disks, replicas)
    in_tier: set[str] = set()
    if any(one.topic_id not in old.names for one in replicas):
        in_tier = tiered_topics(replicas, made.blocked, made.left_out)
    cleaned = {place for disk in disks for place in checkpoint_offsets(os.path.join(disk.path, CLEANER_OFFSETS))}
    for name, topic_id, members in topics_of(replicas, old.names, made.left_out, made.new_ids):
        original = members[0].partition.topic
        compacted = {one for topic, one in cleaned if topic == original}
        tiered = topic_id in in_tier or (has_tier and any(map(starts_in_tier, members)))
        configs, why = configuration(original, topic_id, old, compacted=bool(compacted), tiered=tiered)
        partitions = _partitions(topic_id, members, old, made, compacted, tiered=configs.get(TIERED) == "true")
        if not partitions:
            continue
        same = next((one.name for one in made.topics if one.topic_id == topic_id), None)
        if same is not None:
            why = f"its topic id is that of {same}: correct partition.metadata of one of them, or rename the folders"
            made.blocked += [(replica.path, why) for one in partitions for replica in one.replicas]
        made.topics.append(AdoptedTopic(name, topic_id, tuple(partitions), configs, why))
    known = {topic.topic_id for topic in made.topics}
    gone = sorted(name for topic_id, name in old.names.items() if topic_id not in known)
    made.left_out += [(name, "the old metadata has this topic, and no disk a folder of it") for name in gone]
    made.topics.sort(key=lambda topic: topic.name)
    return made


def _partitions(
    topic_id: str,
    members: Sequence[AdoptedReplica],
    old: OldMetadata,
    made: AdoptionPlan,
    cleaned: Container[int],
    *,
    tiered: bool,
) -> list[AdoptedPartition]:
    by_number: defaultdict[int, list[AdoptedReplica]] = defaultdict(list)
    for replica in members:
        if replica.partition.partition < MOST_PARTITIONS:
            by_number[replica.partition.partition].append(replica)
        else:
            made.left_out.append((replica.path, f"no topic has {MOST_PARTITIONS:,} partitions"))
    known = old.replicas.get(topic_id, {})
    topic = members[0].partition.topic
    count = max([*by_number, *known], default=-1) + 1 if known else partitions_of(topic, by_number)
    nodes = sorted({disk.node for disk in made.disks})
    width = max((len({one.disk.node for one in each}) for each in by_number.values()), default=1)
    found = []
    for number in range(count):
        replicas, spares = _one_per_node(sorted(by_number[number], key=lambda one: one.order, reverse=True), made)
        usable = [one for one in replicas if one.refused is None]
        if replicas and not usable:
            why = f"no broker would load it: {replicas[0].refused}: kseg repair it first, or leave its folder out"
            made.blocked.append((replicas[0].path, why))
        elif usable:
            made.left_out += [(one.path, f"a broker refuses it: {one.refused}") for one in replicas if one.refused]
        homes = [one.disk.node for one in replicas]
        before = [node for node in known.get(number, ()) if node in nodes]
        last_epoch = max([old.epochs.get((topic_id, number), -1), *(one.known_epoch for one in by_number[number])])
        epoch = min(last_epoch + 1 + _SPARE_EPOCHS, INT32_MAX)
        order = _order(homes, before, number) or tuple(nodes[(number + n) % len(nodes)] for n in range(width))
        extra = [one for one in spares if one.refused is None]
        lost = tuple(_losses(usable, extra, cleaned=number in cleaned, tiered=tiered))
        found.append(AdoptedPartition(number, tuple(usable or replicas), order, epoch, lost))
    return found


def _one_per_node(ranked: Sequence[AdoptedReplica], made: AdoptionPlan) -> tuple[list[AdoptedReplica], ...]:
    """Return the best replica of each node, and the others: a broker with two folders of one partition does not start."""
    found: dict[int, AdoptedReplica] = {}
    spares = [one for one in ranked if found.setdefault(one.disk.node, one) is not one]
    for one in spares:
        why = f"{found[one.disk.node].path} of the same node has a later leader epoch or end, or as many offsets"
        made.left_out.append((one.path, why))
    return list(found.values()), spares


def _order(homes: Sequence[int], before: Sequence[int], number: int) -> tuple[int, ...]:
    """Return the nodes of a partition: those that have a folder and those that the old metadata lists, in its order.

    Without metadata they are turned by the number, so that each node is the preferred leader of as many.
    """
    others = sorted(set(homes).difference(before))
    turn = number % len(others) if others and not before else 0
    return (*before, *others[turn:], *others[:turn])


def _losses(
    replicas: Sequence[AdoptedReplica], spares: Sequence[AdoptedReplica], *, cleaned: bool, tiered: bool
) -> Iterator[str]:
    """Yield what of the replicas, the leader first, and of those that are left out is not in the new cluster."""
    if not replicas:
        return
    leader = replicas[0]
    if lost := leader.plan.lost.records:
        yield (
            f"node {leader.disk.node} leads, and a start cuts off {lost:,} readable records: kseg repair {leader.path} "
            "first"
        )
    if leader.readable_end < leader.log_end:
        yield (
            f"node {leader.disk.node} leads, and offsets {span(leader.readable_end, leader.log_end - 1)} at the end of its "
            f"log cannot be read: kseg repair {leader.path} first"
        )
    for other in replicas[1:]:
        yield from _lost_of(other, leader, is_spare=False, cleaned=cleaned, tiered=tiered)
    for other in spares:
        yield from _lost_of(other, leader, is_spare=True, cleaned=cleaned, tiered=tiered)


def _lost_of(
    other: AdoptedReplica, leader: AdoptedReplica, *, is_spare: bool, cleaned: bool, tiered: bool
) -> Iterator[str]:
    """Yield the offsets of a replica that no broker of the new cluster serves: the leader has not them, or other records.

    Between the segments of a ``cleaned`` log they can be missing because later records have the same keys. Those before the
    first segment of a ``tiered`` log are in tiered storage. ``is_spare``: the replica is left out.
    """
    name = other.path if is_spare else f"node {other.disk.node}"
    kept = _kept_by(other, leader)
    if kept < other.readable_end:
        yield (
            f"{name} {'is left out with' if is_spare else 'truncates'} offsets {span(kept, other.readable_end - 1)}: they "
            f"are of leader epoch {other.epoch}, and node {leader.disk.node} has epoch {leader.epoch}"
        )
    for first, end in leader.missing(other, kept):
        before = end <= leader.log_start
        if tiered if before else cleaned:
            continue
        deleted = before and not is_spare
        why = "it deletes them, as the log of the leader begins after them" if deleted else "the leader lacks them"
        yield (
            f"{name} has offsets {span(first, end - 1)}, and node {leader.disk.node} leads: {why}: "
            f"kseg repair {leader.path} {other.path} DST first"
        )


def _kept_by(follower: AdoptedReplica, leader: AdoptedReplica) -> int:
    """Return the offset to which a replica truncates under the leader."""
    epochs, leading = (
        LeaderEpochCache([LeaderEpoch(*entry) for entry in one.plan.epochs], one.log_end) for one in (follower, leader)
    )
    found = truncation_offset(epochs, leading)
    return min(follower.log_end, leader.log_end) if found is None else found
