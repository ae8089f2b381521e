"""The partition folders that a broker renames to ``-stray`` at its start, because the metadata does not place them on it.

Source: ``LogManager.isStrayKraftReplica`` of Kafka 4.3, which asks the metadata that the controllers have by then. The log
on a broker's disk ends with its last shutdown: a topic that is deleted later makes more strays, and one that is created
later has no folder here.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from kseg.errors import KsegError
from kseg.format.internal_topics.cluster_image import ClusterImage
from kseg.format.internal_topics.effective_state import state_files
from kseg.format.internal_topics.metadata_replay import Replayed, replayed
from kseg.format.log_loader.loaded_files import RefusedError
from kseg.format.log_loader.log_dir_identity import read_identity
from kseg.format.sidefiles.metadata_files import topic_id_of
from kseg.format.storage.naming import (
    CLUSTER_METADATA,
    METADATA_FOLDER,
    is_in_use,
    partition_of,
)


def metadata_beside(log_dir: str) -> Replayed:
    """Return what a node has that loads the metadata log in a log directory: nothing if none can be read."""
    try:
        return replayed(state_files(os.path.join(log_dir, METADATA_FOLDER)))
    except KsegError:
        return Replayed(None, None)


def stray_folders(log_dir: str, folders: Iterable[str], image: ClusterImage) -> dict[str, str]:
    """Return the names among ``folders`` that become strays, each with the reason.

    Folders without a readable topic id are not among them. Nothing is said of a broker that runs, which may just have
    created a folder, or that the log does not know: it is that of another cluster. The same goes for a broker that fetches
    what is missing from other controllers.
    """
    try:
        node = read_identity(log_dir).node_id
    except RefusedError:
        return {}
    if node is None or not image.is_last_word(node) or is_in_use(log_dir):
        return {}
    found: dict[str, str] = {}
    for name in folders:
        partition = partition_of(name)
        if partition is None or partition.state is not None or partition.topic == CLUSTER_METADATA:
            continue
        topic_id = topic_id_of(os.path.join(log_dir, name))
        if topic_id and (why := image.why_stray(node, topic_id, partition.topic, partition.partition)):
            found[name] = why
    return found
