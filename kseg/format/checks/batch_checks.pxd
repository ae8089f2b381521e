# C types for checks.py.

cimport cython

from kseg.format.record.framing cimport BatchColumns, clamped, increment_sequence
from kseg.format.record.offset_evidence cimport base_offset_proved_wrong
from kseg.format.record.bounded_map cimport BoundedMap

cdef long long CODEC, CONTROL_BIT, TRANSACTIONAL_BIT, RESERVED_V0, RESERVED_V1, RESERVED_V2, REACH, APPEND_TIME, MOST


cdef class CheckState:
    cdef public bint begun, misnamed, keyless, thinned
    cdef public long long end, last_offset, highest_offset, gaps, next_offset, leader_epoch, magic, base, last_opened, first_opened
    cdef public long long first_leader_epoch
    cdef public long long append_time, append_epoch, first_append_time, first_append_epoch
    cdef public BoundedMap producers
    cdef public dict first_producers
    cdef public set misplaced


@cython.locals(
    row=cython.Py_ssize_t, wrapper=cython.bint, first=cython.longlong, last=cython.longlong, previous=cython.longlong,
    name=cython.longlong,
)
cpdef check_offsets(BatchColumns batches, limits, CheckState history, report)

@cython.locals(row=cython.Py_ssize_t, base=cython.longlong)
cpdef check_offset_range(BatchColumns batches, limits, CheckState history, report)

@cython.locals(row=cython.Py_ssize_t, name=cython.longlong, last=cython.longlong)
cpdef check_file_name(BatchColumns batches, limits, CheckState history, report)

@cython.locals(row=cython.Py_ssize_t, limit=cython.longlong)
cpdef check_size(BatchColumns batches, limits, CheckState history, report)

@cython.locals(row=cython.Py_ssize_t, base=cython.longlong, delta=cython.longlong, count=cython.longlong, deep=cython.bint)
cpdef check_counts(BatchColumns batches, limits, CheckState history, report)

@cython.locals(row=cython.Py_ssize_t, magic=cython.longlong, mask=cython.longlong, bits=cython.longlong)
cpdef check_attributes(BatchColumns batches, limits, CheckState history, report)

@cython.locals(
    row=cython.Py_ssize_t, future=cython.longlong, seconds_begin=cython.longlong, seconds_end=cython.longlong,
    timestamp=cython.longlong,
)
cpdef check_timestamps(BatchColumns batches, limits, CheckState history, report)

@cython.locals(row=cython.Py_ssize_t, epoch=cython.longlong)
cpdef check_leader_epochs(BatchColumns batches, limits, CheckState history, report)

@cython.locals(row=cython.Py_ssize_t, timestamp=cython.longlong, epoch=cython.longlong)
cpdef check_append_times(BatchColumns batches, limits, CheckState history, report)

@cython.locals(row=cython.Py_ssize_t)
cpdef check_magic_order(BatchColumns batches, limits, CheckState history, report)

@cython.locals(row=cython.Py_ssize_t)
cpdef check_producers(BatchColumns batches, limits, CheckState history, report)

cdef str _producer_contradiction(BatchColumns batches, Py_ssize_t row)

@cython.locals(
    producer_id=cython.longlong, epoch=cython.longlong, sequence=cython.longlong, control=cython.bint,
    newest=cython.longlong, last=cython.longlong, known_epoch=cython.longlong, expected=cython.longlong,
    gaps=cython.longlong, ended=cython.bint, coordinator=cython.bint,
)
cdef _check_sequence(BatchColumns batches, Py_ssize_t row, bint compacted, CheckState history, report)
