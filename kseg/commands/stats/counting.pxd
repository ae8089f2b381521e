# C types for counting.py. Names and meanings stand there; nothing is implemented here.

cimport cython

from kseg.format.record.columns cimport BatchColumns, RecordColumns

cdef long long BAD, CODEC_MASK, TRANSACTIONAL, CONTROL, NO_TIMESTAMP, SECONDS_END, MICROSECONDS_BEGIN
cdef long long V0_OVERHEAD, V1_OVERHEAD, V2_OVERHEAD, HOUR_MS, EXACT_SIZES

cdef class Counts:
    cdef readonly long long[::1] batches, bytes, records, stored, inflated, unopened, sizes
    cdef public bint begun
    cdef public long long damaged, damaged_bytes, transactional, control, timeless
    cdef public long long smallest_batch, largest_batch, fewest_records, most_records
    cdef public long long first_offset, last_offset, smallest_timestamp, largest_timestamp
    cdef public long long pin_position, pin_offset, pin_producer
    cdef public long long null_keys, null_values, tombstones, key_bytes, value_bytes, headers, largest_record
    cdef public dict producers, leader_epochs, odd_timestamps, hours

cpdef Py_ssize_t group_of(BatchColumns batches, Py_ssize_t row) except -1

@cython.locals(magic=cython.longlong, overhead=cython.longlong)
cdef long long stored_payload(BatchColumns batches, Py_ssize_t row) except? -99

cdef long long records_in(BatchColumns batches, Py_ssize_t row, bint deep) except? -99

@cython.locals(
    row=cython.Py_ssize_t, group=cython.Py_ssize_t, size=cython.longlong, total=cython.longlong,
    producer=cython.longlong, producer_batches=cython.longlong, producer_bytes=cython.longlong,
    producer_records=cython.longlong, proved=cython.bint, hour=cython.longlong, hour_batches=cython.longlong,
    hour_bytes=cython.longlong, hour_records=cython.longlong, hour_of=cython.longlong,
)
cpdef count_batches(BatchColumns batches, Py_ssize_t first, Py_ssize_t stop, bint deep, set claimed, Counts counts)

cpdef add_to(dict producers, long long producer, long long batches, long long size, long long records)

cdef count_offsets(BatchColumns batches, Py_ssize_t row, long long total, Counts counts)

@cython.locals(timestamp=cython.longlong)
cdef count_timestamp(BatchColumns batches, Py_ssize_t row, bint proved, Counts counts)

cdef count_leader_epoch(BatchColumns batches, Py_ssize_t row, bint proved, Counts counts)

@cython.locals(
    row=cython.Py_ssize_t, begin=cython.Py_ssize_t, end=cython.Py_ssize_t, i=cython.Py_ssize_t,
    timestamp=cython.longlong, key_size=cython.longlong, value_size=cython.longlong, size=cython.longlong,
)
cpdef count_records(BatchColumns batches, RecordColumns records, Py_ssize_t first, Py_ssize_t stop, Counts counts)

@cython.locals(shift=cython.Py_ssize_t)
cpdef Py_ssize_t size_bucket(long long size) except -1

@cython.locals(row=cython.Py_ssize_t)
cpdef list control_record_rows(BatchColumns batches, Py_ssize_t first, Py_ssize_t stop)

@cython.locals(group=cython.Py_ssize_t)
cpdef count_payload(BatchColumns batches, Py_ssize_t row, long long inflated, Counts counts)
