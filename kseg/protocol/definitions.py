"""What Kafka's messages are made of, as data: names, types and versions of their fields.

The tables are JSON, a message a line, drawn by ``tests/lab/make_definitions.py`` from the message definitions in Kafka's
own jars; each file's first line says of which releases. ``records.jsonl`` has what stands in logs, ``apis.jsonl`` requests,
responses and their headers. A message whose old versions Kafka has dropped stands there once for each release.

Python libraries of Kafka's protocol end at requests and responses: kio 0.6.5 has no record of an internal topic.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

RECORDS, APIS = "records.jsonl", "apis.jsonl"
_NEWEST = 0x7FFF
_Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions from ``low`` to ``high``, both of them in; Kafka writes ``2-4``, ``2``, ``2+`` or ``none``."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """Of Kafka's notation."""
        if text == "none":
            return cls(0, -1)
        low, dash, high = text.removesuffix("+").partition("-")
        return cls(int(low), _NEWEST if text.endswith("+") else int(high) if dash else int(low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high


# Told apart by identity, here and below: they are keys of caches, and all their fields would be hashed each time.
@dataclass(frozen=True, slots=True, eq=False)
class Field:
    """A field. ``type`` is one of Kafka's or a structure's name, with ``[]`` before it where it is an array of such.

    In ``tagged`` versions it stands behind the others, under the number ``tag``. ``flexible`` is what its own encoding
    depends on, where that is not the message's. ``fields`` are those of a structure.
    """

    name: str
    type: str
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    flexible: Versions | None
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A message, in some ``versions``. ``kind`` is Kafka's word: request, response, header, data, metadata,
    coordinator-key or coordinator-value. ``api_key`` is the number of its API, or of its type of record in ``topic``.
    """

    name: str
    kind: str
    api_key: int | None
    topic: str | None
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]


@cache
def definition(file: str, name: str, version: int) -> Definition | None:
    """What a version of a message of ``RECORDS`` or ``APIS`` is made of; None where it isn't known."""
    rows = _table(file).get(name, ())
    return next((_definition(row) for row in rows if version in Versions.parse(row["versions"])), None)


@cache
def named(file: str, kind: str, topic: str | None = None) -> Mapping[int, str]:
    """The names of the messages of a kind by their API keys; of records, those of a topic."""
    found = (rows[0] for rows in _table(file).values())
    return {row["key"]: row["name"] for row in found if (row["kind"], row.get("topic")) == (kind, topic)}


@cache
def _table(file: str) -> Mapping[str, Sequence[_Row]]:
    import pkgutil

    # Rows become definitions where one is asked for: of all APIs at once that takes 40 ms.
    found: dict[str, list[_Row]] = {}
    # As data, not as a file: the package may be within a zip, as on Spark's workers.
    _origin, *lines = (pkgutil.get_data(__name__, file) or b"").splitlines()
    for line in lines:
        row = json.loads(line)
        found.setdefault(row["name"], []).append(row)
    return found


def _definition(row: _Row) -> Definition:
    return Definition(
        row["name"],
        row["kind"],
        row.get("key"),
        row.get("topic"),
        Versions.parse(row["versions"]),
        Versions.parse(row.get("flexible", "none")),
        tuple(map(_field, row["fields"])),
    )


def _field(row: _Row) -> Field:
    return Field(
        row["name"],
        row["type"],
        Versions.parse(row.get("versions", "0+")),
        Versions.parse(row.get("nullable", "none")),
        Versions.parse(row.get("tagged", "none")),
        row.get("tag", -1),
        Versions.parse(row["flexible"]) if "flexible" in row else None,
        tuple(map(_field, row.get("fields", ()))),
    )
