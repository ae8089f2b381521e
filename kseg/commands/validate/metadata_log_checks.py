"""Check a metadata log of KRaft as a whole: whether nodes can replay its records, and what in its state hurts later."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator

from kseg.errors import UnreadableError
from kseg.findings import Finding
from kseg.format.internal_topics.cluster_image import ClusterImage
from kseg.format.internal_topics.metadata_loading import lost_start, newest_sources, state_files
from kseg.format.internal_topics.metadata_replay import ReplayFault
from kseg.format.log_loader.loaded_files import RefusedError
from kseg.format.log_loader.log_dir_start import loaded_metadata, owner_of, read_identity, stray_folders
from kseg.format.log_loader.plan import MARK_FORGOTTEN
from kseg.format.storage import local_files
from kseg.format.storage.naming import CLUSTER_METADATA, PARTITION_METADATA, is_log, partition_of
from kseg.text import count_of


def check_metadata_log(folder: str, given: Collection[str], log_dirs: Iterable[str]) -> list[tuple[str, Finding]]:
    """Return the findings of a metadata log, each with the path of its file.

    ``given`` are the names of the files that are checked. A part of a log says nothing about the whole: if a snapshot or a
    segment of the folder is not among them, there are no findings. ``log_dirs`` are log directories whose partitions are
    checked, too: strays among those of the same broker are found. Source: ``KafkaRaftLog.recoverSnapshots``.
    """
    try:
        paths = state_files(folder)
    except UnreadableError:
        return []
    names = list(map(os.path.basename, paths))
    logs = [name for name in names if is_log(name)]
    if not logs or not set(names) <= set(given):
        return []
    if start := lost_start(newest_sources(paths)):
        return [(start[0], Finding("metadata-snapshot-missing", 0, facts={"offset": start[1]}))]
    found = loaded_metadata(folder)  # nothing if a file cannot be read: that is reported, or a broker has deleted it
    if found.fault is not None:
        return [(os.path.join(folder, os.path.basename(found.fault.path)), _not_replayable(found.fault))]
    if found.image is None:
        return []
    own = os.path.dirname(folder)
    newest = os.path.join(folder, logs[-1])
    findings = [(newest, finding) for finding in _of_cluster(found.image)] if found.image.whole else []
    broker = owner_of(own)
    for log_dir in log_dirs:
        if log_dir == own or owner_of(log_dir) == broker:
            findings += _of_log_dir(log_dir, found.image, newest)
    return findings


def _not_replayable(fault: ReplayFault) -> Finding:
    who = "controllers and brokers" if fault.brokers else "controllers"
    facts = {"who": who, "record": fault.record, "why": fault.why}
    return Finding("metadata-not-replayable", fault.position, fault.end, fault.offset, fault.offset, facts)


def _of_cluster(image: ClusterImage) -> Iterator[Finding]:
    for controller in image.ghost_controllers():
        yield Finding("ghost-controller", 0, facts={"node": controller})
    for node, lower in image.lagging_nodes():
        what = ", ".join(f"{name} {level} of {high}" for name, (level, high) in lower.items())
        yield Finding("upgrade-blocked", 0, facts={"node": node, "what": what})
    for broker, partitions in image.last_replicas().items():
        yield Finding("last-replica-fenced", 0, facts={"node": broker, "partitions": partitions})


def _of_log_dir(log_dir: str, image: ClusterImage, newest: str) -> Iterator[tuple[str, Finding]]:
    try:
        identity = read_identity(log_dir)
        names = local_files.names_in(log_dir)
    except (RefusedError, UnreadableError):
        return  # the folder is a copy outside of a log directory
    for name, stray in stray_folders(log_dir, sorted(names), image).items():
        if stray.action == MARK_FORGOTTEN:
            continue  # the damage of the metadata log is reported: it says nothing about the folder
        yield (
            os.path.join(log_dir, name, PARTITION_METADATA),
            Finding("stray-folder", 0, facts={"folder": name, "why": stray.why}),
        )
    if not image.whole:
        return
    node, directory = identity.node_id, identity.directory_id
    partitions = [name for name in names if (found := partition_of(name)) and found.topic != CLUSTER_METADATA]
    if partitions and node is not None and directory is not None and image.lacks_directory(node, directory):
        facts = {"node": node, "directory": directory, "folders": count_of(len(partitions), "partition folder")}
        # meta.properties is no file that validate reports on for itself: the log names its directory.
        yield newest, Finding("unregistered-directory", 0, facts=facts)
