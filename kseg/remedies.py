"""Remedies: what an operator does about a finding, as a sentence and as commands.

Each command was carried out on a real broker: ``tools/lab/remedy_lab.py``, whose results are in ``fixtures/remedies``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

#: The meaning of names in capitals in commands. A broker takes a log directory with an unknown folder offline.
PLACEHOLDERS = (
    "`FILE` is the file of the finding, `SEGMENT` its path without the suffix, `PARTITION` its partition folder, and "
    "`LOG_DIR` the log directory. `NEW` and `BACKUP` are new folders outside all log directories."
)
STOP, START = "# stop the broker", "# start the broker"


class Action(NamedTuple):
    """Commands of a remedy, and the case that they are for; an empty case is every case."""

    case: str
    commands: tuple[str, ...]


class Remedy(NamedTuple):
    """What to do, in sentences, and the commands if it is an action on files."""

    text: str
    actions: tuple[Action, ...] = ()


def _stopped(*commands: str, case: str = "") -> Action:
    return Action(case, (STOP, *commands, START))


NOTHING = Remedy("Nothing.")

FETCH = _stopped(
    "kafka-topics.sh --bootstrap-server OTHER_BROKER --describe --topic TOPIC",
    "# continue only if another broker is the leader of the partition",
    "mv PARTITION BACKUP",
    case="another replica is in sync",
)
_WITHOUT = "there is no other replica"
_UNCLEAN = "rm -f LOG_DIR/.kafka_cleanshutdown"
#: The beginning of the line that replaces a partition folder.
SWAP = "test -d "
# One line, and only with a result: a repair that did not run must not take the partition away, and recovery at an unclean
# start would truncate its damage. Its exit code says nothing, because it is 1 with losses.
# Without .kafka_cleanshutdown the broker rebuilds the state of producers whose snapshots describe lost batches.
_REPLACE = f"{SWAP}NEW && mv PARTITION BACKUP && mv NEW PARTITION && {_UNCLEAN}"
_KEEP = _stopped("kseg repair PARTITION NEW", _REPLACE, case=_WITHOUT)
_KEEP_RECORDS = _stopped("kseg repair --salvage-records PARTITION NEW", _REPLACE, case=_WITHOUT)
CORRECTED = _KEEP._replace(case="")

# A running broker changes its files during a copy, so a copy of its partition is not consistent.
_FETCH_TEXT = (
    "If another replica is in sync, stop the broker, move the partition folder out of the log directory and start the "
    "broker: it fetches the partition from the leader."
)
COPY = Remedy(_FETCH_TEXT, (FETCH,))
RESTORE = Remedy(
    f"{_FETCH_TEXT} Otherwise keep the valid batches: stop the broker, and replace the folder by the result of "
    "`kseg repair PARTITION NEW`, and delete .kafka_cleanshutdown of the log directory.",
    (FETCH, _KEEP),
)
CORRECT = Remedy(
    f"{_FETCH_TEXT} Otherwise stop the broker, and replace the folder by the result of `kseg repair PARTITION NEW`: it "
    "corrects the field if the CRC or the batches around it prove the value, and keeps all valid batches. Delete "
    ".kafka_cleanshutdown of the log directory, too.",
    (FETCH, _KEEP),
)
# Replicas have the bytes that a client sent.
CLAIMED = Remedy(
    "On each replica, stop the broker, and replace the folder by the result of `kseg repair PARTITION NEW`: it corrects the "
    "attributes and keeps the records. Delete .kafka_cleanshutdown of the log directory, too. Find the client that sent "
    "these bytes, and update or correct it.",
    (CORRECTED,),
)
SALVAGE = Remedy(
    f"{_FETCH_TEXT} Otherwise keep the records that can be read: stop the broker, and replace the folder by the result of "
    "`kseg repair --salvage-records PARTITION NEW`, and delete .kafka_cleanshutdown of the log directory.",
    (FETCH, _KEEP_RECORDS),
)
LOST = Remedy(
    "If the topic is compacted, validate with `--compacted`. Otherwise compare with another replica: `kseg diff A B`. "
    "If that replica is in sync and has the records, stop the broker, move the partition folder out of the log directory "
    "and start the broker: it fetches the partition from the leader. Losses of a repair are known with "
    "`--baseline REPORT`.",
    (FETCH,),
)
#: What to do about damage of the log of the cluster's metadata: a repair is no remedy.
METADATA_LOG = Remedy(
    "A repaired metadata log has a gap, so controllers cannot load it. Move the folder away if the other controllers have a "
    "majority: this one fetches it. Otherwise restore a backup, or make a new cluster with `kseg adopt`."
)
COMPARE = Remedy(
    "Compare with another replica: `kseg diff A B`. If that replica is in sync and has the records, stop the broker, move "
    "the partition folder out of the log directory and start the broker: it fetches the partition from the leader.",
    (FETCH,),
)
ZERO_SEGMENT = Remedy(
    "Nothing if segments are preallocated (log.preallocate) and the partition was never written to. Otherwise its records "
    f"are lost. {_FETCH_TEXT}",
    (FETCH,),
)
INDEX = Remedy(
    "Stop the broker, delete the segment's .index file and start the broker: it rebuilds all indexes of the segment.",
    (_stopped("rm SEGMENT.index"),),
)
TIME_INDEX = Remedy(
    "Nothing for a missing .index. For a missing .timeindex, stop the broker, delete the segment's .index too and start "
    "the broker: it rebuilds both.",
    (_stopped("rm SEGMENT.index"),),
)
ALL_INDEXES = Remedy(
    "Nothing if only the logs were copied. To add the indexes, stop the broker and copy them from the result of "
    "`kseg repair --indexes-only PARTITION NEW`.",
    (_stopped("kseg repair --indexes-only PARTITION NEW", "cp NEW/*index PARTITION/"),),
)
TAIL = Remedy(
    "Nothing if the broker was killed: it truncates the batch at its start. After a clean shutdown it appends after the "
    "incomplete batch: before the start, delete .kafka_cleanshutdown of the log directory, so that it truncates. In an "
    "older segment, or in a copy, copy the file again.",
    (_stopped(_UNCLEAN),),
)
ZEROS = Remedy(
    "In the newest segment, nothing if the broker was killed: it removes the zeros at its start. After a clean shutdown "
    "the zeros can end the broker at its start: before, delete .kafka_cleanshutdown of the log directory. In an older "
    f"segment: {_FETCH_TEXT[0].lower()}{_FETCH_TEXT[1:]}",
    (_stopped(_UNCLEAN, case="it is the newest segment"), FETCH, _KEEP),
)
# UnifiedLog.rebuildProducerState: after a clean shutdown it takes a log without any snapshot for one of an old version.
SNAPSHOT = Remedy(
    "Stop the broker, delete the partition's snapshots and the log directory's .kafka_cleanshutdown, and start the broker: "
    "it rebuilds the state from the log. After a clean shutdown, and without a snapshot, it would forget all producers and "
    "open transactions.",
    (_stopped("rm PARTITION/*.snapshot", _UNCLEAN),),
)
NO_SNAPSHOT = Remedy(
    "Stop the broker, delete .kafka_cleanshutdown of the log directory, and start the broker: it then reads the producers "
    "from the log. For a copy: `kseg repair PARTITION NEW` writes the snapshots.",
    (_stopped(_UNCLEAN),),
)
#: What to do about a folder that the metadata does not place on the broker, for a sentence that goes on or ends.
UNPLACED = (
    "If partition.metadata is damaged, copy that of another partition of the topic. Otherwise, if its records are to be in "
    "use, put the result of `kseg convert any-to-v2 --for-another-cluster` in its place, with the partition.metadata of the "
    "present topic. Nothing if the topic was deleted, or moved to other brokers"
)
DELETED_SNAPSHOT = Remedy("Nothing: the broker deletes the file at its start.", (Action("", (START,)),))
_EPOCH_FILE = _stopped("kseg repair PARTITION NEW", "cp NEW/leader-epoch-checkpoint PARTITION/")
EPOCHS = Remedy(
    "Stop the broker, copy leader-epoch-checkpoint from the result of `kseg repair PARTITION NEW`, which writes it from "
    "the batches, and start the broker. Don't delete it: after a clean shutdown the broker writes only the newest epoch.",
    (_EPOCH_FILE,),
)
MISSING_EPOCHS = Remedy(
    f"{_FETCH_TEXT} Otherwise stop the broker, copy leader-epoch-checkpoint from the result of `kseg repair PARTITION NEW`, "
    "which writes the epochs of the batches, and start the broker.",
    (FETCH, _EPOCH_FILE._replace(case=_WITHOUT)),
)
NAMES = Remedy(
    "Stop the broker and replace the partition folder by the result of `kseg repair PARTITION NEW`: it names each log "
    "after its first offset, and writes new indexes. Delete .kafka_cleanshutdown of the log directory, too.",
    (CORRECTED,),
)
LOG_START_LINE = Remedy(
    "Before the broker starts, correct the line of the partition in the checkpoint, or put the right log back.",
    (_stopped("sed -i 's/^TOPIC NUMBER .*$/TOPIC NUMBER OFFSET/' FILE"),),
)

# One remedy per file, by its name.
_REWRITTEN = "the broker writes it again without a loss"
_DELETE = _stopped("rm FILE")
_LINES = 'sed -i "2s/.*/$(tail -n +3 FILE | wc -l)/" FILE'
_NOT_DELETED = "Don't delete the file: deleted records would be readable again."
_DELETABLE = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint")
_LOG_STARTS, _EPOCHS = "log-start-offset-checkpoint", "leader-epoch-checkpoint"
DELETE_CHECKPOINT = Remedy(f"Stop the broker, delete the file and start the broker: {_REWRITTEN}.", (_DELETE,))
CHECKPOINT = (
    "Stop the broker. Delete a recovery-point, replication-offset or cleaner-offset checkpoint: the broker writes it "
    "again. Correct a log-start-offset-checkpoint by hand, and copy a leader-epoch-checkpoint from the result of "
    "`kseg repair PARTITION NEW`: deleting one of these brings deleted records back, or loses the leader epochs."
)
_OFFSETS = dict.fromkeys(_DELETABLE, DELETE_CHECKPOINT)
_COMMON: Mapping[str, Remedy] = {**_OFFSETS, _EPOCHS: EPOCHS}
MALFORMED_CHECKPOINT = {
    **_COMMON,
    _LOG_STARTS: Remedy(
        "Stop the broker and correct the line: topic, partition and log start, which another replica's file has. "
        + _NOT_DELETED,
        (_stopped("sed -i 's/^LINE$/TOPIC NUMBER OFFSET/' FILE"),),
    ),
}
CHECKPOINT_COUNT = {
    **_COMMON,
    _LOG_STARTS: Remedy(
        "Stop the broker, add the lines that are missing (topic, partition and log start, which another replica's file "
        f"has), and correct the count in the second line. {_NOT_DELETED}",
        (
            _stopped(_LINES, case="no line is missing"),
            _stopped("echo 'TOPIC NUMBER OFFSET' >> FILE", _LINES, case="a line is missing"),
        ),
    ),
}
DUPLICATE_LINE = {
    **_OFFSETS,
    _LOG_STARTS: Remedy(
        "Stop the broker, delete the wrong line (another replica's file has the log start), and correct the count in the "
        f"second line. {_NOT_DELETED}",
        (_stopped("sed -i '/^LINE$/d' FILE", _LINES),),
    ),
}
METADATA = "Stop the broker and write the file again: `kseg rules metadata-malformed` shows how for each file."
METADATA_FILES = {
    "partition.metadata": Remedy(
        "Stop the broker and copy the file of another partition of the topic. Don't delete it: the broker would take the "
        "partition for a stray one.",
        (_stopped("cp OTHER_PARTITION/partition.metadata FILE"),),
    ),
    "meta.properties": Remedy(
        "Stop the broker and restore the file from a backup, or write its four lines again. The other log directories "
        "have the same node.id and cluster.id. Keep directory.id: with a new one the partitions can stay offline.",
        (
            _stopped(
                "grep -v directory.id OTHER_LOG_DIR/meta.properties > FILE",
                "echo directory.id=DIRECTORY_ID >> FILE",
            ),
        ),
    ),
    "quorum-state": Remedy(
        "Stop the node and restore the file from a backup: it holds the vote of the node. If the node is the only "
        "controller, or only a broker, delete the file: the node writes it again."
    ),
    ".kafka_cleanshutdown": Remedy("Nothing: the broker deletes the file at its start.", (Action("", (START,)),)),
}
#: The files of a log directory itself that keep a node from starting.
IN_LOG_DIRS = {
    "meta.properties": METADATA_FILES["meta.properties"],
    "bootstrap.checkpoint": Remedy(
        "Restore the file from a backup, or make the cluster again with `kseg adopt`. If the metadata log has records, "
        "delete the file: a node uses it only for an empty log."
    ),
}
