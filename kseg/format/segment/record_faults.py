"""The faults of opened batches as findings: their positions and facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kseg.findings import Finding, Report
from kseg.format.compress import codecs
from kseg.format.record import default_records, layout
from kseg.format.record.columns import BatchColumns
from kseg.format.record.offset_evidence import is_wrapper
from kseg.text import count_of

_QUIRKS = {
    "lz4-header-checksum": "the LZ4 header checksum is the wrong one of Kafka 0.8 and 0.9 (KAFKA-3160)",
    "trailing-bytes": "bytes follow the compressed data, and readers ignore them",
    "lz4-content-size": "the LZ4 frame names a wrong content size, and Kafka ignores the field",
    "lz4-content-checksum": "the LZ4 content checksum is wrong, and Kafka ignores it",
    "gzip-reserved-flags": "the gzip header has reserved flags, which Java ignores",
    "snappy-little-endian": "the snappy-java header is little-endian, as some other writers write it",
}
EXPECTED_QUIRKS = frozenset({"snappy-unframed"})  # librdkafka writes raw blocks, and brokers store them so

# All records of a batch with one of these faults can be read.
_HARMLESS = frozenset({"codec-quirk", "claimed-codec", "limit-reached", "wrapper-key"})
#: The part of a v0 or v1 message that claims to be compressed.
CLAIMED_VALUE = "value is"


def _undefined(codec: int, magic: int) -> str:
    """Return a note if that version does not define the codec (KIP-110)."""
    return f", which v{magic} does not define" if codecs.CODECS[codec].first_magic > min(magic, 2) else ""


# Rules about one record of a batch: ``index`` in the facts is the record.
_OF_RECORDS = frozenset({"malformed-record", "inner-crc-mismatch", "nested-compression"})

_Facts = Callable[[Any, str, BatchColumns, int], dict[str, Any]]

# How the detail of a fault becomes the facts of its rule.
_FACTS: dict[str, _Facts] = {
    "malformed-record": lambda why, codec, batches, row: {"why": why},
    "record-count-mismatch": lambda actual, codec, batches, row: {
        "count": batches.record_count[row],
        "actual": actual,
        "why": f"found {actual:,}" if batches.record_count[row] >= 0 else "the count cannot be negative",
    },
    "truncated-wrapper": lambda left, codec, batches, row: {"bytes": left},
    "inner-crc-mismatch": lambda crcs, codec, batches, row: {"stored": crcs[0], "computed": crcs[1]},
    "nested-compression": lambda inner, codec, batches, row: {"codec": codecs.codec_name(inner)},
    "wrapper-offset-mismatch": lambda inner, codec, batches, row: {
        "offset": batches.last_offset[row],
        "inner": inner,
        "magic": batches.magic[row],
        "why": f"but its last inner offset is {inner}",
    },
    "unknown-codec": lambda detail, codec, batches, row: {"codec": detail[0], "why": detail[1]},
    "undecodable-payload": lambda why, codec, batches, row: {"codec": codec, "why": why},
    "wrapper-key": lambda key, codec, batches, row: {"key": key.decode("utf-8", "backslashreplace")},
    "claimed-codec": lambda _, codec, batches, row: {
        "codec": codec,
        "what": "records are" if batches.magic[row] >= 2 else CLAIMED_VALUE,
        "note": _undefined(batches.attributes[row] & layout.CODEC_MASK, batches.magic[row]),
    },
    "limit-reached": lambda detail, codec, batches, row: {
        "limit": default_records.MAX_HEADERS,
        "what": f"headers in record {detail[0]}",
        "why": f"{count_of(detail[1] - default_records.MAX_HEADERS, 'header')} not shown",
    },
    "decompression-limit": lambda detail, codec, batches, row: {"codec": codec, "limit": detail[0], "why": detail[1]},
    "codec-quirk": lambda quirk, codec, batches, row: {
        "codec": codec,
        "quirk": quirk,
        "why": _QUIRKS.get(quirk, quirk),
    },
}


def report_faults(faults: list[tuple[str, int, int, Any]], batches: BatchColumns, report: Report) -> None:
    """Report the faults of a window's batches, and clear them. Batches whose records are not all readable are not intact.

    A fault is a rule, the row of the batch, the index of the record, and a detail of the rule.
    """
    broken = set[int]()
    for rule, row, index, detail in faults:
        if rule == "wrapper-offset-mismatch" and row in broken:
            continue  # the messages at its end are missing, so the last inner offset is unknown
        codec = codecs.codec_name(batches.attributes[row] & layout.CODEC_MASK)
        wrapper = is_wrapper(batches, row)
        if rule not in _HARMLESS:
            batches.intact[row] = 0
            if rule != "inner-crc-mismatch":
                broken.add(row)
        last = batches.last_offset[row]
        location = {
            "position": batches.position[row],
            "end": batches.position[row] + batches.size[row],
            "offset": None if wrapper else batches.base_offset[row],
            # Here the offset in the header is wrong, and it is among the facts.
            "last_offset": None if rule == "wrapper-offset-mismatch" else last,
        }
        facts = _FACTS[rule](detail, codec, batches, row)
        if rule in _OF_RECORDS:
            facts = {"index": max(index, 0), **facts}
        report(Finding(rule, **location, facts=facts))
        if rule == "nested-compression" and detail != batches.attributes[row] & layout.CODEC_MASK:
            mixed = {"index": index, "codec": codecs.codec_name(detail), "wrapper": codec}
            report(Finding("mixed-wrapper-codecs", **location, facts=mixed))
    faults.clear()
