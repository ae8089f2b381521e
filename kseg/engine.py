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
    "kseg.checksums",
    "kseg.kernel",
    "kseg.splitting",
    "kseg.checks",
    "kseg.record_checks",
    "kseg.segment_watch",
    "kseg.stretch",
    "kseg.encoder",
    "kseg.survey",
    "kseg.counting",
    "kseg.gather",
    "kseg.line_writer",
)


class _PlainSources:
    """Finds the sources of modules that are there compiled, too; Python by itself prefers those."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name not in COMPILED_MODULES:
            return None
        return spec_from_file_location(name, Path(__file__).with_name(f"{name.rpartition('.')[2]}.py"))


def choose() -> None:
    """Follow the environment; called once, before any of the modules is imported."""
    if os.environ.get("KSEG_ENGINE") == "python":
        sys.meta_path.insert(0, _PlainSources)


def engine() -> str:
    """``compiled`` or ``python``, without importing the modules; ``compiled`` only if all of them are."""
    specs = [find_spec(name) for name in COMPILED_MODULES]
    compiled = all(spec is not None and spec.origin and not spec.origin.endswith(".py") for spec in specs)
    return "compiled" if compiled else "python"
