"""The choice of the engine that runs the loops: compiled modules, or the same sources as plain Python.

``KSEG_ENGINE=python`` in the environment chooses plain Python, for tests and for comparison.
"""

from __future__ import annotations

import os
from importlib.machinery import PathFinder

from kseg.deferred import install

#: Plain Python modules that setup.py compiles. A .pxd file next to a module has its C types, where types help.
COMPILED_MODULES = (
    "kseg.format.record.crc",
    "kseg.format.record.columns",
    "kseg.format.record.framing",
    "kseg.format.record.offset_evidence",
    "kseg.format.record.varints",
    "kseg.format.record.headers",
    "kseg.format.record.legacy_records",
    "kseg.format.record.default_records",
    "kseg.format.record.bounded_map",
    "kseg.format.segment.outline",
    "kseg.format.sidefiles.index_columns",
    "kseg.format.compress.lz4_frames",
    "kseg.format.segment.deep_reader",
    "kseg.format.segment.transaction_events",
    "kseg.format.checks.check_state",
    "kseg.format.checks.offset_checks",
    "kseg.format.checks.producer_checks",
    "kseg.format.checks.batch_checks",
    "kseg.format.checks.record_checks",
    "kseg.commands.validate.segment_facts",
    "kseg.format.record.memory",
    "kseg.format.record.byte_search",
    "kseg.format.internal_topics.json_text",
    "kseg.format.record.encoder",
    "kseg.format.record.equality",
    "kseg.format.sidefiles.max_timestamp",
    "kseg.format.log_loader.batch_rows",
    "kseg.format.writer.batch_offsets",
    "kseg.format.writer.batch_rows",
    "kseg.format.writer.conversion_kinds",
    "kseg.commands.stats.counting",
    "kseg.report.arrow_gather",
    "kseg.commands.dump.line_writer",
    "kseg.commands.dump.csv_lines",
)

#: Cython's own types, which the compiled modules share. setup.py generates this module; there is not a source file for it.
SHARED_MODULE = "kseg._cython_shared"

HOW_TO_COMPILE = (
    "The compiled engine is many times faster: install a C compiler and Python's headers (Debian: gcc python3-dev), "
    "then kseg again with pip's --force-reinstall --no-cache-dir."
)


def choose() -> None:
    """Follow ``KSEG_ENGINE``. Called once, before any of the modules is imported.

    Python prefers a compiled module to its source, unless the finder of its folder knows sources only.
    """
    install(os.path.dirname(__file__), extensions=os.environ.get("KSEG_ENGINE") != "python")


def engine() -> str:
    """Return ``compiled`` if all modules are compiled, else ``python``; imports none of them."""
    # Not with importlib.util.find_spec, which imports the packages around a module.
    specs = [PathFinder.find_spec(name, [_folder(name)]) for name in COMPILED_MODULES]
    compiled = all(spec is not None and spec.origin and not spec.origin.endswith(".py") for spec in specs)
    return "compiled" if compiled else "python"


def _folder(module: str) -> str:
    return os.path.join(os.path.dirname(__file__), *module.split(".")[1:-1])


def how_to_compile() -> str:
    """Return how to get the compiled engine; empty if it is installed, or hidden by KSEG_ENGINE=python."""
    return "" if engine() == "compiled" or os.environ.get("KSEG_ENGINE") == "python" else HOW_TO_COMPILE
