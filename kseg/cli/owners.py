"""``--group`` and ``--txn``: the records of one group or of one transactional id in the internal topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import click

from kseg.cli import common
from kseg.cli.messages import note
from kseg.errors import UsageError
from kseg.format.internal_topics.coordinators import Owner
from kseg.format.internal_topics.recognise import internal_topic
from kseg.format.storage.source import SegmentFile, topic_partition


def owner_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command."""
    for option in (
        click.option("--partitions", type=common.WholeNumber(min=1), metavar="N",
                     help="Set the number of partitions of that internal topic, to read only one. Default: all."),
        click.option("--txn", metavar="ID", help="Show the records of this transactional id."),
        click.option("--group", metavar="GROUP", help="Show the records of this group."),
    ):  # fmt: skip
        command = option(command)
    return command


def owner_of(group: str | None, txn: str | None, partitions: int | None) -> Owner | None:
    """Return the owner that the options name. Raises UsageError for contradicting options."""
    if group is not None and txn is not None:
        raise UsageError("--group and --txn exclude each other")
    owner = Owner.of(group, txn)
    if owner is None and partitions is not None:
        raise UsageError("--partitions is for --group and --txn")
    return owner


def files_of(
    owner: Owner, files: Sequence[SegmentFile], decode_as: str | None, partitions: int | None
) -> list[SegmentFile]:
    """Return the files that can have the owner's records: of ``partitions`` those of one partition, which is printed.

    With ``partitions`` None these are all: a broker has only some partitions, so the folders do not show their number.
    Raises UsageError if that partition is missing.
    """
    own = [file for file in files if internal_topic(file.path, decode_as) == owner.topic]
    if not own and files:
        raise UsageError(f"{owner.name}: no folder of {owner.topic} found; for other folder names add --decode TOPIC")
    if partitions is None:
        return own
    numbers = {number for file in own if (number := topic_partition(file.path)[1]) is not None}
    if numbers and partitions <= max(numbers):
        raise UsageError(f"--partitions {partitions}: {owner.topic} has a partition {max(numbers)}")
    partition = owner.partition(partitions)
    note(f"{owner.name}: reads only partition {partition} of {partitions} of {owner.topic}")
    if numbers and partition not in numbers:
        raise UsageError(f"{owner.name}: no folder {owner.topic}-{partition} found: give the log directory that has it")
    return [file for file in own if topic_partition(file.path)[1] in (None, partition)]
