"""What the serializers of Kafka Streams, Connect, Apicurio and AWS Glue write: ``python -m tools.lab.wire_formats``.

Writes `fixtures/serialized/formats.txt`. The Java programs have the values.
"""

from __future__ import annotations

from pathlib import Path

from tools.lab import maven
from tools.lab.oracle import run_java

PROGRAMS = {"wire-streams": "StreamsFormats.java", "wire-registries": "RegistryFormats.java"}


def main() -> None:
    """Run the programs, each with its jars."""
    lines = [run_java(jars, str(Path(__file__).with_name(program)), ()) for jars, program in PROGRAMS.items()]
    (maven.ROOT / "fixtures" / "serialized" / "formats.txt").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
