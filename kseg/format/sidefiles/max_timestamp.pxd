# C types for max_timestamp.py.

cimport cython

from kseg.format.record.columns cimport BatchColumns

cdef class MaxTimestamp:
    cdef public long long timestamp, offset

@cython.locals(largest=cython.longlong)
cpdef Py_ssize_t next_index_entry(
    BatchColumns batches, Py_ssize_t row, Py_ssize_t stop, Py_ssize_t position, MaxTimestamp peak
) except -1
