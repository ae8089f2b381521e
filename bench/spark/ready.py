"""The floor of a Python data source: kseg's rows in Arrow batches that exist before the run, one file per split."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from bench.corpora import HOME
from kseg.spark.data_source import KsegDataSource, KsegReader


class ReadyBatches(DataSource):
    """Arrow files, mapped into memory; the option ``segment`` names their source."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return KsegDataSource({"path": self.options["segment"]}).schema()

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader(self.options["path"])


class _Reader(DataSourceReader):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(str(path)) for path in sorted(Path(self.folder).glob("*.arrow"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as source:
            reader = pa.ipc.open_file(source)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


def make_ready(segment: Path) -> Path:
    """Write the Arrow batches of a segment, one file per split, and return their folder."""
    folder = HOME / "spark" / segment.parent.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    reader = KsegReader(KsegDataSource({"path": str(segment)})._options(None))
    for number, split in enumerate(reader.partitions()):
        batches = reader.read(split)
        first = next(batches)
        with pa.OSFile(str(folder / f"{number:03d}.arrow"), "wb") as out, pa.ipc.new_file(out, first.schema) as writer:
            for batch in chain([first], batches):
                writer.write_batch(batch)
    return folder
