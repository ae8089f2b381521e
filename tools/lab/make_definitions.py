"""`python -m tools.lab.make_definitions [RELEASE]`: write the tables of `kseg/format/messages/`, from the jars of Kafka.

With `--check` it prints what the newest release of Kafka has that the tables lack, and ends with 1 if there is anything.

A broker's jars have Kafka's message definitions as JSON with comments. The tables contain facts only: the names of
messages and fields, their types, tags and versions. Needs Maven.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any

from kseg.format.messages.definitions import APIS, RECORDS, Versions
from tools.lab import maven

#: The release of the tables.
NEWEST = "4.4.0"
#: What goes into a table: from which releases besides the newest (only the versions that newer ones have dropped; of
#: records none), and which of Kafka's kinds of messages.
CONTENTS = {
    RECORDS: ((), ("coordinator-key", "coordinator-value", "metadata", "data")),
    APIS: (("3.9.1",), ("request", "response", "header")),
}
#: The topics whose records a jar defines.
TOPICS = {
    "kafka-group-coordinator": "__consumer_offsets",
    "kafka-transaction-coordinator": "__transaction_state",
    "kafka-metadata": "__cluster_metadata",
    "kafka-share-coordinator": "__share_group_state",
    "kafka-storage": "__remote_log_metadata",
}
TARGET = maven.ROOT / "kseg" / "format" / "messages"
# These have readers of their own (no bytes of messages, or with a checksum), or say nothing.
_LEFT_OUT = {"QuorumStateData", "ProducerSnapshot", "ControlRecordTypeSchema", "AbortedTxn"}
_COMMENT = re.compile(r"^\s*//.*$", re.MULTILINE)
# In Kafka's files, and in the tables where it is another word.
_WORDS = {"nullableVersions": "nullable", "taggedVersions": "tagged", "tag": "tag", "flexibleVersions": "flexible"}


def main() -> int:
    """Write both tables, or compare them with those of the newest release."""
    if (why := maven.missing()) is not None:
        print(why, file=sys.stderr)
        return 2
    if sys.argv[1:] == ["--check"]:
        found = list(additions(newest_release()))
        print("\n".join(found), end="\n" * bool(found))
        return int(bool(found))
    for file, text in tables(*sys.argv[1:]).items():
        (TARGET / file).write_text(text, encoding="utf-8")
    return 0


def newest_release() -> str:
    """Return the newest release of Kafka according to Maven."""
    (jar,) = maven.only(f"kafka-newest-{date.today()}", ["org.apache.kafka:kafka-clients:RELEASE"]).glob("*.jar")
    return jar.stem.removeprefix("kafka-clients-")


def additions(release: str) -> Iterator[str]:
    """Yield a line for each message of a release that the tables lack, or have in fewer versions."""
    for file, text in tables(release).items():
        known = _highest((TARGET / file).read_text(encoding="utf-8"))
        for name, version in _highest(text).items():
            if version > known.get(name, -1):
                yield f"{release}: {name}: version {version}; the table has {known.get(name, 'none')}"


def _highest(text: str) -> dict[str, int]:
    """Return the highest version of each message in a table."""
    found: dict[str, int] = {}
    for row in map(json.loads, text.splitlines()[1:]):
        found[row["name"]] = max(Versions.parse(row["versions"]).high, found.get(row["name"], -1))
    return found


def tables(release: str = NEWEST) -> dict[str, str]:
    """Return the text of each table by its name."""
    texts = {}
    for file, (older, kinds) in CONTENTS.items():
        releases = (release, *older)
        rows = sorted(_rows(releases, kinds), key=lambda row: (row.get("topic", ""), row["name"], -_first(row)))
        origin = {"origin": f"the message definitions of Apache Kafka {' and '.join(releases)}"}
        texts[file] = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in (origin, *rows))
    return texts


def _rows(releases: Sequence[str], kinds: Iterable[str]) -> Iterator[dict[str, Any]]:
    oldest: dict[str, int] = {}
    for release in releases:
        for name, found in sorted(_definitions(release).items()):
            if found["type"] not in kinds or found["validVersions"] == "none" or name in _LEFT_OUT:
                continue
            versions = Versions.parse(found["validVersions"])
            last = min(versions.high, oldest.get(name, versions.high + 1) - 1)
            if last < versions.low:
                continue
            oldest[name] = versions.low
            row = _row(found, f"{versions.low}-{last}" if last > versions.low else str(last))
            yield row if release == releases[0] else {**row, "release": release}


def _row(found: Mapping[str, Any], versions: str) -> dict[str, Any]:
    common = {structure["name"]: structure for structure in found.get("commonStructs", ())}
    row = {"name": found["name"], "kind": found["type"]}
    if "apiKey" in found:
        row["key"] = found["apiKey"]
    if "topic" in found:
        row["topic"] = found["topic"]
    row["versions"] = versions
    if found.get("flexibleVersions", "none") != "none":
        row["flexible"] = found["flexibleVersions"]
    row["fields"] = [_field(field, common) for field in found["fields"]]
    return row


def _field(found: Mapping[str, Any], common: Mapping[str, Any]) -> dict[str, Any]:
    name = found["name"]
    row = {"name": name[0].lower() + name[1:], "type": found["type"]}
    versions = found.get("versions") or found["taggedVersions"]
    if versions != "0+":
        row["versions"] = versions
    row.update({word: found[theirs] for theirs, word in _WORDS.items() if theirs in found})
    fields = found.get("fields") or common.get(found["type"].removeprefix("[]"), {}).get("fields")
    if fields:
        row["fields"] = [_field(field, common) for field in fields]
    return row


def _definitions(release: str) -> dict[str, dict[str, Any]]:
    found = {}
    for jar in sorted(maven.libs(release).glob("kafka*.jar")):
        with zipfile.ZipFile(jar) as archive:
            for entry in archive.namelist():
                if entry.endswith(".json"):
                    definition = json.loads(_COMMENT.sub("", archive.read(entry).decode()))
                    topic = TOPICS.get(jar.name.removesuffix(f"-{release}.jar"))
                    found[definition["name"]] = {**definition, **({"topic": topic} if topic else {})}
    return found


def _first(row: Mapping[str, Any]) -> int:
    return Versions.parse(row["versions"]).low


if __name__ == "__main__":
    sys.exit(main())
