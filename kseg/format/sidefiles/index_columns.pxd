# C types for index_columns.py.

cimport cython
from kseg.format.record.columns cimport BatchColumns

@cython.locals(row=cython.Py_ssize_t)
cdef split_offsets(int[::1] words, long long base, long long[::1] offsets, long long[::1] positions)

@cython.locals(row=cython.Py_ssize_t, high=cython.longlong, low=cython.longlong)
cdef split_times(int[::1] words, long long base, long long[::1] timestamps, long long[::1] offsets)

cdef class Order:
    cdef long long _lowest_first, _lowest_second, _step, _first, _second

    @cython.locals(kept=cython.bint)
    cpdef Py_ssize_t next_break(self, long long[::1] first, long long[::1] second, Py_ssize_t row) except -1

cdef class MaxTimestamp:
    cdef public long long timestamp, offset

@cython.locals(largest=cython.longlong)
cpdef Py_ssize_t next_index_entry(
    BatchColumns batches, Py_ssize_t row, Py_ssize_t stop, Py_ssize_t position, MaxTimestamp peak
) except -1
