"""Kafka's own classes as the judge of records of internal topics: what a coordinator has after loading them."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.lab import maven

REPLAY = Path(__file__).with_name("GroupReplay.java")
RECORDS = Path(__file__).with_name("InternalRecords.java")
VERSION = "4.3.0"


def loaded_groups(folders: Iterable[Path], classes: Path) -> list[dict[str, Any]]:
    """Return what the group coordinator of Kafka 4.3 has after loading each partition of ``__consumer_offsets``.

    ``committed`` and ``pending`` are lists of offsets, ``groups`` the generations of classic groups, ``error`` the reason if
    it does not load the partition. ``classes`` is a folder for the compiled program.
    """
    lines = _run(REPLAY, "org.apache.kafka.coordinator.group.GroupReplay", map(str, folders), classes)
    return [json.loads(line) for line in lines]


def verdicts(records: Iterable[tuple[str, bytes | None, bytes | None]], classes: Path) -> list[str]:
    """Return what Kafka 4.3 does with each record: ``read``, ``skipped``, or ``failed`` and the error.

    A record is its topic, its key and its value.
    """
    lines = (f"{topic} {_encoded(key)} {_encoded(value)}" for topic, key, value in records)
    return _run(RECORDS, "InternalRecords", lines, classes)


def _encoded(data: bytes | None) -> str:
    return "-" if data is None else "=" + base64.b64encode(data).decode()


def _run(program: Path, name: str, lines: Iterable[str], classes: Path) -> list[str]:
    jars = f"{maven.libs(VERSION)}/*"
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(classes), str(program)], check=True)
    command = ["java", *maven.JVM, "-cp", f"{classes}:{jars}", name]
    done = subprocess.run(
        command, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()
