"""The lab gives each broker a port of its own, although brokers listen seconds after it was chosen."""

from __future__ import annotations

import subprocess
import sys

from tests.support.cli import ROOT

TAKE = """
import sys
from tools.lab.ports import free_port
print(*(free_port() for _ in range(98)), flush=True)
sys.stdin.read()
"""


def test_processes_get_different_ports() -> None:
    """Two brokers of a cluster had one port, and the cluster never came up."""
    processes = [
        subprocess.Popen([sys.executable, "-c", TAKE], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    ports: list[int] = []
    try:
        for process in processes:
            assert process.stdout is not None
            ports += map(int, process.stdout.readline().split())
    finally:
        for process in processes:
            process.communicate()
    assert len(ports) == len(set(ports)) == 4 * 98
