cimport cython
from kseg.format.record.columns cimport BatchColumns
from kseg.format.record.crc cimport crc32_of, crc32c_of
from kseg.format.record.memory cimport find_header_bytes

# C types for framing.py.

cdef Py_ssize_t SIZE_AT, LOG_OVERHEAD, MAGIC_AT, HEADER_SIZE_UP_TO_MAGIC
cdef Py_ssize_t LEGACY_CRC_AT, LEGACY_ATTRIBUTES_AT, V1_TIMESTAMP_AT, V0_KEY_AT, V1_KEY_AT
cdef Py_ssize_t PARTITION_LEADER_EPOCH_AT, CRC_AT, ATTRIBUTES_AT, LAST_OFFSET_DELTA_AT, BASE_TIMESTAMP_AT
cdef Py_ssize_t MAX_TIMESTAMP_AT, PRODUCER_ID_AT, PRODUCER_EPOCH_AT, BASE_SEQUENCE_AT, RECORD_COUNT_AT
cdef Py_ssize_t RECORD_BATCH_OVERHEAD
cdef long long V0_MIN_SIZE, V1_MIN_SIZE, V2_MIN_SIZE
cdef long long CODEC_MASK, HIGHEST_CODEC, HIGHEST_LEGACY_CODEC, V0_RESERVED, V1_RESERVED, V2_RESERVED
cdef long long SUM_LIMIT, INT32_MAX, CRC_UNCHECKED, CRC_BAD, CRC_GOOD, SIGN_16, SIGN_32
cdef unsigned long long SIGN_64

@cython.locals(value=cython.longlong)
cpdef long long read_int16(const unsigned char[::1] data, Py_ssize_t at) except? -99

cpdef long long read_int32(const unsigned char[::1] data, Py_ssize_t at) except? -99

@cython.locals(value=cython.longlong)
cpdef long long read_uint32(const unsigned char[::1] data, Py_ssize_t at) except? -99

@cython.locals(value=cython.ulonglong)
cpdef long long read_int64(const unsigned char[::1] data, Py_ssize_t at) except? -99

cpdef long long clamped(long long value) noexcept

@cython.locals(low=cython.longlong, high=cython.longlong)
cpdef long long wrapped_sum(long long one, long long other) noexcept

cpdef long long increment_sequence(long long sequence, long long increment) noexcept

@cython.locals(row=cython.Py_ssize_t, size=cython.longlong, magic=cython.longlong)
cpdef Py_ssize_t frame(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t file_shift, long long max_size,
    BatchColumns batches
) except -1

cdef int check_bounds(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) except -1

cpdef long long smallest_size(long long magic) noexcept

@cython.locals(offset=cython.longlong)
cpdef int read_header(
    const unsigned char[::1] data, Py_ssize_t at, long long size, long long magic, BatchColumns batches, Py_ssize_t row
) except -1

cpdef long long batch_crc(const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t end, long long magic) except -1

@cython.locals(row=cython.Py_ssize_t, at=cython.Py_ssize_t)
cpdef Py_ssize_t check_crcs(const unsigned char[::1] view, BatchColumns batches) except -1

@cython.locals(
    magic=cython.longlong, size=cython.longlong, attributes=cython.longlong, delta=cython.longlong,
    count=cython.longlong, key_at=cython.Py_ssize_t, key_size=cython.longlong, rest=cython.longlong,
    value_at=cython.Py_ssize_t, value_size=cython.longlong,
)
cpdef bint plausible(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, long long max_size) except -1

cpdef Py_ssize_t find_signature(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, long long max_size
) except -1

@cython.locals(raw=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
cpdef (unsigned long long, Py_ssize_t) finish_varint(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, unsigned long long first, int last_shift
) except *
