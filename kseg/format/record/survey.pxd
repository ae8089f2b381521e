# C types for survey.py. Names and meanings stand there; nothing is implemented here.

cimport cython

from kseg.format.record.encoder cimport headers_end
from kseg.format.record.columns cimport BatchColumns, RecordColumns
from kseg.format.record.framing cimport clamped
from kseg.format.record.memory cimport equal_bytes

cdef long long CODEC_MASK, LOG_APPEND_TIME, CONTROL, INT32_MAX, NO_TIMESTAMP, BAD
cdef int SKIPPED, COPIED, DROPPED, UNPACKED, COMPRESSED


cdef class MaxTimestamp:
    cdef public long long timestamp, offset


@cython.locals(magic=cython.longlong, attributes=cython.longlong)
cpdef int classify(BatchColumns batches, Py_ssize_t row, long long target, bint copies) except -1

@cython.locals(kind=cython.int, magic=cython.longlong)
cpdef (int, Py_ssize_t) classify_run(
    BatchColumns batches, Py_ssize_t row, Py_ssize_t stop, long long target, bint copies
) except *

@cython.locals(row=cython.Py_ssize_t)
cpdef long long check_offsets_in_batch(
    BatchColumns batches, RecordColumns records, Py_ssize_t first, Py_ssize_t stop, long long last_offset, list faults
) except? -99

cpdef long long first_offset(BatchColumns batches, RecordColumns records, Py_ssize_t row) except? -99

@cython.locals(
    low=cython.longlong, high=cython.longlong, first=cython.Py_ssize_t, total=cython.longlong, index=cython.Py_ssize_t,
)
cdef long long check_batch_offsets(
    BatchColumns batches, RecordColumns records, Py_ssize_t row, long long last_offset, list faults
) except? -99

@cython.locals(size=cython.longlong)
cpdef long long count_codecs(BatchColumns batches, Py_ssize_t row, Py_ssize_t stop, list counts) except -1

@cython.locals(largest=cython.longlong, i=cython.Py_ssize_t)
cpdef long long largest_timestamp(RecordColumns records, Py_ssize_t first, Py_ssize_t stop) except? -99

@cython.locals(timed=cython.longlong, i=cython.Py_ssize_t)
cpdef long long count_timed(RecordColumns records, Py_ssize_t first, Py_ssize_t stop) except -1

@cython.locals(largest=cython.longlong)
cpdef Py_ssize_t next_index_entry(
    BatchColumns batches, Py_ssize_t row, Py_ssize_t stop, Py_ssize_t position, MaxTimestamp peak
) except -1

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
cdef bint same_headers(
    const unsigned char[::1] left, RecordColumns left_records, Py_ssize_t i,
    const unsigned char[::1] right, RecordColumns right_records, Py_ssize_t j
) except -1

@cython.locals(n=cython.Py_ssize_t)
cpdef Py_ssize_t count_same_headers(
    BatchColumns left, Py_ssize_t i, BatchColumns right, Py_ssize_t j, bint leader_epochs
) except -1
