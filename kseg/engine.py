"""How modules of kseg are imported: compiled or as plain Python, and at their first use.

``KSEG_ENGINE`` in the environment chooses plain Python (``python``), or fails without compiled modules (``compiled``).

``from kseg.report import wording`` binds the module and runs none of its code; ``from kseg.findings import RULES`` needs
a name and runs it. So a command runs only the modules that it needs. ``importlib.util.LazyLoader`` does the same, with a
race between threads before Python 3.12.3: a second thread saw a module that the first one was still running.

Libraries, and modules that tables name, are imported at their first use, too. A module states such an import at its top,
next to the import that type checkers read:

    if TYPE_CHECKING:
        import tempfile
    else:
        tempfile = lazy("tempfile")
"""

from __future__ import annotations

import os
import sys
import threading
from functools import lru_cache
from importlib import import_module
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import ModuleType
from typing import Any

from kseg.errors import UsageError

#: The names that the import system itself reads and writes before a module runs.
_OF_THE_IMPORT = frozenset(
    {"__name__", "__spec__", "__loader__", "__package__", "__file__", "__cached__", "__path__", "__class__", "__dict__"}
)


class _Waiting:
    """The state of a module that has not run: the lock of its run, and whether the thread that has the lock runs it."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.running = False


class _Deferred(ModuleType):
    """A module before its first use. Afterwards its class is ``ModuleType``, so that later uses cost nothing.

    That class is named below, as ``super()`` fails once the module has it.
    """

    def __getattribute__(self, name: str) -> Any:
        if name not in _OF_THE_IMPORT:
            _run(self)
        return ModuleType.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in _OF_THE_IMPORT:
            _run(self)
        ModuleType.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        _run(self)
        ModuleType.__delattr__(self, name)


def _run(module: ModuleType) -> None:
    """Run a module once. Other threads wait for the end of the run, and a module that fails fails again at its next use."""
    spec = module.__spec__
    assert spec is not None
    waiting: _Waiting | None = spec.loader_state
    if waiting is None:
        return
    with waiting.lock:
        if waiting.running or spec.loader_state is None:
            return
        waiting.running = True
        try:
            # The loader of this module; the class of its parent, which both have, does what an ordinary import does.
            SourceFileLoader.exec_module(spec.loader, module)  # type: ignore[arg-type]
            module.__class__ = ModuleType
            spec.loader_state = None
        finally:
            waiting.running = False


class _SourceLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        if not _is_deferred(module):
            super().exec_module(module)


class _BytecodeLoader(SourcelessFileLoader):
    """Loads modules of a program without sources."""

    def exec_module(self, module: ModuleType) -> None:
        if not _is_deferred(module):
            super().exec_module(module)


def _is_deferred(module: ModuleType) -> bool:
    """Defer the run of a module, and return True; a package runs at once, as it holds only a docstring."""
    spec = module.__spec__
    if spec is None or spec.submodule_search_locations is not None:
        return False
    spec.loader_state = _Waiting()
    module.__class__ = _Deferred
    return True


class Finder(FileFinder):
    """Finds the modules of one folder of kseg, and makes finders like itself for the folders of its packages.

    ``extensions`` is whether compiled modules are preferred to their sources, as Python prefers them.
    """

    def __init__(self, folder: str, *, extensions: bool) -> None:
        self._extensions = extensions
        compiled = [(ExtensionFileLoader, EXTENSION_SUFFIXES)] if extensions else []
        sources = [(_SourceLoader, SOURCE_SUFFIXES), (_BytecodeLoader, BYTECODE_SUFFIXES)]
        super().__init__(folder, *compiled, *sources)

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = super().find_spec(fullname, target)
        for folder in (spec and spec.submodule_search_locations) or ():
            install(folder, extensions=self._extensions)
        return spec


def install(folder: str, *, extensions: bool) -> None:
    """Let a finder of this module find the modules of a folder: in the cache where Python keeps one finder per folder.

    ``sys.meta_path``, which all imports pass, stays as it is. In an archive (``zipimport``) all stays as it is, too.
    """
    if os.path.isdir(folder):
        sys.path_importer_cache[folder] = Finder(folder, extensions=extensions)


#: Plain Python modules that setup.py compiles. A .pxd file next to a module has its C types, where types help.
COMPILED_MODULES = (
    "kseg.format.record.crc",
    "kseg.format.record.columns",
    "kseg.format.record.framing",
    "kseg.format.record.offset_evidence",
    "kseg.format.record.default_records",
    "kseg.format.record.legacy_records",
    "kseg.format.segment.outline",
    "kseg.format.sidefiles.index_columns",
    "kseg.format.compress.lz4_frames",
    "kseg.format.segment.deep_reader",
    "kseg.format.segment.transaction_events",
    "kseg.format.checks.batch_checks",
    "kseg.format.checks.offset_checks",
    "kseg.format.checks.record_checks",
    "kseg.commands.validate.segment_facts",
    "kseg.format.record.memory",
    "kseg.format.messages.message_reader",
    "kseg.format.internal_topics.decode",
    "kseg.format.record.encoder",
    "kseg.format.record.equality",
    "kseg.format.log_loader.recovered_rows",
    "kseg.format.writer.rewritten_rows",
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


@lru_cache(maxsize=1)
def check_engine() -> None:
    """Raise UsageError if ``KSEG_ENGINE`` names no engine, or the compiled one where modules are not compiled."""
    asked = os.environ.get("KSEG_ENGINE", "")
    if asked not in ("", "compiled", "python"):
        raise UsageError(f"KSEG_ENGINE: expected compiled or python, got {asked!r}")
    if asked == "compiled" and engine() != asked:
        raise UsageError(f"KSEG_ENGINE=compiled: the compiled modules are missing. {HOW_TO_COMPILE}")


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


def imported(place: str) -> Any:
    """Import and return ``module:name``, a value of a table of writers, commands or readers."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def optional(module: str) -> Any:
    """Import and return a library that kseg can do without; return None if it is not installed."""
    try:
        return import_module(module)
    except ImportError:
        return None


