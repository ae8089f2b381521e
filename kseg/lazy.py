"""Libraries, and modules named in tables, that are imported at their first use; ``kseg.deferred`` does so for kseg itself.

A module states such an import at its top, next to the import that type checkers read:

    if TYPE_CHECKING:
        import tempfile
    else:
        tempfile = lazy("tempfile")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from kseg.errors import UsageError


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
                raise UsageError(self._needed) from error
        return getattr(self._module, self._name) if self._name else self._module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target(), name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._target()(*arguments, **options)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self._target(),)
