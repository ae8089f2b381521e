"""Inspect, validate, convert and repair Apache Kafka log segments.

    import kseg

    result = kseg.validate("/var/kafka-logs")
    for finding in result.findings:
        print(finding.file, finding.position, finding.message)

    for record in kseg.open_partition("/var/kafka-logs/orders-0").records(first_offset=1000, end_offset=2000):
        print(record.offset, record.key, record.value)

The functions are imported when they are first used. Importing kseg loads none of rich, pyarrow and pyspark, and changes no
state of the interpreter outside of kseg.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kseg.engine import check_engine, choose
from kseg.engine import engine as engine

if TYPE_CHECKING:
    from kseg.commands.diff.differences import Comparison as Comparison
    from kseg.commands.diff.differences import Difference as Difference
    from kseg.commands.diff.replica_pairs import PairOutcome as PairOutcome
    from kseg.commands.lag.committed_offsets import Commit as Commit
    from kseg.commands.lag.committed_offsets import GroupLag as GroupLag
    from kseg.commands.lag.committed_offsets import LogExtent as LogExtent
    from kseg.commands.stats.levels import Level as Level
    from kseg.commands.stats.totals import Stats as Stats
    from kseg.commands.transactions import PartitionTransactions as PartitionTransactions
    from kseg.commands.transactions import Transaction as Transaction
    from kseg.commands.validate.validate import validate_segment as validate_segment
    from kseg.errors import KsegError as KsegError
    from kseg.errors import LimitError as LimitError
    from kseg.errors import NotASegmentError as NotASegmentError
    from kseg.errors import UnreadableError as UnreadableError
    from kseg.errors import UsageError as UsageError
    from kseg.errors import VanishedError as VanishedError
    from kseg.extras.serialization.decoding import DecodedValue as DecodedValue
    from kseg.extras.serialization.schema_set import Schema as Schema
    from kseg.findings import RULES as RULES
    from kseg.findings import Finding as Finding
    from kseg.findings import Policy as Policy
    from kseg.findings import Rule as Rule
    from kseg.findings import Severity as Severity
    from kseg.findings import Verdict as Verdict
    from kseg.format.log_loader.plan import LogDirPlan as LogDirPlan
    from kseg.format.log_loader.plan import PartitionPlan as PartitionPlan
    from kseg.format.log_loader.plan import Step as Step
    from kseg.format.record.control_records import ControlRecord as ControlRecord
    from kseg.format.segment.records_chunk import Header as Header
    from kseg.format.segment.records_chunk import Record as Record
    from kseg.format.segment.records_chunk import RecordBatch as RecordBatch
    from kseg.format.storage.file_access import file_access as file_access
    from kseg.format.storage.segment_files import SegmentFile as SegmentFile
    from kseg.library import Schemas as Schemas
    from kseg.library import Validation as Validation
    from kseg.library import framed_rows as framed_rows
    from kseg.library import scan as scan
    from kseg.library import side_entries as side_entries
    from kseg.library import validate as validate
    from kseg.library_commands import diff as diff
    from kseg.library_commands import grep as grep
    from kseg.library_commands import lag as lag
    from kseg.library_commands import recovery as recovery
    from kseg.library_commands import stats as stats
    from kseg.library_commands import transactions as transactions
    from kseg.reading import Log as Log
    from kseg.reading import LogDir as LogDir
    from kseg.reading import PartitionLog as PartitionLog
    from kseg.reading import Segment as Segment
    from kseg.reading import open_log_dir as open_log_dir
    from kseg.reading import open_partition as open_partition
    from kseg.reading import open_segment as open_segment
    from kseg.report.row_schema import row_schema as row_schema
    from kseg.results import FileResult as FileResult
    from kseg.results import Settings as Settings
    from kseg.results import Summary as Summary

__version__ = "0.1.0"

choose()

# Module -> names. `kseg --version` and a command should import few modules. Type checkers read the imports above;
# a test compares the two lists.
_MODULES = {
    "kseg.reading": "Log LogDir PartitionLog Segment open_log_dir open_partition open_segment",
    "kseg.library": "framed_rows side_entries scan Validation validate Schemas",
    "kseg.report.row_schema": "row_schema",
    "kseg.format.segment.records_chunk": "Header Record RecordBatch",
    "kseg.format.record.control_records": "ControlRecord",
    "kseg.format.storage.file_access": "file_access",
    "kseg.format.storage.segment_files": "SegmentFile",
    "kseg.commands.validate.validate": "validate_segment",
    "kseg.findings": "Finding Policy RULES Rule Severity Verdict",
    "kseg.commands.diff.differences": "Comparison Difference",
    "kseg.commands.diff.replica_pairs": "PairOutcome",
    "kseg.commands.lag.committed_offsets": "Commit GroupLag LogExtent",
    "kseg.commands.stats.levels": "Level",
    "kseg.commands.stats.totals": "Stats",
    "kseg.commands.transactions": "PartitionTransactions Transaction",
    "kseg.extras.serialization.decoding": "DecodedValue",
    "kseg.extras.serialization.schema_set": "Schema",
    "kseg.format.log_loader.plan": "LogDirPlan PartitionPlan Step",
    "kseg.library_commands": "diff grep lag recovery stats transactions",
    "kseg.results": "FileResult Settings Summary",
    "kseg.errors": "KsegError LimitError NotASegmentError UnreadableError UsageError VanishedError",
}
_EXPORTS = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted([*_EXPORTS, "engine", "version_line"])


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # with it, a type checker would accept every name

    def __getattr__(name: str) -> Any:
        if name not in _EXPORTS:
            raise AttributeError(f"module 'kseg' has no attribute {name!r}")
        check_engine()
        return getattr(import_module(_EXPORTS[name]), name)


def version_line() -> str:
    """Return the version and the engine that is loaded."""
    return f"{__version__} (engine: {engine()})"
