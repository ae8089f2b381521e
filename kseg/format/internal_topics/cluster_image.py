"""The state of a cluster at the end of its metadata log, and what in it hurts although every node can load it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from kseg.format.messages.message_reader import Message
from kseg.format.record.control_records import ControlRecord

METADATA_VERSION = "metadata.version"
#: The lowest and highest level of each feature that Kafka 4.3 supports: ``QuorumFeatures.defaultSupportedFeatureMap``.
FEATURES: Mapping[str, tuple[int, int]] = {
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "kraft.version": (0, 1),
    "metadata.version": (7, 30),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}
#: The lowest and the highest level of each feature that a node supports.
FeatureRanges = Mapping[str, tuple[int, int]]
#: The range of a feature that a node does not name (``QuorumFeatures.DISABLED``).
_DISABLED = (0, 0)


def feature_ranges(data: Message) -> FeatureRanges:
    """Return the ranges in the registration of a node."""
    return {one["name"]: (one["minSupportedVersion"], one["maxSupportedVersion"]) for one in data.get("features") or ()}


class PartitionImage(NamedTuple):
    """A partition: its ``replicas``, and how many ``directories`` are known, None if none yet.

    Those in sync (``isr``) and those ``eligible`` (KIP-966) can lead it without a loss.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...]
    directories: int | None


@dataclass(slots=True)
class TopicImage:
    """A topic, with its partitions by their numbers."""

    name: str
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


class BrokerImage(NamedTuple):
    """A registered broker. ``directories`` are the ids of its log directories, empty before metadata.version 3.7."""

    epoch: int
    directories: tuple[str, ...]
    fenced: bool
    features: FeatureRanges


class ClusterImage:
    """The state: ``topics`` by id, ``brokers`` and ``controllers`` by node.

    ``voters`` is None as long as no record names them: the quorum is static, and has the ``static_voters`` of quorum-state,
    None without that file. ``cut``: a snapshot lacks its footer, which a node does not notice. ``damaged``: the log ends at
    damage, after which a node fetches it again from other controllers. ``empty``: no record has changed the state.
    ``initial``: it is what a node begins an empty log with, from ``bootstrap.checkpoint``.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicImage] = {}
        self.brokers: dict[int, BrokerImage] = {}
        self.controllers: dict[int, FeatureRanges] = {}
        self.voters: frozenset[int] | None = None
        self.static_voters: frozenset[int] | None = None
        self.cut = False
        self.damaged = False
        self.empty = True
        self.initial = False
        self.metadata_version: int | None = None

    @property
    def whole(self) -> bool:
        """Whether the state is that of the cluster at the end of the log."""
        return not self.cut and not self.damaged

    def is_last_word(self, node: int) -> bool:
        """Return whether a node that starts has this state: it is the only voter, or fetches only what follows."""
        if self.initial or {node} == (self.voters or self.static_voters or self.controllers.keys()):
            return True
        return not self.damaged and (self.cut or node in self.brokers)

    def lacks_end(self, node: int) -> bool:
        """Return whether the log has lost records that a node had: it is damaged, or ends before the node's registration."""
        return not self.whole or not (self.initial or node in self.brokers)

    def apply_control(self, control: ControlRecord) -> None:
        """Apply a control record: those that name the voters count (KIP-853)."""
        found = control.fields.get("voters") if control.type == "KRAFT_VOTERS" else None
        if isinstance(found, list):
            self.voters = frozenset(voter["voter_id"] for voter in found)

    def ghost_controllers(self) -> list[int]:
        """Return the registered controllers that are no voters: removed ones stay registered until Kafka 4.4 (KIP-1312)."""
        return [] if self.voters is None else sorted(self.controllers.keys() - self.voters)

    def lagging_nodes(self) -> Iterator[tuple[str, dict[str, tuple[int, int]]]]:
        """Yield each node that supports less than others, and its highest levels beside theirs, by feature.

        No feature can be raised above what all registered nodes support. Source: ``FeatureControlManager``.
        """
        nodes = {f"broker {node}": broker.features for node, broker in sorted(self.brokers.items())}
        nodes |= {f"controller {node}": ranges for node, ranges in sorted(self.controllers.items())}
        highest: dict[str, int] = {}
        for ranges in nodes.values():
            for name, (_, high) in ranges.items():
                highest[name] = max(high, highest.get(name, 0))
        for node, ranges in nodes.items():
            levels = {name: (ranges.get(name, _DISABLED)[1], high) for name, high in sorted(highest.items())}
            if lower := {name: pair for name, pair in levels.items() if pair[0] < pair[1]}:
                yield node, lower

    def last_replicas(self) -> dict[int, int]:
        """Return how many partitions each fenced broker alone has in sync, if another broker runs.

        Without an unfenced broker the cluster was stopped: its last broker leaves such partitions.
        """
        if all(broker.fenced for broker in self.brokers.values()):
            return {}
        alone: Counter[int] = Counter()
        for topic in self.topics.values():
            electable = ({*one.isr, *one.eligible} for one in topic.partitions.values())
            alone.update(nodes.pop() for nodes in electable if len(nodes) == 1)
        return {node: count for node, count in sorted(alone.items()) if self._is_fenced(node)}

    def _is_fenced(self, node: int) -> bool:
        broker = self.brokers.get(node)
        return broker is not None and broker.fenced

    def lacks_directory(self, node: int, directory: str) -> bool:
        """Return whether a broker has registered log directories, but not this one."""
        broker = self.brokers.get(node)
        return broker is not None and bool(broker.directories) and directory not in broker.directories

    def similar_id(self, topic_id: str) -> str | None:
        """Return the id of a topic that has one half of ``topic_id`` and not the other; ids are random."""
        if topic_id in self.topics:
            return None
        half = len(topic_id) // 2
        return next(
            (known for known in self.topics if known[:half] == topic_id[:half] or known[half:] == topic_id[half:]), None
        )

    def why_stray(self, node: int, topic_id: str, topic: str, number: int) -> str | None:
        """Return why a broker takes a folder for a stray of no partition of its own; None if it does not.

        ``topic`` and ``number`` are those of the folder's name. Source: ``LogManager.isStrayKraftReplica``.
        """
        found = self.topics.get(topic_id)
        if found is None:
            if similar := self.similar_id(topic_id):
                return f"its id {topic_id} is damaged: topic {self.topics[similar].name} has {similar}"
            now = next((known for known, one in self.topics.items() if one.name == topic), None)
            where = " in what is left of the metadata log" if self.lacks_end(node) else ""
            return f"no topic has its id {topic_id}{where}" + (f", and the topic of its name has {now}" if now else "")
        partition = found.partitions.get(number)
        if partition is None:
            return f"its topic has no partition {number}"
        if node not in partition.replicas:
            nodes = ", ".join(map(str, partition.replicas))
            return f"its replicas are on {nodes}, not on broker {node}"
        return None

    def why_rejected(self, node: int, topic_id: str, topic: str, number: int) -> str | None:
        """Return why a broker does not serve the partition of a folder that is not a stray; None if it does.

        Source: ``UnifiedLog.assignTopicId``, whose exception also ends the change of the other partitions (observed).
        """
        found = self.topics.get(topic_id)
        if found is None or found.name == topic:
            return None
        known = next((known for known, one in self.topics.items() if one.name == topic), "")
        partition = self.topics[known].partitions.get(number) if known else None
        if partition is None or node not in partition.replicas:
            return None
        return f"its id {topic_id} is that of topic {found.name}: topic {topic} has {known}"
