"""The names of Kafka's enums for the numbers in records of internal topics."""

from __future__ import annotations

from collections.abc import Mapping

from kseg.format.internal_topics.state import Item

#: RemoteLogSegmentState and RemotePartitionDeleteState.
SEGMENT_STATES = ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED")
DELETE_STATES = ("DELETE_PARTITION_MARKED", "DELETE_PARTITION_STARTED", "DELETE_PARTITION_FINISHED")
_TRANSACTION_STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"
)  # fmt: skip
_ACL_OPERATIONS = (
    "UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
)  # fmt: skip
_ACL_RESOURCES = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")

#: Entity -> field -> number -> name. ACLs and configs number their resource types differently.
_NAMES: Mapping[str, Mapping[str, Mapping[int, str]]] = {
    "acl": {
        "resourceType": dict(enumerate(_ACL_RESOURCES)),
        "patternType": dict(enumerate(("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED"))),
        "operation": dict(enumerate(_ACL_OPERATIONS)),
        "permissionType": dict(enumerate(("UNKNOWN", "ANY", "DENY", "ALLOW"))),
    },
    "config": {
        "resourceType": {2: "TOPIC", 4: "BROKER", 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: "GROUP"},
    },
    "partition": {"leaderRecoveryState": {0: "RECOVERED", 1: "RECOVERING"}},
    "scram credential": {"mechanism": {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}},
    "remote segment": {"remoteLogSegmentState": dict(enumerate(SEGMENT_STATES))},
    "remote partition": {"remotePartitionDeleteState": dict(enumerate(DELETE_STATES))},
    "TransactionLog": {"transactionStatus": dict(enumerate(_TRANSACTION_STATES))},
}
#: The fields that hold a status.
_STATUSES = ("transactionStatus", "remoteLogSegmentState", "remotePartitionDeleteState")


def names(item: Item) -> dict[str, str]:
    """Return the names of an item's numbers by field. Numbers that a newer Kafka added are left out."""
    fields = {**item.key, **item.data}
    known = {name: numbers.get(fields.get(name, -1)) for name, numbers in _NAMES.get(item.entity, {}).items()}
    return {name: value for name, value in known.items() if value is not None}


def status(item: Item) -> str | None:
    """Return the status of a transactional id, a remote segment or a remote partition; None for other items."""
    known = names(item)
    return next((known[name] for name in _STATUSES if name in known), None)
