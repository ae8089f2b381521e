"""Ports for brokers of the lab."""

from __future__ import annotations

import errno
import random
import socket

LOCALHOST = "127.0.0.1"
#: Below the ports that Linux (32768) and macOS (49152) give to outgoing connections: one of these could take the port
#: before the broker listens on it, and a probe of a port among them can connect to itself.
_RANGE = range(15_000, 32_000)


def free_port() -> int:
    """A TCP port of the loopback interface on which nothing listens at the moment."""
    while True:
        port = random.choice(_RANGE)
        with socket.socket() as probe:
            try:
                probe.bind((LOCALHOST, port))
            except OSError as taken:
                if taken.errno != errno.EADDRINUSE:
                    raise
            else:
                return port
