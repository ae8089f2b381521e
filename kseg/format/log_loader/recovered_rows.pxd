cimport cython
from kseg.format.record.columns cimport BatchColumns

# C types for recovered_rows.py.

cdef long long CODEC, MARKER, IN_TRANSACTION, GOOD, MAX_RELATIVE, FAR, MAX_INT64

cdef class IndexProgress:
    cdef public long long interval, valid, indexed, timestamp, offset

    cpdef Py_ssize_t next_entry(self, BatchColumns batches, Py_ssize_t row, Py_ssize_t stop) except -1

@cython.locals(legacy=cython.bint)
cpdef Py_ssize_t end_of_plain(
    BatchColumns batches, Py_ssize_t row, long long base_offset, long long latest_epoch, dict transactions
) except -1

cpdef Py_ssize_t end_without_transactions(BatchColumns batches, Py_ssize_t row, dict transactions) except -1

@cython.locals(producer=cython.longlong)
cpdef last_rows(BatchColumns batches, Py_ssize_t row, Py_ssize_t stop, dict last)

@cython.locals(producer=cython.longlong)
cdef bint changes_transactions(BatchColumns batches, Py_ssize_t row, dict transactions) except -1

cpdef Py_ssize_t end_of_lower(BatchColumns batches, Py_ssize_t row, long long offset) except -1

@cython.locals(row=cython.Py_ssize_t)
cpdef bint has_far_offsets(BatchColumns batches) except -1

@cython.locals(row=cython.Py_ssize_t, records=cython.longlong, first=cython.longlong, last=cython.longlong)
cpdef (long long, long long, long long) count_records(BatchColumns batches) except *
