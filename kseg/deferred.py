"""Modules of kseg run when one of their names is first used, so that a command runs only the modules that it needs.

``from kseg.report import wording`` binds the module and runs none of its code; ``from kseg.findings import RULES`` needs a
name and runs it. ``importlib.util.LazyLoader`` does the same, with a race between threads before Python 3.12.3: a second
thread saw a module that the first one was still running.
"""

from __future__ import annotations

import os
import sys
import threading
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from types import ModuleType
from typing import Any

#: What the import system itself reads and writes before a module runs.
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
            # The loader of this module; the class of its parent does what an ordinary import does.
            SourceFileLoader.exec_module(spec.loader, module)  # type: ignore[arg-type]
            module.__class__ = ModuleType
            spec.loader_state = None
        finally:
            waiting.running = False


class _DeferringLoader(SourceFileLoader):
    """Defers the run of a module; a package runs at once, as it holds only a docstring."""

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is None or spec.submodule_search_locations is not None:
            super().exec_module(module)
            return
        spec.loader_state = _Waiting()
        module.__class__ = _Deferred


class Finder(FileFinder):
    """Finds the modules of one folder of kseg, and makes finders like itself for the folders of its packages.

    ``extensions`` is whether compiled modules are preferred to their sources, as Python prefers them.
    """

    def __init__(self, folder: str, *, extensions: bool) -> None:
        self._extensions = extensions
        compiled = [(ExtensionFileLoader, EXTENSION_SUFFIXES)] if extensions else []
        sources = [(_DeferringLoader, SOURCE_SUFFIXES), (SourcelessFileLoader, BYTECODE_SUFFIXES)]
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
