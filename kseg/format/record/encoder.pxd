# C types for encoder.py. Names and meanings stand there; nothing is implemented here.

cimport cython

from kseg.format.record.crc cimport crc32_of, crc32c_of
from kseg.format.record.columns cimport BatchColumns, RecordColumns
from kseg.format.record.framing cimport wrapped_sum
from kseg.format.record.default_records cimport header_field
from kseg.format.record.memory cimport copy_bytes

cdef Py_ssize_t SIZE_AT, LOG_OVERHEAD, MAGIC_AT, LEGACY_CRC_AT, LEGACY_ATTRIBUTES_AT, V1_TIMESTAMP_AT
cdef Py_ssize_t V0_KEY_AT, V1_KEY_AT, PARTITION_LEADER_EPOCH_AT, CRC_AT, ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT
cdef Py_ssize_t BASE_TIMESTAMP_AT, MAX_TIMESTAMP_AT, PRODUCER_ID_AT, PRODUCER_EPOCH_AT, BASE_SEQUENCE_AT
cdef Py_ssize_t RECORD_COUNT_AT, RECORD_BATCH_OVERHEAD
cdef long long LOG_APPEND_TIME, INT32_MAX, NO_TIMESTAMP, SUM_LIMIT

@cython.locals(raw=cython.ulonglong, size=cython.longlong)
cpdef long long varint_size(long long value) noexcept

@cython.locals(raw=cython.ulonglong)
cpdef Py_ssize_t write_varint(unsigned char[::1] out, Py_ssize_t at, long long value) except -1

cpdef Py_ssize_t write_bytes(
    unsigned char[::1] out, Py_ssize_t at, const unsigned char[::1] data, Py_ssize_t first, long long size
) except -1

@cython.locals(n=cython.Py_ssize_t)
cdef Py_ssize_t write_int(unsigned char[::1] out, Py_ssize_t at, Py_ssize_t size, long long value) except -1

cpdef Py_ssize_t write_int32_bytes(
    unsigned char[::1] out, Py_ssize_t at, const unsigned char[::1] data, Py_ssize_t first, long long size
) except -1

@cython.locals(n=cython.longlong, size=cython.longlong)
cpdef Py_ssize_t headers_end(const unsigned char[::1] data, Py_ssize_t at, long long count) except -1

@cython.locals(
    key_size=cython.longlong, value_size=cython.longlong, headers_at=cython.Py_ssize_t, header_count=cython.longlong,
    headers_size=cython.Py_ssize_t, timestamp_delta=cython.longlong, offset_delta=cython.longlong,
    size=cython.longlong,
)
cdef Py_ssize_t encode_record(
    const unsigned char[::1] data, RecordColumns records, Py_ssize_t i, long long base_offset,
    long long base_timestamp, unsigned char[::1] out, Py_ssize_t at
) except -1

@cython.locals(i=cython.Py_ssize_t)
cpdef Py_ssize_t encode_records(
    const unsigned char[::1] data, RecordColumns records, Py_ssize_t first, Py_ssize_t stop, long long base_offset,
    long long base_timestamp, unsigned char[::1] out, Py_ssize_t at
) except -1

@cython.locals(
    i=cython.Py_ssize_t, row=cython.Py_ssize_t, kind=cython.longlong, end=cython.Py_ssize_t,
)
cpdef (Py_ssize_t, Py_ssize_t) pack_messages(
    const unsigned char[::1] data, RecordColumns records, Py_ssize_t first, Py_ssize_t stop, BatchColumns batches,
    long long base_offset, long long base_timestamp, long long append_time, unsigned char[::1] out, Py_ssize_t at,
    Py_ssize_t limit
) except *

cpdef finish_batch(
    unsigned char[::1] out, Py_ssize_t at, Py_ssize_t end, long long base_offset, long long last_offset, long long count,
    long long attributes, long long base_timestamp, long long max_timestamp, long long producer_id,
    long long producer_epoch, long long base_sequence, long long partition_leader_epoch
)

@cython.locals(
    largest=cython.Py_ssize_t, i=cython.Py_ssize_t, row=cython.Py_ssize_t, offset=cython.longlong,
    timestamp=cython.longlong, attributes=cython.longlong, end=cython.Py_ssize_t,
)
cpdef (Py_ssize_t, Py_ssize_t) encode_single_batches(
    const unsigned char[::1] data, RecordColumns records, Py_ssize_t first, Py_ssize_t stop, BatchColumns batches,
    long long leader_epoch, unsigned char[::1] out, Py_ssize_t at
) except *

@cython.locals(end=cython.Py_ssize_t)
cpdef Py_ssize_t encode_message(
    const unsigned char[::1] data, Py_ssize_t key_at, long long key_size, Py_ssize_t value_at, long long value_size,
    long long magic, long long offset, long long attributes, long long timestamp, unsigned char[::1] out,
    Py_ssize_t at
) except -1

@cython.locals(i=cython.Py_ssize_t)
cpdef Py_ssize_t encode_messages(
    const unsigned char[::1] data, RecordColumns records, Py_ssize_t first, Py_ssize_t stop, long long magic,
    long long shift, long long attributes, unsigned char[::1] out, Py_ssize_t at
) except -1

@cython.locals(largest=cython.longlong, i=cython.Py_ssize_t)
cpdef long long largest_timestamp(RecordColumns records, Py_ssize_t first, Py_ssize_t stop) except? -99
