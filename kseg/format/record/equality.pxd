# C types for equality.py.

cimport cython

from kseg.format.record.columns cimport BatchColumns, RecordColumns
from kseg.format.record.encoder cimport headers_end
from kseg.format.record.memory cimport equal_bytes

cdef long long LOG_APPEND_TIME, CRC_BAD

@cython.locals(
    n=cython.longlong, key_size=cython.longlong, value_size=cython.longlong, a=cython.Py_ssize_t,
    b=cython.Py_ssize_t,
)
cpdef long long count_same(
    const unsigned char[::1] left, RecordColumns left_records, BatchColumns left_batches, Py_ssize_t i,
    const unsigned char[::1] right, RecordColumns right_records, BatchColumns right_batches, Py_ssize_t j, long long count,
    long long magic
) except -1

@cython.locals(n=cython.longlong)
cpdef long long count_different(
    const unsigned char[::1] left, RecordColumns left_records, BatchColumns left_batches, Py_ssize_t i,
    const unsigned char[::1] right, RecordColumns right_records, BatchColumns right_batches, Py_ssize_t j, long long count,
    long long magic
) except -1

@cython.locals(row=cython.Py_ssize_t, left_type=cython.longlong, right_type=cython.longlong)
cdef bint same_timestamp(
    RecordColumns left_records, BatchColumns left_batches, Py_ssize_t i, RecordColumns right_records,
    BatchColumns right_batches, Py_ssize_t j
) except -1

@cython.locals(count=cython.longlong, a=cython.Py_ssize_t, b=cython.Py_ssize_t, size=cython.Py_ssize_t)
cpdef bint same_headers(
    const unsigned char[::1] left, RecordColumns left_records, Py_ssize_t i,
    const unsigned char[::1] right, RecordColumns right_records, Py_ssize_t j
) except -1

@cython.locals(n=cython.Py_ssize_t)
cpdef Py_ssize_t count_same_headers(
    BatchColumns left, Py_ssize_t i, BatchColumns right, Py_ssize_t j, bint leader_epochs
) except -1
