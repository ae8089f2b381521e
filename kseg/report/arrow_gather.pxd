# C types for arrow_gather.py.

cimport cython

from kseg.format.record.columns cimport BatchColumns, RecordColumns
from kseg.format.record.default_records cimport header_field

cdef long long LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, INT32_MAX, NO_TIMESTAMP, MOST_HEADERS, HEADER_BYTES
cdef long long FIRST_MILLISECOND, LAST_MILLISECOND, BY_BYTE

cdef class Texts:
    cdef readonly unsigned char[::1] data, valid
    cdef readonly int[::1] ends
    cdef readonly Py_ssize_t used

    @cython.locals(wanted=cython.Py_ssize_t)
    cpdef reserve(self, Py_ssize_t size)

    cpdef widen(self)

cdef class ArrowColumns:
    cdef readonly Py_ssize_t capacity, limit, count, header_count
    cdef readonly bint want_keys, want_values, want_headers, want_facts
    cdef readonly long long[::1] position, offset, timestamp, time, sequence, producer_id, producer_epoch, leader_epoch
    cdef readonly signed char[::1] timestamp_type
    cdef readonly unsigned char[::1] stamped, time_valid, typed, modern, transactional
    cdef readonly int[::1] header_ends
    cdef readonly Texts keys, values, header_keys, header_values
    cdef readonly list controls

    @cython.locals(held=cython.Py_ssize_t)
    cpdef bint full(self)

@cython.locals(
    i=cython.Py_ssize_t, n=cython.Py_ssize_t, row=cython.Py_ssize_t, at=cython.Py_ssize_t,
    bit=cython.uchar, magic=cython.longlong, attributes=cython.longlong, stored=cython.longlong,
    base_sequence=cython.longlong, position="long long[::1]", offset="long long[::1]", timestamp="long long[::1]",
    time="long long[::1]", sequence="long long[::1]", producer_id="long long[::1]", producer_epoch="long long[::1]",
    leader_epoch="long long[::1]",
    timestamp_type="signed char[::1]", stamped="unsigned char[::1]", time_valid="unsigned char[::1]",
    typed="unsigned char[::1]", modern="unsigned char[::1]", transactional="unsigned char[::1]",
    header_ends="int[::1]",
)
cpdef Py_ssize_t append(
    ArrowColumns columns, const unsigned char[::1] data, BatchColumns batches, RecordColumns records,
    Py_ssize_t first, Py_ssize_t stop
) except -1

@cython.locals(used=cython.Py_ssize_t, i=cython.Py_ssize_t)
cdef put(Texts column, Py_ssize_t n, const unsigned char[::1] data, Py_ssize_t at, long long size)

@cython.locals(keys=Texts, values=Texts, n=cython.Py_ssize_t, size=cython.longlong)
cdef put_headers(ArrowColumns columns, const unsigned char[::1] data, Py_ssize_t at, long long count)
