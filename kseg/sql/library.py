"""DuckDB, imported at its first use, and the check of what ``kseg sql`` needs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kseg.errors import UsageError
from kseg.lazy import lazy
from kseg.report.arrow_parts import pa

if TYPE_CHECKING:
    import duckdb
else:
    duckdb = lazy("duckdb", needed="kseg sql needs DuckDB: pip install duckdb")

__all__ = ["duckdb", "import_libraries"]


def import_libraries() -> None:
    """Import DuckDB and pyarrow. Raises UsageError, which says what to install, if one is missing.

    pyarrow then uses the memory of the system, unless the environment says otherwise: its own pool holds up to 30 MB more.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    duckdb.connect  # noqa: B018 - imports it
    try:
        pa.schema  # noqa: B018
    except UsageError:
        raise UsageError("kseg sql needs pyarrow: pip install pyarrow") from None
