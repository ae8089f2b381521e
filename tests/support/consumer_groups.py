"""What Kafka's own tool prints about consumer groups."""

from __future__ import annotations

import re
from typing import NamedTuple

from tools.lab.kraft import KraftBroker
from tools.lab.oracle import run_java

#: Kafka's tool for groups.
PROGRAM = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
# Group (which can contain spaces), topic, partition, current offset, log end offset, lag, and the member.
_LINE = re.compile(r"(.+?) +(\S+) +(\d+) +(\d+) +(\d+) +(-?\d+) +\S+.*")


class Described(NamedTuple):
    """A line of ``kafka-consumer-groups --describe``."""

    group: str
    topic: str
    partition: int
    committed: int
    end: int
    lag: int


def described(version: str, broker: KraftBroker) -> list[Described]:
    """Return the committed offsets of all groups of a running broker."""
    options = ["--bootstrap-server", broker.bootstrap, "--describe", "--all-groups", "--offsets"]
    lines = run_java(version, PROGRAM, options).splitlines()
    found = [match for match in map(_LINE.fullmatch, lines) if match]
    return [Described(match[1], match[2], *map(int, match.groups()[2:])) for match in found]