def missing_library(error: ModuleNotFoundError) -> str:
    """Return what to install for a failed import of a library. Raises the error again for a module of kseg."""
    library = (error.name or "").partition(".")[0]
    if library in ("", "kseg"):
        raise error
    name = {"snappy": "python-snappy", "grpc_tools": "grpcio-tools"}.get(library, library)
    return f"the Python package {name} is not installed: pip install {name}"


def without_pip(text: str) -> str:
    """Return the text of an error, which ends with what to install by pip, for the program that runs.

    The program of ``make program`` has no pip and no extras, so for it the text says that instead.
    """
    if not getattr(sys, "frozen", False):  # PyInstaller's mark
        return text
    return f"{text.partition(': pip install')[0]}: this program has no extras; use kseg installed with pip"


def lazy(module: str, name: str = "", *, needed: str = "") -> Any:
    """Return a proxy for a module, or for its function or class ``name``, that imports it at the first use.

    ``needed`` is the text of the UsageError that replaces ImportError, for a library that may be missing.
    """
    return _Lazy(module, name, needed)


class _Lazy:
    """A proxy: it can be called, its attributes can be read, and the proxy of a class can be a base class.

    ``isinstance``, ``except`` and subscripts need the object itself, so the proxy must be for its module.
    """

    __slots__ = ("_module", "_name", "_needed")

    def __init__(self, module: str, name: str, needed: str) -> None:
        self._module: Any = module
        self._name = name
        self._needed = needed

    def _target(self) -> Any:
        if isinstance(self._module, str):
            try:
                self._module = import_module(self._module)
            except ImportError as error:
                if not self._needed:
                    raise
                raise UsageError(without_pip(self._needed)) from error
        return getattr(self._module, self._name) if self._name else self._module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target(), name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._target()(*arguments, **options)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._target(),)
