"""Output of ``kseg adopt``: the new cluster as a table or JSON Lines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TextIO

from kseg.commands.adopt.adoption import Identity, NewDisk
from kseg.commands.adopt.adoption_plan import AdoptedPartition, AdoptedTopic, AdoptionPlan
from kseg.commands.adopt.old_metadata import METADATA_VERSION, OldMetadata
from kseg.commands.adopt.topic_settings import TIERED, needs_defaults
from kseg.report.tables import TableColumn, cell_rows, print_cells, print_text
from kseg.report.wording import MOST_ROWS, common_text, fold, grouped, names_text
from kseg.schema import Column, Row, RowKind
from kseg.text import count_of


@dataclass(frozen=True, slots=True)
class Adoption:
    """A plan with what it is written as. ``target`` is None if nothing is written."""

    plan: AdoptionPlan
    disks: Sequence[NewDisk]
    identity: Identity
    old: OldMetadata
    target: str | None

    @property
    def partitions(self) -> int:
        return sum(len(topic.partitions) for topic in self.plan.topics)

    @property
    def empty(self) -> list[str]:
        """The partitions of which no disk has a folder."""
        return [name for name, one in self._named if not one.replicas]

    @property
    def losses(self) -> list[str]:
        """What of the replicas is not in the new cluster, a line each."""
        return [f"{name}: {loss}" for name, one in self._named for loss in one.lost]

    @property
    def _named(self) -> Iterator[tuple[str, AdoptedPartition]]:
        for topic in self.plan.topics:
            yield from ((f"{topic.name}-{one.number}", one) for one in topic.partitions)

    @property
    def is_whole(self) -> bool:
        """Whether all that the disks have is in the new cluster."""
        return not (self.plan.blocked or self.plan.left_out or self.empty or self.losses or self.old.faults)


_PARTITION = RowKind("adopt", "Partitions of an adopted cluster").of(
    "partition",
    Column("topic", "text", "name of the topic", "topic.name"),
    Column("topic_id", "text", "its id, that of its folders", "topic.topic_id"),
    Column("partition", "count", "number of the partition", "one.number"),
    Column("replicas", "ints", "nodes of the replicas, the preferred leader first", "one.order"),
    Column("leader", "int?", "node of the leader; null if no disk has a folder of the partition", "one.leader.disk.node"),
    Column("leader_epoch", "count", "leader epoch at the start: after all epochs of the replicas", "one.leader_epoch"),
    Column("log_start", "count", "first offset of the leader", lambda found: getattr(found["one"].leader, "log_start", 0)),
    Column("log_end", "count", "offset after the last record of the leader",
           lambda found: getattr(found["one"].leader, "log_end", 0)),
    Column(
        "folders", "texts", "folders of the replicas, that of the leader first",
        lambda found: [replica.path for replica in found["one"].replicas],
    ),
    Column("lost", "texts", "what of the replicas is not in the new cluster", "one.lost"),
)  # fmt: skip
_TOPIC = RowKind("adopt", "Topics of an adopted cluster", "one row after its partitions").of(
    "topic",
    Column("topic", "text", "name of the topic", "name"),
    Column("topic_id", "text", "its id"),
    Column("partitions", "count", "number of partitions", lambda topic: len(topic.partitions)),
    Column("configs", "map", "its configuration", of=(Column("", "text", "value"),)),
    Column("configs_from", "text", "where the configuration is from: the old metadata, or why it was guessed"),
)
_FOLDER = RowKind("adopt", "Folders that are not adopted").of(
    Column(
        "kind",
        "text",
        "left_out: not in the new cluster; blocked: the cluster cannot be made with it",
        values=("left_out", "blocked"),
    ),
    Column("folder", "text", "the folder"),
    Column("why", "text", "the reason"),
)
_SUMMARY = RowKind("adopt", "Summary of an adopted cluster", "the last row").of(
    "summary",
    Column("cluster_id", "text", "id of the new cluster", "identity.cluster_id"),
    Column(
        "features", "map", "levels of features, such as metadata.version", "identity.features",
        of=(Column("", "int", "level"),),
    ),
    Column("metadata", "text?", "the old metadata log; null without one", "old.path"),
    Column("metadata_faults", "texts", "why parts of the old metadata may be wrong or missing", "old.faults"),
    Column("topics", "count", "number of topics", lambda made: len(made.plan.topics)),
    Column("partitions", "count", "number of partitions"),
    Column(
        "log_dirs", "json", "the new log directories: node, directory, source",
        lambda made: [
            {"node": one.node, "directory": one.name, "source": one.source.path if one.source else None}
            for one in made.disks
        ],
    ),
)  # fmt: skip
ROW_KINDS = (_PARTITION, _TOPIC, _FOLDER, _SUMMARY)


def rows(made: Adoption) -> Iterator[Row]:
    """Yield a row per partition, topic and folder that is left out, and a summary."""
    for topic in made.plan.topics:
        yield from _PARTITION.rows({"topic": topic, "one": one} for one in topic.partitions)
        yield from _TOPIC.rows([topic])
    for kind, folders in (("blocked", made.plan.blocked), ("left_out", made.plan.left_out)):
        yield from ({"kind": kind, "folder": folder, "why": why} for folder, why in folders)
    yield _SUMMARY.maker()(made)


def _partitions(topics: Sequence[AdoptedTopic]) -> Iterator[AdoptedPartition]:
    return chain.from_iterable(topic.partitions for topic in topics)


def _offsets(topics: Sequence[AdoptedTopic]) -> int:
    return sum(one.leader.log_end - one.leader.log_start for one in _partitions(topics) if one.leader)


def _replicas(topics: Sequence[AdoptedTopic]) -> str:
    return "/".join(map(str, sorted({len(one.order) for one in _partitions(topics)})))


def _configs(topic: AdoptedTopic) -> str:
    return " ".join(f"{name}={value}" for name, value in topic.configs.items()) or "defaults"


#: The columns of topics with the same settings.
COLUMNS = (
    TableColumn("topic", text="wrap", cell=lambda topics: names_text(topic.name for topic in topics)),
    TableColumn("partitions", right=True, cell=lambda topics: len([*_partitions(topics)])),
    TableColumn("replicas", right=True, priority=2, cell=_replicas),
    TableColumn("offsets", right=True, priority=1, cell=_offsets),
    TableColumn("id", priority=4, cell=lambda topics: common_text(topic.topic_id for topic in topics)),
    TableColumn("configuration", text="wrap", priority=3, cell=lambda topics: common_text(map(_configs, topics))),
    TableColumn(
        "from", text="wrap", priority=2, cell=lambda topics: common_text(topic.configs_from for topic in topics)
    ),
)


def write_table(made: Adoption, out: TextIO, *, detail: int = 0) -> None:
    """Write what the new cluster is, what is not in it, and how to start it.

    Of many topics those with the same settings are one row. With ``detail`` 1 each topic and each line is written, with -1
    the answer and numbers.
    """
    print_text(out, summary_line(made))
    for title, count, lines in _problems(made):
        _write_some(out, title, count, lines, detail)
    if detail < 0:
        return
    if made.plan.topics:
        groups = fold(made.plan.topics, lambda topic: (topic.configs_from, _configs(topic)), whole=detail > 0)
        print_cells(out, COLUMNS, cell_rows(COLUMNS, groups))
    for line in _steps(made):
        print_text(out, line)


def summary_line(made: Adoption) -> str:
    size = f"{count_of(len(made.plan.topics), 'topic')}, {count_of(made.partitions, 'partition')}"
    nodes = count_of(len({one.node for one in made.disks}), "node")
    if made.plan.blocked:
        return f"cannot be adopted because of {count_of(len(made.plan.blocked), 'folder')}"
    verb = f"written to {made.target}" if made.target else "can be adopted"
    return f"{verb}: {size} on {nodes}{'' if made.is_whole else ', not with all data'}"


def _problems(made: Adoption) -> Iterator[tuple[str, int, list[str]]]:
    """Yield what is not in the new cluster, the worst first: a word, how many there are, and lines."""
    blocked, losses, left_out, empty = made.plan.blocked, made.losses, made.plan.left_out, made.empty
    yield "blocked", len(blocked), [f"{folder}: {why}" for folder, why in blocked]
    yield "lost", len(losses), losses
    yield "empty", len(empty), [f"{names_text(empty)}: no disk has a folder of it"] * bool(empty)
    yield "old metadata", len(made.old.faults), [f"{made.old.path}: {why}" for why in made.old.faults]
    by_reason = grouped(left_out, lambda one: one[1])
    lines = [f"{names_text(folder for folder, _ in ones)}: {why}" for why, ones in by_reason.items()]
    yield "left out", len(left_out), lines


def _write_some(out: TextIO, title: str, count: int, lines: Sequence[str], detail: int) -> None:
    """Write a line each, of many only the first ones, with ``detail`` -1 only the number."""
    if detail < 0:
        out.write(f"{title}: {count:,}\n" * bool(count))
        return
    shown = lines if detail > 0 else lines[:MOST_ROWS]
    for line in shown:
        print_text(out, f"{title}: {line}")
    if len(shown) < len(lines):
        print_text(out, f"{title}: and {len(lines) - len(shown):,} more: -v lists them")


def _steps(made: Adoption) -> Iterator[str]:
    """Yield how to start the new cluster."""
    yield "not checked: batches in the middle of the logs: `kseg validate` reads them all"
    if made.target is None:
        yield "next: the same command with -o NEW writes it; nothing was written"
        return
    yield f"cluster id {made.identity.cluster_id}, metadata.version {made.identity.features[METADATA_VERSION]}"
    for node, disks in grouped(made.disks, lambda one: one.node).items():
        folders = ",".join(os.path.abspath(os.path.join(made.target, one.name)) for one in disks)
        yield f"node {node}: log.dirs={folders}"
    defaults = [topic.name for topic in made.plan.topics if needs_defaults(topic.configs)]
    if defaults:
        yield f"keep log.retention.* and log.cleanup.policy: they decide what is deleted of {_some_topics(defaults)}"
    if tiered := [topic.name for topic in made.plan.topics if topic.configs.get(TIERED) == "true"]:
        yield f"keep remote.log.*, rsm.* and rlmm.*: segments of {_some_topics(tiered)} are in tiered storage"
    yield "next: set these in each server.properties, with controller.quorum.voters, and start all nodes"


def _some_topics(names: Sequence[str]) -> str:
    return f"{count_of(len(names), 'topic')} ({names_text(names)})"
