# C types for legacy_records.py.

cimport cython

from kseg.format.record.columns cimport BatchColumns, PartialBatch, RecordColumns
from kseg.format.record.crc cimport crc32_of
from kseg.format.record.framing cimport clamped, read_int32, read_int64, read_uint32

cdef Py_ssize_t SIZE_AT, LOG_OVERHEAD, MAGIC_AT, HEADER_SIZE_UP_TO_MAGIC, LEGACY_CRC_AT
cdef Py_ssize_t LEGACY_ATTRIBUTES_AT, V1_TIMESTAMP_AT, V0_KEY_AT, V1_KEY_AT
cdef long long MAX_FAULTS, MAX_INT64, V0_MIN_SIZE, CODEC_MASK, LOG_APPEND_TIME

@cython.locals(
    key_at=cython.Py_ssize_t, key_size=cython.longlong, value_at=cython.Py_ssize_t, value_size=cython.longlong,
    i=cython.Py_ssize_t,
)
cpdef bint split_message(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, long long magic, long long index,
    BatchColumns batches, Py_ssize_t row, RecordColumns records, list faults
) except -1

@cython.locals(at=cython.Py_ssize_t, magic=cython.longlong)
cpdef Py_ssize_t split_messages(
    const unsigned char[::1] data, BatchColumns batches, Py_ssize_t row, Py_ssize_t room, RecordColumns records,
    list faults
) except -1

@cython.locals(
    at=cython.Py_ssize_t, end=cython.Py_ssize_t, index=cython.longlong, first=cython.Py_ssize_t, size=cython.longlong,
    magic=cython.longlong, stop=cython.Py_ssize_t, stop_index=cython.longlong, begin=cython.longlong, disorder=cython.longlong,
    final=cython.bint, hungry=cython.bint, broken=cython.bint, faulty=cython.longlong, left_out=cython.longlong,
    inner_codec=cython.longlong, stored=cython.longlong, computed=cython.longlong,
    shift=cython.longlong, whole=cython.bint,
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
