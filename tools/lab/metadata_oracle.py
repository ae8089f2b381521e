"""Kafka's own replay of metadata logs: the judge of ``metadata_replay``, some thousand logs a minute."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.lab import maven

PROGRAM = Path(__file__).with_name("MetadataReplay.java")
VERSION = "4.3.0"


def verdicts(logs: Iterable[Path], classes: Path) -> list[dict[str, Any]]:
    """Return the verdict of Kafka 4.3 on each segment: the offsets at which a controller and a broker fail, or None.

    ``classes`` is a folder for the compiled program: it is in a package of Kafka, so it can't run from its source.
    """
    jars = f"{maven.libs(VERSION)}/*"
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", str(classes), str(PROGRAM)], check=True)
    command = ["java", *maven.JVM, "-cp", f"{classes}:{jars}", "org.apache.kafka.controller.MetadataReplay"]
    done = subprocess.run(
        command, input="".join(f"{log}\n" for log in logs), capture_output=True, text=True, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]
