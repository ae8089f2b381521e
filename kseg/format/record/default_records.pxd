# C types for splitting.py.

cimport cython

from kseg.format.record.crc cimport crc32_of
from kseg.format.record.framing cimport (
    BatchColumns, RecordColumns, clamped, read_int32, read_int64, read_uint32, wrapped_sum
)

cdef Py_ssize_t SIZE_AT, LOG_OVERHEAD, MAGIC_AT, HEADER_SIZE_UP_TO_MAGIC, LEGACY_CRC_AT
cdef Py_ssize_t LEGACY_ATTRIBUTES_AT, V1_TIMESTAMP_AT, V0_KEY_AT, V1_KEY_AT, RECORD_BATCH_OVERHEAD
cdef long long MOST_HEADERS, LARGE, MAX_FAULTS, MAX_INT64, SUM_LIMIT, MIN_INT64, V0_MIN_SIZE, CODEC_MASK, LOG_APPEND_TIME, MIN_RECORD_SIZE


cdef class PartialBatch:
    cdef public long long rows, index, previous, bits, largest, disorder, null_keys, header_total
    cdef public long long faulty, faults_left_out, shift
    cdef public Py_ssize_t at
    cdef public bint final, hungry, done


@cython.locals(raw=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
cdef (unsigned long long, Py_ssize_t) finish_varint(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, unsigned long long first, int last_shift
) except *

cpdef split_batch_payload(BatchColumns batches, Py_ssize_t row, RecordColumns records)

@cython.locals(at=cython.Py_ssize_t)
cpdef Py_ssize_t split_plain(
    const unsigned char[::1] data, BatchColumns batches, Py_ssize_t row, Py_ssize_t room, RecordColumns records,
    list faults
) except -1

@cython.locals(
    count=cython.longlong, base_offset=cython.longlong, base_timestamp=cython.longlong, reach=cython.longlong,
    append_time=cython.longlong,
    max_timestamp=cython.longlong, index=cython.longlong, byte=cython.ulonglong, length=cython.longlong,
    delta=cython.longlong, stop=cython.Py_ssize_t, i=cython.Py_ssize_t, rest=cython.longlong, first=cython.Py_ssize_t,
    bits=cython.longlong, largest=cython.longlong, previous=cython.longlong, disorder=cython.Py_ssize_t,
    null_keys=cython.longlong, header_total=cython.longlong, timestamp=cython.longlong, offset=cython.longlong,
    capacity=cython.Py_ssize_t, begin=cython.Py_ssize_t, record_at=cython.Py_ssize_t,
    stop_index=cython.longlong, final=cython.bint, hungry=cython.bint, batch="long long[::1]", offsets="long long[::1]", timestamps="long long[::1]",
    attributes="long long[::1]", key_ats="long long[::1]", key_sizes="long long[::1]", value_ats="long long[::1]",
    value_sizes="long long[::1]", headers_ats="long long[::1]", header_counts="long long[::1]", why=str,
)
cpdef Py_ssize_t split_records(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, BatchColumns batches, Py_ssize_t row,
    Py_ssize_t room, RecordColumns records, list faults, PartialBatch part=*
) except -1

@cython.locals(
    key_size=cython.longlong, key_at=cython.Py_ssize_t, value_size=cython.longlong, value_at=cython.Py_ssize_t,
)
cpdef Py_ssize_t skip_headers(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t stop, long long count) except -2

@cython.locals(byte=cython.ulonglong, size=cython.longlong)
cpdef (long long, Py_ssize_t) header_field(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t stop) except *

@cython.locals(count=cython.longlong, byte=cython.ulonglong, length=cython.longlong)
cdef long long count_records(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) except -1

@cython.locals(
    key_at=cython.Py_ssize_t, key_size=cython.longlong, value_at=cython.Py_ssize_t, value_size=cython.longlong,
    i=cython.Py_ssize_t,
)
cpdef bint split_message(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, long long magic, long long index,
    BatchColumns batches, Py_ssize_t row, RecordColumns records, list faults
) except -1

@cython.locals(
    at=cython.Py_ssize_t, end=cython.Py_ssize_t, index=cython.longlong, first=cython.Py_ssize_t, size=cython.longlong,
    magic=cython.longlong, stop=cython.Py_ssize_t, stop_index=cython.longlong, begin=cython.longlong, disorder=cython.longlong,
    final=cython.bint, hungry=cython.bint, broken=cython.bint, faulty=cython.longlong, left_out=cython.longlong,
    inner_codec=cython.longlong, stored=cython.longlong, computed=cython.longlong,
    shift=cython.longlong,
)
cpdef long long split_wrapper(
    const unsigned char[::1] data, const unsigned char[::1] view, BatchColumns batches, Py_ssize_t row, RecordColumns records,
    list faults, PartialBatch part=*
) except -1

@cython.locals(wrapper_offset=cython.longlong, last_inner=cython.longlong, shift=cython.longlong)
cpdef long long wrapper_shift(BatchColumns batches, Py_ssize_t row, list faults) except? -99

@cython.locals(i=cython.Py_ssize_t)
cdef shift_offsets(
    BatchColumns batches, Py_ssize_t row, RecordColumns records, Py_ssize_t first, long long shift
)
