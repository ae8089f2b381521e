"""What Kafka's own classes make of record sets, in one JVM: the judge of what kseg says of sets and produce requests."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.lab import maven

PROGRAM = Path(__file__).with_name("LeaderLog.java")
VERSION = "4.3.0"


def answers_of(sets: Iterable[tuple[bytes, str, int]]) -> list[dict[str, Any]]:
    """Return the answer of LeaderLog.java to each (records, as, version): "ok", or "error" and "message"."""
    requested = [
        json.dumps({"records": base64.b64encode(records).decode(), "as": way, "version": version})
        for records, way, version in sets
    ]
    command = ["java", *maven.JVM, "-cp", f"{maven.libs(VERSION)}/*", str(PROGRAM)]
    done = subprocess.run(command, input="\n".join(requested) + "\n", capture_output=True, text=True, check=True)
    answers: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(requested), done.stderr[-2000:]
    return answers
