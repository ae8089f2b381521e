"""The parts of pyarrow that kseg uses, imported at their first use: all but Parquet, Arrow and Spark works without it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kseg.lazy import lazy

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import dataset
    from pyarrow.dataset import InMemoryDataset
    from pyarrow.parquet import ParquetWriter
else:
    _NEEDED = "Parquet and Arrow need pyarrow: pip install pyarrow"
    pa = lazy("pyarrow", needed=_NEEDED)
    pc = lazy("pyarrow.compute", needed=_NEEDED)
    dataset = lazy("pyarrow.dataset", needed=_NEEDED)
    InMemoryDataset = lazy("pyarrow.dataset", "InMemoryDataset", needed=_NEEDED)
    ParquetWriter = lazy("pyarrow.parquet", "ParquetWriter", needed=_NEEDED)

__all__ = ["InMemoryDataset", "ParquetWriter", "dataset", "pa", "pc"]
