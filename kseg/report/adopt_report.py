"""Output of ``kseg adopt``: the new cluster as a table or JSON Lines."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from kseg.commands.adopt.adoption import Identity, NewDisk
from kseg.commands.adopt.adoption_plan import AdoptedTopic, AdoptionPlan
from kseg.commands.adopt.old_metadata import METADATA_VERSION, OldMetadata
from kseg.report.ranking import MOST_ROWS, common_text, fold, names_text
from kseg.report.tables import TableColumn, print_cells, print_text
from kseg.schema import Column, Row, RowKind, row_maker
from kseg.text import count_of, escape_controls


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
        """The number of partitions."""
        return sum(len(topic.partitions) for topic in self.plan.topics)

    @property
    def empty(self) -> list[str]:
        """The partitions of which no disk has a folder."""
        return [
            f"{topic.name}-{one.number}" for topic in self.plan.topics for one in topic.partitions if not one.replicas
        ]

    @property
    def losses(self) -> list[str]:
        """What of the replicas is not in the new cluster, a line each."""
        return [
            f"{topic.name}-{one.number}: {loss}"
            for topic in self.plan.topics
            for one in topic.partitions
            for loss in one.lost
        ]

    @property
    def is_whole(self) -> bool:
        """Whether all that the disks have is in the new cluster."""
        return not (self.plan.blocked or self.plan.left_out or self.empty or self.losses or self.old.faults)


_PARTITION = (
    Column("kind", "text", "partition"),
    Column("topic", "text", "name of the topic"),
    Column("topic_id", "text", "its id, that of its folders"),
    Column("partition", "count", "number of the partition"),
    Column("replicas", "ints", "nodes of the replicas, the preferred leader first"),
    Column("leader", "int?", "node of the leader; null if no disk has a folder of the partition"),
    Column("leader_epoch", "count", "leader epoch at the start: after all epochs of the replicas"),
    Column("log_start", "count", "first offset of the leader"),
    Column("log_end", "count", "offset after the last record of the leader"),
    Column("folders", "texts", "folders of the replicas, that of the leader first"),
    Column("lost", "texts", "what of the replicas is not in the new cluster"),
)
_TOPIC = (
    Column("kind", "text", "topic"),
    Column("topic", "text", "name of the topic", "name"),
    Column("topic_id", "text", "its id"),
    Column("partitions", "count", "number of partitions", lambda topic: len(topic.partitions)),
    Column("configs", "map", "its configuration", of=(Column("", "text", "value"),)),
    Column("configs_from", "text", "where the configuration is from: the old metadata, or why it was guessed"),
)
_FOLDER = (
    Column(
        "kind",
        "text",
        "left_out: not in the new cluster; blocked: the cluster cannot be made with it",
        values=("left_out", "blocked"),
    ),
    Column("folder", "text", "the folder"),
    Column("why", "text", "the reason"),
)
_SUMMARY = (
    Column("kind", "text", "summary"),
    Column("cluster_id", "text", "id of the new cluster"),
    Column("features", "map", "levels of features, such as metadata.version", of=(Column("", "int", "level"),)),
    Column("metadata", "text?", "the old metadata log; null without one"),
    Column("metadata_faults", "texts", "why parts of the old metadata may be wrong or missing"),
    Column("topics", "count", "number of topics"),
    Column("partitions", "count", "number of partitions"),
    Column("log_dirs", "json", "the new log directories: node, directory, source"),
)
ROW_KINDS = (
    RowKind("adopt", "Partitions of an adopted cluster", _PARTITION),
    RowKind("adopt", "Topics of an adopted cluster", _TOPIC, "one row after its partitions"),
    RowKind("adopt", "Folders that are not adopted", _FOLDER),
    RowKind("adopt", "Summary of an adopted cluster", _SUMMARY, "the last row"),
)


def rows(made: Adoption) -> Iterator[Row]:
    """Yield a row per partition, topic and folder that is left out, and a summary."""
    for topic in made.plan.topics:
        yield from map(row_maker(_PARTITION), _partition_rows(topic))
        yield row_maker(_TOPIC)(topic)
    for kind, folders in (("blocked", made.plan.blocked), ("left_out", made.plan.left_out)):
        yield from ({"kind": kind, "folder": folder, "why": why} for folder, why in folders)
    yield {
        "kind": "summary",
        "cluster_id": made.identity.cluster_id,
        "features": dict(made.identity.features),
        "metadata": made.old.path,
        "metadata_faults": made.old.faults,
        "topics": len(made.plan.topics),
        "partitions": made.partitions,
        "log_dirs": [
            {"node": one.node, "directory": one.name, "source": one.source.path if one.source else None}
            for one in made.disks
        ],
    }


def _partition_rows(topic: AdoptedTopic) -> Iterator[Mapping[str, object]]:
    for one in topic.partitions:
        leader = one.leader
        yield {
            "kind": "partition",
            "topic": topic.name,
            "topic_id": topic.topic_id,
            "partition": one.number,
            "replicas": list(one.order),
            "leader": leader.disk.node if leader else None,
            "leader_epoch": one.leader_epoch,
            "log_start": leader.log_start if leader else 0,
            "log_end": leader.log_end if leader else 0,
            "folders": [replica.path for replica in one.replicas],
            "lost": list(one.lost),
        }


COLUMNS = (
    TableColumn("topic", text="wrap"),
    TableColumn("partitions", right=True),
    TableColumn("replicas", right=True, priority=2),
    TableColumn("offsets", right=True, priority=1),
    TableColumn("id", priority=4),
    TableColumn("configuration", text="wrap", priority=3),
    TableColumn("from", text="wrap", priority=2),
)


def write_table(made: Adoption, out: TextIO, *, detail: int = 0) -> None:
    """Write what the new cluster is, what is not in it, and how to start it.

    Of many topics those with the same settings are one row. With ``detail`` 1 each topic and each line is written, with -1
    the answer and numbers.
    """
    _line(out, summary_line(made))
    for title, count, lines in _problems(made):
        _write_some(out, title, count, lines, detail)
    if made.plan.topics and detail >= 0:
        print_cells(out, COLUMNS, [(_cells(topics), "") for topics in _folded(made.plan.topics, detail)])
    if detail >= 0:
        _write_steps(made, out)


def summary_line(made: Adoption) -> str:
    """Return the answer in one line."""
    size = f"{count_of(len(made.plan.topics), 'topic')}, {count_of(made.partitions, 'partition')}"
    nodes = count_of(len({one.node for one in made.disks}), "node")
    if made.plan.blocked:
        return f"cannot be adopted because of {count_of(len(made.plan.blocked), 'folder')}"
    verb = f"written to {made.target}" if made.target else "can be adopted"
    return f"{verb}: {size} on {nodes}{'' if made.is_whole else ', not with all data'}"


def _problems(made: Adoption) -> Iterator[tuple[str, int, list[str]]]:
    """Yield what is not in the new cluster, the worst first: a word, how many there are, and lines."""
    blocked, losses, left_out = made.plan.blocked, made.losses, made.plan.left_out
    yield "blocked", len(blocked), [f"{folder}: {why}" for folder, why in blocked]
    yield "lost", len(losses), losses
    yield "empty", len(made.empty), [f"{names_text(made.empty)}: no disk has a folder of it"] if made.empty else []
    yield "old metadata", len(made.old.faults), [f"{made.old.path}: {why}" for why in made.old.faults]
    by_reason: dict[str, list[str]] = {}
    for folder, why in left_out:
        by_reason.setdefault(why, []).append(folder)
    yield "left out", len(left_out), [f"{names_text(folders)}: {why}" for why, folders in by_reason.items()]


def _write_some(out: TextIO, title: str, count: int, lines: Sequence[str], detail: int) -> None:
    """Write a line each, of many only the first ones, with ``detail`` -1 only the number."""
    if detail < 0:
        out.write(f"{title}: {count:,}\n" * bool(count))
        return
    shown = lines if detail > 0 else lines[:MOST_ROWS]
    for line in shown:
        _line(out, f"{title}: {line}")
    if len(shown) < len(lines):
        _line(out, f"{title}: and {len(lines) - len(shown):,} more: -v lists them")


def _folded(topics: Sequence[AdoptedTopic], detail: int) -> list[list[AdoptedTopic]]:
    return fold(topics, lambda topic: (topic.configs_from, _configs(topic)), whole=detail > 0)


def _configs(topic: AdoptedTopic) -> str:
    return " ".join(f"{name}={value}" for name, value in topic.configs.items()) or "defaults"


def _cells(topics: Sequence[AdoptedTopic]) -> list[str]:
    partitions = [one for topic in topics for one in topic.partitions]
    offsets = sum(one.leader.log_end - one.leader.log_start for one in partitions if one.leader)
    return [
        names_text(topic.name for topic in topics),
        f"{len(partitions):,}",
        "/".join(map(str, sorted({len(one.order) for one in partitions}))),
        f"{offsets:,}",
        common_text(topic.topic_id for topic in topics),
        escape_controls(common_text(map(_configs, topics))),
        common_text(topic.configs_from for topic in topics),
    ]


def _write_steps(made: Adoption, out: TextIO) -> None:
    """Write how to start the new cluster."""
    _line(out, "not checked: batches in the middle of the logs: `kseg validate` reads them all")
    if made.target is None:
        _line(out, "next: the same command with -o NEW writes it; nothing was written")
        return
    level = made.identity.features[METADATA_VERSION]
    _line(out, f"cluster id {made.identity.cluster_id}, metadata.version {level}")
    for node in dict.fromkeys(one.node for one in made.disks):
        folders = ",".join(
            os.path.abspath(os.path.join(made.target, one.name)) for one in made.disks if one.node == node
        )
        _line(out, f"node {node}: log.dirs={folders}")
    _line(out, "next: set these in each server.properties, with controller.quorum.voters, and start all nodes")


def _line(out: TextIO, text: str) -> None:
    print_text(out, escape_controls(text), indent=2)
