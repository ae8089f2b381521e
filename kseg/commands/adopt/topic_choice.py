"""Decide which topic the folders of one name are: brokers can have folders of a topic that was deleted and created again."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from kseg.commands.adopt.disks import DELETED_STATES, AdoptedReplica, random_id
from kseg.format.storage.naming import LONGEST_TOPIC
from kseg.text import iso_time

#: Characters of a topic id that make the name of a second topic with the same name.
_SHORT_ID = 8


def topics_of(
    replicas: Iterable[AdoptedReplica],
    names: Mapping[str, str],
    left_out: list[tuple[str, str]],
    new_ids: list[str],
) -> Iterator[tuple[str, str, list[AdoptedReplica]]]:
    """Yield the name, the id and the replicas of each topic. ``names`` are those of the old metadata by id.

    A folder in use without an id gets that of the topic in use. Those of a deleted topic without one are a topic of their
    own: with the id of another one they would replace its records. ``left_out`` gets the folders in use of an older topic,
    ``new_ids`` the names of topics that get a new id.
    """
    by_name: defaultdict[str, defaultdict[str | None, list[AdoptedReplica]]] = defaultdict(lambda: defaultdict(list))
    for replica in replicas:
        by_name[replica.partition.topic][replica.topic_id].append(replica)
    for name, by_id in by_name.items():
        without = by_id.pop(None, [])
        rivals = [_Rival(topic_id or "", members, names) for topic_id, members in by_id.items()]
        if in_use := [one for one in without if _is_live(one)]:
            known = max((one for one in rivals if one.is_live), key=lambda one: one.order, default=None)
            free = (topic_id for topic_id, old_name in names.items() if old_name == name and topic_id not in by_id)
            if known is not None:
                known.members += in_use
            else:
                rivals.append(_Rival(next(free, ""), in_use, names))
        if gone := [one for one in without if not _is_live(one)]:
            rivals.append(_Rival("", gone, names))
        first, *others = sorted(rivals, key=lambda one: one.order, reverse=True)
        for one in (first, *others):
            if one is not first and one.is_live:
                left_out += [(each.path, first.why_before(one)) for each in one.members]
                continue
            short = f"{name[: LONGEST_TOPIC - 1 - _SHORT_ID]}.{one.topic_id[:_SHORT_ID]}"
            new_ids += [name if one is first else short] * one.is_new
            yield name if one is first else short, one.topic_id, one.members


def _is_live(replica: AdoptedReplica) -> bool:
    return replica.partition.state not in DELETED_STATES


class _Rival:
    """A topic among those of one name. A ``topic_id`` of "" gets a new one."""

    def __init__(self, topic_id: str, members: list[AdoptedReplica], names: Mapping[str, str]) -> None:
        self.topic_id = topic_id or random_id()
        self.members = members
        self.is_live = any(map(_is_live, members))
        self.is_new = not topic_id
        self._is_known = topic_id in names
        # Copies of folders are as old as the copy. Later times than now are of clients with wrong clocks.
        now = time.time() * 1000
        self._last = max((stamp for one in members if (stamp := one.last_timestamp) <= now), default=-1)

    @property
    def order(self) -> tuple[bool, bool, int, int, float]:
        """What orders topics: in use, known to the metadata, the last record, the nodes, and the time of the folders."""
        nodes = len({one.disk.node for one in self.members})
        changed = max(os.path.getmtime(one.path) for one in self.members)
        return self.is_live, self._is_known, self._last, nodes, changed

    def why_before(self, other: _Rival) -> str:
        """Return why this one has the name, and not another one that is in use, too."""
        if self._is_known != other._is_known:
            why = "which the old metadata has"
        elif self._last != other._last:
            why = f"and its last record is newer, of {iso_time(self._last)}"
        elif self.order[3] != other.order[3]:
            why = "and is on more nodes"
        else:
            why = "and its folders were changed later"
        return f"another topic of this name has the id {self.topic_id}, {why}"
