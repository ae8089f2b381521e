"""The ids of a log directory, in its ``meta.properties``, which a KRaft broker checks before it loads any log.

Sources: ``MetaPropertiesEnsemble`` and ``KafkaRaftServer.initializeLogDirs`` of Kafka 4.3.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial

from kseg.format.log_loader.loaded_files import OfflineError, RefusedError
from kseg.format.sidefiles.metadata_files import MetaProperties, walk_meta_properties
from kseg.format.sidefiles.side_file_reading import entries_of
from kseg.format.storage import local_files
from kseg.format.storage.naming import META_PROPERTIES
from kseg.text import excerpt

# DirectoryId: UNASSIGNED, LOST, MIGRATING and 97 more values are reserved.
_RESERVED = 100
_SHOWN = {"cluster_id": "cluster.id", "node_id": "node.id", "directory_id": "directory.id"}


def read_identity(log_dir: str) -> MetaProperties:
    """Return the cluster, node and directory ids of a log directory.

    Raises OfflineError if a broker can't read the file, RefusedError if the file names no cluster or node.
    """
    path = os.path.join(log_dir, META_PROPERTIES)
    if not local_files.exists(path):
        raise RefusedError("it does not exist: the log directory is not formatted", META_PROPERTIES)
    try:
        if os.path.isdir(path):
            raise OfflineError("it is a folder", META_PROPERTIES)
        found: MetaProperties = entries_of(path, partial(walk_meta_properties, needs_node=False))[0]
    except ValueError as error:
        raise OfflineError(str(error), META_PROPERTIES) from error
    if found.directory_id is not None and _number(found.directory_id) < _RESERVED:
        raise RefusedError(f"directory.id {found.directory_id} is reserved", META_PROPERTIES)
    for field in ("node_id", "cluster_id"):
        if getattr(found, field) is None:
            raise RefusedError(f"{_SHOWN[field]} is missing", META_PROPERTIES)
    return found


def _number(directory_id: str) -> int:
    """Return the 128 bits of an id in the base64 of ``Uuid.toString``."""
    return int.from_bytes(base64.urlsafe_b64decode(directory_id + "=" * (-len(directory_id) % 4)))


#: In the reasons of ``conflicts``.
IN_ANOTHER = "another log directory"


def conflicts(one: MetaProperties, other: MetaProperties) -> Iterator[str]:
    """Yield the reasons why two log directories can't belong to one broker."""
    if one.cluster_id != other.cluster_id:
        # A text of a file, not always one of Kafka's ids.
        names = excerpt(one.cluster_id or ""), excerpt(other.cluster_id or "")
        yield f"{_SHOWN['cluster_id']} is {names[0]}, but {names[1]} in {IN_ANOTHER}"
    if one.node_id != other.node_id:
        yield f"{_SHOWN['node_id']} is {one.node_id}, but {other.node_id} in {IN_ANOTHER}"
    if one.directory_id is not None and one.directory_id == other.directory_id:
        yield f"{IN_ANOTHER} has the same directory.id {one.directory_id}"


def several_clusters(log_dirs: Iterable[str]) -> str | None:
    """Return a message if log directories are of different clusters: topics of both can have one name without an id."""
    clusters: dict[str, str] = {}
    for log_dir in log_dirs:
        with suppress(OfflineError, RefusedError):
            clusters.setdefault(str(read_identity(log_dir).cluster_id), log_dir)
    if len(clusters) < 2:
        return None
    each = ", ".join(f"{log_dir} ({excerpt(cluster)})" for cluster, log_dir in clusters.items())
    return f"the log directories are of different clusters: {each}"


def owner_of(log_dir: str) -> tuple[str | int | None, ...]:
    """Return what identifies the broker of a log directory: its cluster and node, or the folder if that is unknown."""
    try:
        identity = read_identity(log_dir)
    except RefusedError:
        return (log_dir,)
    return identity.cluster_id, identity.node_id
