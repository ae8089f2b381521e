"""kseg: read, check and convert Kafka log segments.

    import kseg

    with kseg.open_segment("00000000000000000000.log") as segment:
        for batch in segment.batches():
            print(batch.base_offset, batch.compression, batch.crc_valid)

    with kseg.open_segment("00000000000000000000.log") as segment:
        for record in segment.records():
            print(record.offset, record.key, record.value)

Importing it loads none of rich, pyarrow and pyspark.
"""

from __future__ import annotations

from typing import Any

from kseg.engine import choose, engine

__version__ = "0.1.0"

choose()

# name -> module, imported when first asked for: `kseg --version` should not pay for codecs.
_EXPORTS = {
    "open_segment": "kseg.reading",
    "Segment": "kseg.reading",
    "side_entries": "kseg.reading",
    "framed_rows": "kseg.reading",
    "Record": "kseg.format.segment.objects",
    "RecordBatch": "kseg.format.segment.objects",
    "Header": "kseg.format.segment.objects",
    "ControlRecord": "kseg.format.record.control_records",
    "Finding": "kseg.findings",
    "Policy": "kseg.findings",
    "RULES": "kseg.findings",
    "Severity": "kseg.findings",
    "Settings": "kseg.commands.validate.validate",
    "Summary": "kseg.commands.validate.validate",
    "validate_segment": "kseg.commands.validate.validate",
    "KsegError": "kseg.errors",
    "UnreadableError": "kseg.errors",
    "NotASegmentError": "kseg.errors",
}

__all__ = sorted([*_EXPORTS, "engine", "version_line"])


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _EXPORTS:
        raise AttributeError(f"module 'kseg' has no attribute {name!r}")
    return getattr(import_module(_EXPORTS[name]), name)


def version_line() -> str:
    """The version, and the engine that is loaded."""
    return f"{__version__} (engine: {engine()})"
