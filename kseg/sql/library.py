"""DuckDB, imported at its first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.lazy import lazy

if TYPE_CHECKING:
    import duckdb
else:
    duckdb = lazy("duckdb", needed="kseg sql needs DuckDB: pip install 'kseg[sql]'")

__all__ = ["duckdb"]
