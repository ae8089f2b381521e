"""Compare copies of a cluster's metadata log by what they say: its topics, brokers and configurations, not its offsets.

Controllers write their snapshots at other moments and delete their logs up to other offsets, so equal copies differ byte by
byte. The state is what a node has after it has loaded the newest snapshot and the log after it (KIP-630).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kseg.errors import UnreadableError
from kseg.findings import Finding, Report
from kseg.format.internal_topics.effective_state import effective, topic_names
from kseg.format.internal_topics.metadata_loading import replayed, state_files
from kseg.format.internal_topics.state import Data, Item
from kseg.format.sidefiles.log_end import copy_order
from kseg.format.storage.naming import CLUSTER_METADATA, is_snapshot

#: The changes from one copy to another.
CHANGES = ("changed", "appeared", "deleted")
#: ConfigResource.Type of Kafka -> its name.
_RESOURCES = {2: "topic", 4: "broker", 8: "broker logger", 16: "client metrics", 32: "group"}
#: The fields of the next producer id that ``ProducerIdsImage`` does not keep: which broker asked for ids.
_NOT_IN_SNAPSHOTS = ("brokerId", "brokerEpoch")
#: Rules of an incomplete end.
_ENDS = ("truncated-tail", "zero-tail", "zero-segment")
#: The most faults of a copy that are kept.
_MOST_FAULTS = 3


@dataclass(frozen=True, slots=True)
class MetadataCopy:
    """A copy of the metadata log and its state.

    ``log_end`` is the offset after its last record, ``leader_epoch`` that of the last batch. ``faults`` are why its state
    may be wrong or no node can load it. ``items`` are by entity and key.
    """

    path: str
    log_end: int
    leader_epoch: int
    faults: tuple[str, ...]
    items: Mapping[tuple[str, str], Item]
    topics: Mapping[str, str]

    @property
    def whole(self) -> bool:
        """Whether a controller can load the copy to its end."""
        return not self.faults

    @property
    def rank(self) -> tuple[int, int]:
        """The order of copies: in an election of Raft the epoch counts first."""
        return self.leader_epoch, self.log_end


@dataclass(frozen=True, slots=True)
class MetadataDifference:
    """An item that two copies do not have alike.

    ``name`` is what people call it, such as a topic's name. ``fields`` are those that changed. ``a`` and ``b`` are the
    values; None for the copy without the item.
    """

    path: str
    change: str
    entity: str
    name: str
    fields: tuple[str, ...]
    a: Data | None
    b: Data | None


def read_copy(path: str) -> MetadataCopy:
    """Return the state at the end of a copy. Raises UnreadableError if the folder has no log, or cannot be read."""
    paths = state_files(path)
    if not paths:
        raise UnreadableError(f"{path}: no segment or snapshot of a metadata log found")
    faults: list[str] = []

    def report_of(file: str) -> Report:
        # At its start a controller truncates an incomplete end, and fetches it from the leader.
        ignored = _ENDS if file == paths[-1] else ()

        def report(finding: Finding) -> None:
            if finding.is_error and finding.rule not in ignored:
                faults.append(f"{finding.rule} at byte {finding.position} of {os.path.basename(file)}")

        return report

    paths.sort(key=lambda one: (not is_snapshot(one), one))
    state = effective(CLUSTER_METADATA, paths, report_of)
    if fault := replayed(paths).fault:
        faults.append(f"a controller ends at the {fault.record} at offset {fault.offset}: {fault.why}")
    epoch, end = copy_order(path)
    items = {(item.entity, json.dumps(item.key, sort_keys=True)): item for item in state.items() if not item.pending}
    return MetadataCopy(path, end, epoch, tuple(faults[:_MOST_FAULTS]), items, topic_names(items.values()))


def newest(copies: Sequence[MetadataCopy], *, whole: bool = False) -> MetadataCopy | None:
    """Return the newest copy, or the newest ``whole`` one; None without one."""
    found = [one for one in copies if one.whole or not whole]
    return max(found, key=lambda one: one.rank, default=None)


def differences(a: MetadataCopy, b: MetadataCopy) -> Iterator[MetadataDifference]:
    """Yield the items that are not alike, from ``a`` to ``b``: in the order of ``a``, then those that only ``b`` has."""
    for key in [*a.items, *(key for key in b.items if key not in a.items)]:
        before, after = a.items.get(key), b.items.get(key)
        item = before or after
        assert item is not None
        data = (before.data if before else None), (after.data if after else None)
        change = "deleted" if after is None else "appeared" if before is None else "changed"
        fields = _changed_fields(*data) if change == "changed" else ()
        if change == "changed" and not fields:
            continue
        yield MetadataDifference(b.path, change, item.entity, _name(item, {**b.topics, **a.topics}), fields, *data)


def _changed_fields(a: Data | None, b: Data | None) -> tuple[str, ...]:
    a, b = a or {}, b or {}
    names = (name for name in dict.fromkeys([*a, *b]) if not ("nextProducerId" in a and name in _NOT_IN_SNAPSHOTS))
    return tuple(name for name in names if _comparable(a.get(name)) != _comparable(b.get(name)))


def _comparable(value: object) -> object:
    """Return a list of named things in the order of their names: a snapshot has them in another order than the log."""
    if isinstance(value, list) and all(isinstance(one, dict) and "name" in one for one in value):
        return sorted(value, key=lambda one: str(one["name"]))
    return value


def _name(item: Item, topics: Mapping[str, str]) -> str:
    """Return what people call an item: the name of a topic or of its partition, the resource of a setting."""
    key = item.key
    if item.entity == "topic":
        return str(item.data["name"])
    if item.entity == "config":
        kind = _RESOURCES.get(key["resourceType"], str(key["resourceType"]))
        return f"{kind} {key['resourceName'] or 'default'}: {key['name']}"
    if "topicId" in key:
        rest = "".join(f"-{value}" for name, value in key.items() if name != "topicId")
        return topics.get(key["topicId"], str(key["topicId"])) + rest
    return ", ".join(str(value) for value in key.values()) or item.entity
