"""Real Kafka from Maven: the jars of each generation, downloaded once into ``.lab/`` of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LAB = Path(os.environ.get("KSEG_LAB", ROOT / ".lab"))

#: For programs of some seconds: the quick compiler and the plain collector halve their processor time.
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
JVM = ("-Xmx512m", *QUICK)

# The Scala build that exists for each broker version.
SCALA = {
    "0.8.2.2": "2.11",
    "0.9.0.1": "2.11",
    "0.10.2.2": "2.12",
    "0.11.0.3": "2.12",
    "1.1.1": "2.12",
    "2.8.2": "2.13",
    "3.9.1": "2.13",
    "4.3.0": "2.13",
}
EXTRA = {
    # Java 17 no longer ships javax.xml.bind.
    "0.10.2.2": ["javax.xml.bind:jaxb-api:2.3.1"],
    "0.11.0.3": ["javax.xml.bind:jaxb-api:2.3.1"],
    "4.3.0": ["org.apache.kafka:kafka-tools:4.3.0"],
    # In addition to a broker's jars: what makes it log, and the plugins that fill its internal topics.
    "slf4j-simple": ["org.slf4j:slf4j-simple:1.7.36"],
    "4.3.0-internal": [
        "org.apache.kafka:kafka-streams:4.3.0",
        "org.apache.kafka:kafka-storage:4.3.0:test",
        "org.apache.kafka:kafka-clients:4.3.0:test",
    ],
    # Serializers that are not Kafka's producer's own.
    "wire-streams": ["org.apache.kafka:kafka-streams:4.3.0", "org.apache.kafka:connect-json:4.3.0"],
    "wire-registries": [
        "io.apicurio:apicurio-registry-serdes-avro-serde:2.6.5.Final",
        "io.apicurio:apicurio-registry-serdes-protobuf-serde:2.6.5.Final",
        "software.amazon.glue:schema-registry-serde:1.1.20",
    ],
}


def missing() -> str | None:
    """Why real Kafka can't run here, or None when it can."""
    absent = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    return f"needs {' and '.join(absent)} on PATH" if absent else None


def libs(version: str) -> Path:
    """The folder with every jar of one Kafka version, or of EXTRA alone. Raises CalledProcessError when Maven fails."""
    wanted = list(EXTRA.get(version, []))
    if version in SCALA or version not in EXTRA:
        wanted.append(f"org.apache.kafka:kafka_{SCALA.get(version, '2.13')}:{version}")
    return _fetched(f"kafka-{version}", wanted)


def only(name: str, coordinates: Sequence[str]) -> Path:
    """Return a folder of these jars without their dependencies. Raises CalledProcessError when Maven fails."""
    return _fetched(name, coordinates, "-DexcludeTransitive=true")


def _fetched(name: str, coordinates: Sequence[str], *options: str) -> Path:
    target = LAB / name
    if (target / ".complete").exists():
        return target / "libs"
    import fcntl

    target.mkdir(parents=True, exist_ok=True)
    with (LAB / ".lock").open("w") as lock:
        # Processes of one test run ask for the same jars, and Maven 3 does not lock its own repository.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (target / ".complete").exists():
            (target / "pom.xml").write_text(_pom(name, coordinates))
            copy = ["dependency:copy-dependencies", "-DoutputDirectory=libs", *options]
            subprocess.run(["mvn", "-q", "-B", "-f", str(target / "pom.xml"), *copy], check=True, cwd=target)
            (target / ".complete").touch()
    return target / "libs"


def _pom(name: str, coordinates: Sequence[str]) -> str:
    parts = ("groupId", "artifactId", "version", "classifier")
    dependencies = "".join(
        "<dependency>"
        + "".join(f"<{part}>{text}</{part}>" for part, text in zip(parts, coordinate.split(":"), strict=False))
        + "</dependency>"
        for coordinate in coordinates
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion>"
        f"<groupId>kseg.lab</groupId><artifactId>{name}</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )
