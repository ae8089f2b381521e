# C types for deep_reader.py.

cimport cython

cimport kseg.format.record.default_records as default_records
cimport kseg.format.record.legacy_records as legacy_records
from kseg.format.record.columns cimport BatchColumns, RecordColumns

cdef Py_ssize_t FULL_BYTES, FULL_ROWS, OVERHEAD
cdef long long CODEC, HELD, RATIO

cdef class DeepIterator:
    cdef object _report, _buffers, _large
    cdef long long _limit
    cdef RecordColumns _records, _wrapper
    cdef list _faults

    @cython.locals(batches=BatchColumns, records=RecordColumns, inflated=cython.Py_ssize_t)
    cdef Py_ssize_t _fill_chunk(self, chunk, Py_ssize_t row) except -1

    @cython.locals(batches=BatchColumns, at=cython.Py_ssize_t, end=cython.Py_ssize_t, magic=cython.longlong, large=cython.longlong)
    cdef Py_ssize_t _decompress_batch(self, chunk, Py_ssize_t row, room) except -1

    @cython.locals(batches=BatchColumns, at=cython.Py_ssize_t, end=cython.Py_ssize_t, wrapper=RecordColumns)
    cdef _compressed_bytes(self, chunk, Py_ssize_t row)

    @cython.locals(codec=cython.longlong, magic=cython.longlong, memory_limit=cython.longlong)
    cdef _decompress(self, BatchColumns batches, Py_ssize_t row, compressed, room)
