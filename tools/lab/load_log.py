"""Kafka's own log classes in one JVM: the judge of ``kseg recovery``, and of a partition's life (tools.proof.world)."""

from __future__ import annotations

import json
import select
import subprocess
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kseg.format.log_loader.recovery_plan import BrokerStart
from tools.lab import maven

PROGRAM = Path(__file__).with_name("PartitionLife.java")
VERSION = "4.3.0"
# The heap of Kafka's start script: what asks for more ends a broker, too.
JVM = ["-Xmx1g", "-XX:+UseG1GC", "-XX:TieredStopAtLevel=1"]
SECONDS = 120.0


class LoadLog:
    """``with LoadLog() as kafka: kafka.load(folder, start)``. A JVM that dies or hangs is replaced by a new one."""

    def __init__(self) -> None:
        self._jvm: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def load(self, folder: Path, start: BrokerStart, **more: Any) -> dict[str, Any]:
        """Load a partition's folder, which is changed by that; return the output of PartitionLife.java.

        ``failure`` is "hang" without an answer in time, "refuse" if the JVM dies. ``more`` are other fields of the request.
        """
        return self.answer({"dir": str(folder), **asdict(start), **more})

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request; without one it has a ``failure``, as that of ``load``."""
        jvm = self._running()
        assert jvm.stdin is not None
        assert jvm.stdout is not None
        jvm.stdin.write(json.dumps(request).encode() + b"\n")
        jvm.stdin.flush()
        if not select.select([jvm.stdout], [], [], SECONDS)[0]:
            self._end()
            return {"failure": "hang", "error": f"no answer within {SECONDS:.0f} s"}
        line = jvm.stdout.readline()
        if not line:
            self._end()
            return {"failure": "refuse", "error": "the JVM died"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _running(self) -> subprocess.Popen[bytes]:
        if self._jvm is None:
            command = ["java", *JVM, "-cp", f"{maven.libs(VERSION)}/*", str(PROGRAM)]
            self._jvm = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        return self._jvm

    def _end(self) -> None:
        if self._jvm is not None:
            self._jvm.kill()
            self._jvm.communicate()
            self._jvm = None
