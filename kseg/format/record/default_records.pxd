cimport cython
from kseg.format.record.memory cimport is_utf8
from kseg.format.record.framing cimport finish_varint
from kseg.format.record.columns cimport BatchColumns, PartialBatch, RecordColumns
from kseg.format.record.framing cimport clamped, wrapped_sum
from kseg.format.record.legacy_records cimport split_messages

# C types for default_records.py.

@cython.locals(
    valid=cython.bint, byte=cython.ulonglong, size=cython.longlong, key_at=cython.Py_ssize_t, end=cython.Py_ssize_t,
    bits=cython.uint,
)
cpdef (Py_ssize_t, bint) skip_headers(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t stop, long long count
) except *

@cython.locals(byte=cython.ulonglong, size=cython.longlong)
cpdef (long long, Py_ssize_t) header_field(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t stop) except *

cdef int check_range(Py_ssize_t size, Py_ssize_t at, Py_ssize_t stop) except -1

cdef Py_ssize_t RECORD_BATCH_OVERHEAD
cdef long long MOST_HEADERS, LARGE, SUM_LIMIT, MIN_INT64, CODEC_MASK, LOG_APPEND_TIME, MIN_RECORD_SIZE

@cython.locals(at=cython.Py_ssize_t)
cpdef Py_ssize_t split_uncompressed(
    const unsigned char[::1] data, BatchColumns batches, Py_ssize_t row, Py_ssize_t room, RecordColumns records,
    list faults
) except -1

@cython.locals(
    count=cython.longlong, base_offset=cython.longlong, base_timestamp=cython.longlong, reach=cython.longlong,
    append_time=cython.longlong,
    max_timestamp=cython.longlong, index=cython.longlong, byte=cython.ulonglong, length=cython.longlong,
    delta=cython.longlong, stop=cython.Py_ssize_t, i=cython.Py_ssize_t, first=cython.Py_ssize_t,
    bits=cython.longlong, largest=cython.longlong, previous=cython.longlong, disorder=cython.Py_ssize_t,
    null_keys=cython.longlong, header_total=cython.longlong, invalid_keys=cython.longlong, valid_keys=cython.bint,
    timestamp=cython.longlong, offset=cython.longlong,
    capacity=cython.Py_ssize_t, begin=cython.Py_ssize_t, record_at=cython.Py_ssize_t,
    stop_index=cython.longlong, final=cython.bint, hungry=cython.bint, batch="long long[::1]", offsets="long long[::1]", timestamps="long long[::1]",
    attributes="long long[::1]", key_ats="long long[::1]", key_sizes="long long[::1]", value_ats="long long[::1]",
    value_sizes="long long[::1]", headers_ats="long long[::1]", header_counts="long long[::1]", why=str,
)
cpdef Py_ssize_t split_records(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, BatchColumns batches, Py_ssize_t row,
    Py_ssize_t room, RecordColumns records, list faults, PartialBatch part=*
) except -1

@cython.locals(rest=cython.longlong)
cdef add_count_fault(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t row, long long index, long long count,
    bint hungry, bint final, list faults
)

@cython.locals(count=cython.longlong, byte=cython.ulonglong, length=cython.longlong)
cdef long long count_records(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) except -1
