"""Ports for brokers of the lab."""

from __future__ import annotations

import errno
import itertools
import random
import socket
from collections.abc import Iterator
from functools import cache

LOCALHOST = "127.0.0.1"
#: Below the ports that Linux (32768) and macOS (49152) give to outgoing connections: one of these could take the port
#: before the broker listens on it, and a probe of a port among them can connect to itself.
_RANGE = range(15_000, 32_000)
#: Ports that belong to one process while it runs. A broker listens seconds after its port was chosen: ports chosen at
#: random are given to two brokers now and then, by one process or by two.
_BLOCK = 100


def free_port() -> int:
    """Return a TCP port of the loopback interface on which nothing listens at the moment.

    It is given to nobody else until this process has asked for 98 others, or ends.
    """
    port = next(_own_ports())
    while (probe := _bound(port)) is None:
        port = next(_own_ports())
    probe.close()
    return port


@cache
def _own_ports() -> Iterator[int]:
    """Yield the ports of a block that no other process has, over and over."""
    while (owner := _bound(first := random.choice(_RANGE[::_BLOCK]))) is None:
        pass
    # The bound socket says to other processes that the block is taken.
    with owner:
        yield from itertools.cycle(range(first + 1, first + _BLOCK))


def _bound(port: int) -> socket.socket | None:
    """Return a socket bound to the port, None if it is taken."""
    probe = socket.socket()
    try:
        probe.bind((LOCALHOST, port))
    except OSError as taken:
        probe.close()
        if taken.errno != errno.EADDRINUSE:
            raise
        return None
    return probe
