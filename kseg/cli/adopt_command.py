"""``kseg adopt``: options, exit codes. 1: not all data is in the new cluster, or it is of several. 2: nothing is written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click

from kseg.cli import common
from kseg.cli.messages import FAILED, FOUND, note, progress_bar
from kseg.cli.typed_command import DetailOptions, command
from kseg.commands.adopt.adoption import Identity, new_disks, write_cluster
from kseg.commands.adopt.adoption_plan import AdoptionPlan, plan_of
from kseg.commands.adopt.disks import disks_of, replicas_of
from kseg.commands.adopt.old_metadata import OldMetadata, newest_metadata, read_metadata
from kseg.errors import UsageError
from kseg.format.log_loader.log_dir_start import several_clusters
from kseg.format.storage.naming import is_url
from kseg.report.adopt_report import Adoption
from kseg.report.formats import ADOPTION, destination
from kseg.report.wording import some_text
from kseg.text import count_of


@dataclass(frozen=True, kw_only=True)
class AdoptOptions(DetailOptions):
    paths: tuple[str, ...]
    nodes: tuple[tuple[int, tuple[str, ...]], ...]
    controllers: tuple[int, ...]
    metadata: str | None
    no_metadata: bool
    release: str | None
    cluster_id: str | None
    deleted: bool


@command(
    AdoptOptions,
    results=ADOPTION,
    arguments=(click.Argument(["paths"], metavar="[PATH]...", nargs=-1, type=common.InputPath()),),
    examples=(
        "kseg adopt broker1/kafka-logs broker2/kafka-logs",
        "kseg adopt --node 1=disk1,disk2 --node 2=disk3 -o new-cluster",
        "kseg adopt --deleted kafka-logs -o new-cluster",
    ),
)
def adopt(asked: AdoptOptions) -> int:
    """Make a cluster from the log directories of its brokers, if its controllers or topics are lost.

    Topics keep their ids, partitions their offsets, and groups what they committed. Without -o the plan is shown and nothing
    is written. -o copies the log directories to a new folder, with the metadata of a KRaft cluster with a static quorum
    (Kafka 3.9 and later). Configurations, users and access rules are those of the newest metadata log among the log
    directories, or else guesses that delete no record.

    Exit codes: 0 all data is in the new cluster, 1 not all of it, or it is of several clusters, 2 it cannot be made.
    """
    homes = {os.path.normpath(path): node for node, paths in asked.nodes for path in paths}
    named = [os.path.normpath(path) for _, paths in asked.nodes for path in paths]
    if twice := next((path for path in named if named.count(path) > 1), None):
        raise UsageError(f"{twice} is given twice: a log directory is of one node")
    paths = (*asked.paths, *homes)
    if not paths:
        raise click.UsageError("Missing argument 'PATH...': give the log directories of all brokers.")
    for path in filter(is_url, paths):
        raise UsageError(f"{path}: adopt reads local log directories only: give a folder")
    target = None if asked.output is None else common.new_folder(asked.output)
    common.check_outputs(*paths)
    made = _planned(asked, homes, target)
    identity, plan = made.identity, made.plan
    if target is not None:
        size = sum(bytes_ for _, _, replica in plan.replicas for _, bytes_ in replica.plan.files)
        with progress_bar(size) as progress:
            write_cluster(plan, made.disks, identity, made.old, target, progress)
    with destination(None) as out:
        asked.write(ADOPTION, out, made)
    mixed = several_clusters(disk.path for disk in plan.disks)
    if mixed is not None:
        note(f"{mixed}: topics of one name without an id are one topic, and groups and transactions can be of either")
    if plan.blocked:
        return FAILED
    return 0 if made.is_whole and mixed is None else FOUND


def _planned(asked: AdoptOptions, homes: dict[str, int], target: Path | None) -> Adoption:
    disks = disks_of(asked.paths, homes)
    old = _old_metadata(asked, [disk.path for disk in disks])
    left_out, unread = list[tuple[str, str]](), list[tuple[str, str]]()
    found = [replica for disk in disks for replica in replicas_of(disk, left_out, unread, deleted=asked.deleted)]
    if not found:
        hint = "".join(f": {path}: {why}" for path, why in (*unread, *left_out)[:1])
        raise UsageError(f"no folder of a partition in {', '.join(disk.path for disk in disks)}{hint}")
    plan: AdoptionPlan = plan_of(disks, found, old)
    plan.left_out += left_out
    plan.blocked += unread
    if plan.new_ids:
        count = count_of(len(plan.new_ids), "topic")
        note(f"{count} without a readable partition.metadata: a new topic id for {some_text(plan.new_ids)}")
    identity = Identity.of(asked.cluster_id, asked.release, old)
    return Adoption(plan, new_disks(disks, asked.controllers), identity, old, str(target) if target else None)


def _old_metadata(asked: AdoptOptions, folders: list[str]) -> OldMetadata:
    """Return the state of the metadata log that was given, or of the newest one among the log directories."""
    if asked.no_metadata:
        return OldMetadata()
    path = asked.metadata or newest_metadata(folders)
    if path is None:
        return OldMetadata()
    if asked.metadata is None:
        note(f"configurations are from {path}: --no-metadata ignores it")
    return read_metadata(path)
