"""The request of a reader: paths, view, columns, and limits of rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kseg.schema import Column

if TYPE_CHECKING:
    from kseg.format.serialization.record_decoder import DecodeSettings


@dataclass(frozen=True, slots=True)
class RowLimits:
    """The requested rows. Ranges are half-open, timestamps in epoch milliseconds; None means unbounded."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_offset: int | None = None
    end_offset: int | None = None
    since: int | None = None
    until: int | None = None

    def accepts_file(self, topic: str | None, partition: int | None) -> bool:
        """Return whether files of the partition can contain requested rows."""
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )

    def both(self, other: RowLimits) -> RowLimits:
        """Return the intersection with other limits."""
        return RowLimits(
            _common(self.topics, other.topics),
            _common(self.partitions, other.partitions),
            _larger(self.first_offset, other.first_offset),
            _smaller(self.end_offset, other.end_offset),
            _larger(self.since, other.since),
            _smaller(self.until, other.until),
        )


def _common(a: frozenset[Any] | None, b: frozenset[Any] | None) -> frozenset[Any] | None:
    return b if a is None else a if b is None else a & b


def _larger(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _smaller(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else min(a, b)


@dataclass(frozen=True, slots=True)
class Request:
    """A checked request. ``columns`` are the requested columns of the view in order.

    ``decode_as`` is the argument of ``internal_topic``; ``decoding`` has the deserializers of keys and values, for the
    columns of CONTENT_COLUMNS. ``mode`` is what damage becomes: a row (permissive), nothing (dropmalformed) or an error
    (failfast). ``split_bytes`` None adapts to the input.
    """

    paths: tuple[str, ...]
    view: str = "records"
    columns: tuple[Column, ...] = ()
    decode_as: str | None = None
    decoding: DecodeSettings | None = None
    framing: str | None = None
    requests: str | None = None
    mode: str = "permissive"
    isolation: str = "read_uncommitted"
    limits: RowLimits = field(default_factory=RowLimits)
    verify_crc: bool = True
    split_bytes: int | None = None
