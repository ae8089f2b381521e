"""Which engine runs the loops: the compiled modules, or the same sources as plain Python.

``KSEG_ENGINE=python`` in the environment chooses the latter, for tests and for comparison.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

#: Plain Python modules that setup.py compiles, each with a .pxd of C types beside it where types help.
COMPILED_MODULES = (
    "kseg.format.record.crc",
    "kseg.format.record.framing",
    "kseg.format.record.offset_evidence",
    "kseg.format.record.default_records",
    "kseg.format.record.bounded_map",
    "kseg.format.sidefiles.index_columns",
    "kseg.format.checks.batch_checks",
    "kseg.format.checks.record_checks",
    "kseg.commands.validate.segment_facts",
    "kseg.format.record.memory",
    "kseg.format.record.encoder",
    "kseg.format.record.survey",
    "kseg.commands.stats.counting",
    "kseg.report.arrow_gather",
    "kseg.commands.dump.line_writer",
)

#: Cython's own types, which the compiled modules share; setup.py makes it, there is no source.
SHARED_MODULE = "kseg._cython_shared"

HOW_TO_COMPILE = (
    "The compiled engine is many times faster: install a C compiler and Python's headers (Debian: gcc python3-dev), "
    "then kseg again with pip's --force-reinstall --no-cache-dir."
)


class _PlainSources:
    """Finds the sources of modules that are there compiled, too; Python by itself prefers those."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in COMPILED_MODULES:
            return None
        module = Path(__file__).parent.joinpath(*name.split(".")[1:])
        return spec_from_file_location(name, module.with_suffix(".py"))


def choose() -> None:
    """Follow the environment; called once, before any of the modules is imported."""
    if os.environ.get("KSEG_ENGINE") == "python":
        sys.meta_path.insert(0, _PlainSources)


def engine() -> str:
    """``compiled`` or ``python``, without importing the modules; ``compiled`` only if all of them are."""
    specs = [find_spec(name) for name in COMPILED_MODULES]
    compiled = all(spec is not None and spec.origin and not spec.origin.endswith(".py") for spec in specs)
    return "compiled" if compiled else "python"


def how_to_compile() -> str:
    """Return how to get the compiled engine; empty where it is installed, or where KSEG_ENGINE=python hides it."""
    return "" if engine() == "compiled" or os.environ.get("KSEG_ENGINE") == "python" else HOW_TO_COMPILE
