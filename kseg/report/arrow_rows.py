"""Records as Arrow record batches, for Parquet and the views, from buffers that ``arrow_gather`` fills."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, pairwise, repeat
from typing import Any

from kseg import schema
from kseg.findings import do_nothing
from kseg.format.internal_topics.decode import decoded_record
from kseg.format.record.layout import TIMESTAMP_TYPES, TRANSACTIONAL, UNKNOWN
from kseg.format.segment.records_chunk import ENCODERS, Chunk
from kseg.format.segment.transaction_events import has_transactions
from kseg.report import arrow_gather
from kseg.report.arrow_table import BATCH_ROWS, ColumnPlace, arrow_schema, arrow_types, arrow_value, pa, pc
from kseg.schema import Column
from kseg.text import to_json

#: Maximum bytes of keys, values and headers in an Arrow record batch, as Spark recommends.
BATCH_BYTES = 8 * 1024 * 1024


class RecordRows:
    """Gathers the records of one or more files into Arrow record batches with the given (widened) columns.

    ``encoded`` is called with the name of a text column in which bytes are base64, because they are not UTF-8, unless the
    columns show which and what they are.
    """

    def __init__(self, columns: Sequence[Column], max_rows: int = BATCH_ROWS, max_bytes: int = BATCH_BYTES) -> None:
        self.schema = arrow_schema(columns)
        self._names = [column.name for column in columns]
        self._given = {column.name: column for column in columns}
        self._content_names = _CONTENTS.keys() & self._names
        self._with_transactions = not _OF_TRANSACTION.isdisjoint(self._names)
        self._window: Any = None
        self._transactional = False
        self._facts = not _WITHOUT_FACTS.issuperset(self._names)
        self._sized: list[str] = [name for name in ("key_size", "value_size") if name in self._names]
        self._bounds = (max_rows, max_bytes)
        self._room = (0, 0)
        self.encoded: Callable[[str], object] = do_nothing
        self._begin()

    def add(
        self,
        place: ColumnPlace,
        chunk: Chunk,
        data: Any,
        first: int,
        stop: int,
        searched: Callable[[int], schema.Row] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Append record rows ``first`` to ``stop`` of the chunk, whose bytes are in ``data``; yield full batches.

        ``searched`` returns the SEARCH_COLUMNS of a row. The caller must exhaust the iterator before it advances to the next
        chunk.
        """
        while first < stop:
            before, begin = self._columns.count, first
            first = arrow_gather.append(self._columns, data, chunk.batches, chunk.records, first, stop)
            if place.decode and schema.DECODED.name in self._names:
                self._decode(place.decode, chunk, before, range(begin, first))
            if place.decoder and self._content_names:
                decoded = partial(place.decoder.fields, place.topic, chunk)
                self._add_contents(self._content_names, decoded, range(begin, first))
            if searched:
                self._add_contents(_SEARCHED, searched, range(begin, first))
            for name in self._sized:
                self._sizes[name].frombytes(memoryview(getattr(chunk.records, name))[begin:first].tobytes())
            self._places.append((place, self._columns.count - before))
            if self._with_transactions:
                self._add_transactions(place, chunk, begin, first)
            self._take_controls(chunk)
            if self._columns.full():
                yield self._flush()

    def add_chunk(self, place: ColumnPlace, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Append all records of the chunk; yield full batches."""
        for data, first, stop in payload_runs(chunk):
            yield from self.add(place, chunk, data, first, stop)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the last, partly filled batch."""
        if self._columns.count:
            yield self._flush()

    def _begin(self) -> None:
        keys, values, headers = (not names.isdisjoint(self._names) for names in _STORED_IN)
        rows, size = self._bounds
        self._columns = arrow_gather.ArrowColumns(rows, size, keys, values, headers, *self._room, self._facts)
        self._places: list[tuple[ColumnPlace, int]] = []
        self._sizes: dict[str, array[int]] = {name: array("q") for name in self._sized}
        # State and transactional id, with the number of rows that have them.
        self._transactions: list[tuple[tuple[str | None, str | None], int]] = []
        self._controls: dict[int, str] = {}
        self._decoded: dict[int, str] = {}
        self._contents: defaultdict[str, list[Any]] = defaultdict(list)

    def _add_transactions(self, place: ColumnPlace, chunk: Chunk, begin: int, stop: int) -> None:
        """Append the transactions of the record rows ``begin`` to ``stop``, batch by batch."""
        if self._window is not chunk.window:
            self._window, self._transactional = chunk.window, has_transactions(chunk.batches)
        if not self._transactional:
            self._transactions.append(((None, None), stop - begin))
            return
        batches, known = chunk.batches, place.transactions
        while begin < stop:
            row = chunk.records.batch[begin]
            end = min(stop, batches.first_record[row] + batches.record_total[row])
            found: tuple[str | None, str | None] = (None, None)
            if known:
                found = known.state(batches, row), known.transactional_id(batches, row)
            elif batches.magic[row] >= 2 and batches.attributes[row] & TRANSACTIONAL:
                found = UNKNOWN, None
            self._transactions.append((found, end - begin))
            begin = end

    def _take_controls(self, chunk: Chunk) -> None:
        for row, i in self._columns.controls:
            control = chunk.control(i)
            self._controls[row] = to_json(control.as_dict() if control else None)
        self._columns.controls.clear()

    def _decode(self, topic: str, chunk: Chunk, at: int, taken: range) -> None:
        for row, i in enumerate(taken, at):
            if decoded := decoded_record(topic, chunk, i):
                self._decoded[row] = decoded.as_json()

    def _add_contents(self, names: Iterable[str], fields_of: Callable[[int], schema.Row], taken: range) -> None:
        """Append values of records to the columns ``names``, with nulls for earlier records without them."""
        columns = {name: self._contents[name] for name in names}
        before = self._columns.count - len(taken)
        for values in columns.values():
            values.extend([None] * (before - len(values)))
        for i in taken:
            fields = fields_of(i)
            for name, values in columns.items():
                values.append(fields.get(name))

    def _flush(self) -> pa.RecordBatch:
        arrays = [_ARRAYS[name](self) for name in self._names]
        # The next batch probably needs the same size: growing columns are copied.
        used = (self._columns.keys.used, self._columns.values.used)
        self._room = (min(used[0] * 9 // 8, self._bounds[1]), min(used[1] * 9 // 8, self._bounds[1]))
        self._begin()
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, kind: str, values: Any, valid: Any = None, size: int = 8) -> pa.Array:
        """Return an array over the front of a typed buffer, without a copy; ``size`` is bytes per value, 0 for bits."""
        count = self._columns.count
        whole = memoryview(values)
        data = pa.py_buffer(whole[:count] if size else whole)
        return pa.Array.from_buffers(arrow_types()[kind], count, [None if valid is None else pa.py_buffer(valid), data])

    def _texts(self, kind: Any, texts: arrow_gather.Texts, count: int) -> pa.Array:
        buffers = [
            pa.py_buffer(texts.valid),
            pa.py_buffer(memoryview(texts.ends)[: count + 1]),
            pa.py_buffer(memoryview(texts.data)[: texts.used]),
        ]
        return pa.Array.from_buffers(kind, count, buffers)

    def timestamp_types(self) -> pa.Array:
        """Return the names of the timestamp types, null for v0."""
        columns = self._columns
        stored = memoryview(columns.timestamp_type)[: columns.count]
        same = bytes(stored).count(stored[0]) == columns.count
        if same and not self._array("bool", columns.typed, size=0).false_count:
            # The usual case; the cast below takes longer than all other columns.
            return pa.repeat(TIMESTAMP_TYPES[stored[0]], columns.count)
        buffers = [pa.py_buffer(columns.typed), pa.py_buffer(stored)]
        indices = pa.Array.from_buffers(pa.int8(), columns.count, buffers)
        return pa.DictionaryArray.from_arrays(indices, pa.array(TIMESTAMP_TYPES)).cast(pa.string())

    def headers(self, name: str = "headers") -> pa.Array:
        """Return lists of header key and value. Bytes of a key that are not UTF-8 are replaced, as Kafka does."""
        columns = self._columns
        kind = self.schema.field(name).type
        count = columns.header_count
        keys = self._texts(pa.binary(), columns.header_keys, count)
        try:
            keys = keys.cast(pa.string()) if count else pa.array([], pa.string())
        except pa.ArrowInvalid:
            keys = pa.array([key.decode("utf-8", "replace") for key in keys.to_pylist()], pa.string())
        values = self._typed("headers", self._texts(pa.binary(), columns.header_values, count), kind.value_type[1].type)
        pairs = pa.StructArray.from_arrays([keys, values], fields=list(kind.value_type))
        ends = pa.py_buffer(memoryview(columns.header_ends)[: columns.count + 1])
        return pa.Array.from_buffers(kind, columns.count, [None, ends], children=[pairs])

    def objects(self, found: Mapping[int, str]) -> pa.Array:
        """Return JSON per row: decoded control records or decoded records of internal topics."""
        count, text = self._columns.count, pa.string()
        if not found:
            return pa.nulls(count, text)
        return pa.array([found.get(row) for row in range(count)], text)

    def transactions(self, n: int) -> pa.Array:
        """Return the state of each record's transaction (``n`` 0) or the transactional id (1), null outside transactions."""
        if all(found[n] is None for found, _ in self._transactions):
            return pa.nulls(self._columns.count, pa.string())
        return pa.array(
            chain.from_iterable(repeat(found[n], count) for found, count in self._transactions), pa.string()
        )

    def contents(self, name: str) -> pa.Array:
        """Return a column of CONTENT_COLUMNS, or a typed one in the place of the decoded content."""
        found, column = self._contents[name], self._given[name]
        found.extend([None] * (self._columns.count - len(found)))
        if column == _CONTENTS.get(name):
            found = [arrow_value(column, {name: value}) for value in found]
        return pa.array(found, self.schema.field(name).type)

    def sizes(self, name: str) -> pa.Array:
        """Return the sizes of keys or values in bytes, null for null."""
        stored = self._array("int", self._sizes[name])
        return pc.if_else(pc.less(stored, 0), None, stored)

    def headers_sizes(self) -> pa.Array:
        """Return the sizes of all keys and values of the headers of each record in bytes."""
        columns = self._columns
        ends = memoryview(columns.header_ends)[: columns.count + 1]
        fields = (memoryview(texts.ends) for texts in (columns.header_keys, columns.header_values))
        totals = [sum(found) for found in zip(*([one[end] for end in ends] for one in fields), strict=True)]
        return pa.array([end - start for start, end in pairwise(totals)], pa.int64())

    def encodings(self, name: str) -> pa.Array:
        """Return "base64" for the keys or values that are not UTF-8, null for others."""
        found = self._bytes(name)
        try:
            found.cast(pa.string())
            return self.nothing()
        except pa.ArrowInvalid:
            encode = ENCODERS["auto"]
            return pa.array([None if data is None else encode(data)[1] for data in found.to_pylist()], pa.string())

    def nothing(self) -> pa.Array:
        """Return a text column of nulls."""
        return pa.nulls(self._columns.count, pa.string())

    def plain(self, name: str, valid: str | None, kind: str = "int", size: int = 8) -> pa.Array:
        """Return a column that ``arrow_gather`` has filled; ``valid`` names its validity bitmap."""
        columns = self._columns
        return self._array(kind, getattr(columns, name), getattr(columns, valid) if valid else None, size)

    def stored(self, name: str) -> pa.Array:
        """Return the column ``key`` or ``value``, as bytes or as text."""
        return self._typed(name, self._bytes(name), self.schema.field(name).type)

    def _bytes(self, name: str) -> pa.Array:
        return self._texts(pa.binary(), getattr(self._columns, f"{name}s"), self._columns.count)

    def _typed(self, name: str, found: pa.Array, kind: Any) -> pa.Array:
        """Return bytes as they are, or as text: UTF-8 as it is, other bytes in base64."""
        if kind == found.type:
            return found
        try:
            return found.cast(kind)
        except pa.ArrowInvalid:
            encode = ENCODERS["auto"]
            if {f"{name}_encoding", f"{name}_bytes"}.isdisjoint(self._names):
                self.encoded(name)
            return pa.array([None if value is None else encode(value)[0] for value in found.to_pylist()], kind)


_SEARCHED = schema.names_of(schema.SEARCH_COLUMNS)
_CONTENTS = {column.name: column for columns in schema.CONTENT_COLUMNS.values() for column in columns}
_ARRAYS: Mapping[str, Callable[[Any], Any]] = {
    "topic": lambda found: _of_places(found._places, "topic", "text"),
    "partition": lambda found: _of_places(found._places, "partition", "int32"),
    "file": lambda found: _of_places(found._places, "file", "text"),
    "position": lambda found: found.plain("position", None),
    "offset": lambda found: found.plain("offset", None),
    "timestamp": lambda found: found.plain("time", "time_valid", "timestamp"),
    "timestamp_ms": lambda found: found.plain("timestamp", "stamped"),
    "timestamp_type": RecordRows.timestamp_types,
    "sequence": lambda found: found.plain("sequence", "modern"),
    "key": lambda found: found.stored("key"),
    "value": lambda found: found.stored("value"),
    "headers": RecordRows.headers,
    "headers_bytes": partial(RecordRows.headers, name="headers_bytes"),
    "headers_size": RecordRows.headers_sizes,
    "key_size": lambda found: found.sizes("key_size"),
    "value_size": lambda found: found.sizes("value_size"),
    "key_encoding": lambda found: found.encodings("key"),
    "value_encoding": lambda found: found.encodings("value"),
    "key_bytes": lambda found: found._bytes("key"),
    "value_bytes": lambda found: found._bytes("value"),
    "control": lambda found: found.objects(found._controls),
    "decoded": lambda found: found.objects(found._decoded),
    "producer_id": lambda found: found.plain("producer_id", "modern"),
    "producer_epoch": lambda found: found.plain("producer_epoch", "modern"),
    "transactional": lambda found: found.plain("transactional", "modern", "bool", 0),
    "partition_leader_epoch": lambda found: found.plain("leader_epoch", "modern"),
    "transaction_state": partial(RecordRows.transactions, n=0),
    "transactional_id": partial(RecordRows.transactions, n=1),
    "damage": RecordRows.nothing,
    **{name: partial(RecordRows.contents, name=name) for name in (*_CONTENTS, *_SEARCHED)},
}


#: The columns that records of a file have in common.
_OF_FILES = {column: _ARRAYS[column] for column in ("topic", "partition", "file")}
_OF_TRANSACTION = frozenset({"transaction_state", "transactional_id"})
#: The columns that are made from the stored keys, values and headers.
_STORED_IN = (
    frozenset({"key", "key_bytes", "key_encoding"}),
    frozenset({"value", "value_bytes", "value_encoding"}),
    frozenset({"headers", "headers_bytes", "headers_size"}),
)
#: The columns that need no fact of a record, such as its offset.
_WITHOUT_FACTS = frozenset({*_OF_FILES, *_OF_TRANSACTION, "key_size", "value_size"}.union(*_STORED_IN))


class CountedRows:
    """Counts the records of one or more files into Arrow record batches with columns of the files alone.

    It replaces RecordRows where no column of the records is requested, as for ``count(*)``.
    """

    def __init__(self, columns: Sequence[Column], max_rows: int = BATCH_ROWS) -> None:
        self.schema = arrow_schema(columns)
        self._max_rows = max_rows
        self._places: list[tuple[ColumnPlace, int]] = []
        self._count = 0
        self.encoded: Callable[[str], object] = do_nothing

    def add_chunk(self, place: ColumnPlace, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Count the records of the chunk; yield full batches."""
        self._places.append((place, chunk.records.count))
        self._count += chunk.records.count
        if self._count >= self._max_rows:
            yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        if self._count:
            arrays = [_OF_FILES[name](self) for name in self.schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
            self._places, self._count = [], 0


def gathered_rows(columns: Sequence[Column]) -> RecordRows | CountedRows:
    """Return what collects the records with the given (widened) columns."""
    return CountedRows(columns) if all(column.name in _OF_FILES for column in columns) else RecordRows(columns)


def _of_places(places: Iterable[tuple[ColumnPlace, int]], attribute: str, kind: str) -> pa.Array:
    """Return a column of the file that each row comes from; ``places`` has the files with their numbers of rows."""
    arrow_type = arrow_types()[kind]
    runs: list[list[Any]] = []
    for place, count in places:
        value = getattr(place, attribute)
        if runs and runs[-1][0] == value:
            runs[-1][1] += count
        else:
            runs.append([value, count])
    arrays = [pa.repeat(pa.scalar(value, arrow_type), count) for value, count in runs]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def payload_runs(chunk: Chunk) -> Iterator[tuple[Any, int, int]]:
    """Yield the chunk's records as (buffer, first row, end row): one decompressed batch, or a run of uncompressed ones."""
    at = 0
    for row, payload in chunk.payloads.items():
        own = chunk.rows(row)
        if own.start > at:
            yield chunk.window.data, at, own.start
        yield payload, own.start, own.stop
        at = own.stop
    if at < chunk.records.count:
        yield chunk.window.data, at, chunk.records.count
