from kseg.format.record.offset_evidence cimport BoundedMap
from kseg.format.record.columns cimport BatchColumns
cimport cython
from kseg.format.record.framing cimport clamped

# C types for batch_checks.py.

cdef class CheckState:
    cdef public bint begun, misnamed, keyless, thinned, is_lone_epoch, epochs_fall, overflows
    cdef public long long earlier_epoch, epoch_position, epoch_end, epoch_first, epoch_last
    cdef public long long end, last_offset, highest_offset, gaps, next_offset, leader_epoch, magic, base, first_opened
    cdef public long long wrapper_gaps, last_in_range
    cdef public list before_wrappers
    cdef public long long first_leader_epoch, first_magic
    cdef public long long append_time, append_epoch, first_append_time, first_append_epoch
    cdef public BoundedMap producers
    cdef public dict first_producers
    cdef public set misplaced
    cdef public set claimed

cdef _finding(str rule, BatchColumns batches, Py_ssize_t row, dict facts)

cdef long long V0_RESERVED, V1_RESERVED, V2_RESERVED, LOG_APPEND_TIME

@cython.locals(row=cython.Py_ssize_t, limit=cython.longlong)
cpdef check_size(BatchColumns batches, settings, CheckState state, report)

@cython.locals(row=cython.Py_ssize_t, base=cython.longlong, delta=cython.longlong, count=cython.longlong, deep=cython.bint)
cpdef check_counts(BatchColumns batches, settings, CheckState state, report)

@cython.locals(row=cython.Py_ssize_t, magic=cython.longlong, mask=cython.longlong, bits=cython.longlong)
cpdef check_attributes(BatchColumns batches, settings, CheckState state, report)

@cython.locals(
    row=cython.Py_ssize_t, future=cython.longlong, seconds_begin=cython.longlong, seconds_end=cython.longlong,
    timestamp=cython.longlong,
)
cpdef check_timestamps(BatchColumns batches, settings, CheckState state, report)

@cython.locals(row=cython.Py_ssize_t, epoch=cython.longlong, step=cython.longlong)
cpdef check_leader_epochs(BatchColumns batches, settings, CheckState state, report)

@cython.locals(row=cython.Py_ssize_t, timestamp=cython.longlong, epoch=cython.longlong)
cpdef check_append_times(BatchColumns batches, settings, CheckState state, report)

@cython.locals(row=cython.Py_ssize_t)
cpdef check_magic_order(BatchColumns batches, settings, CheckState state, report)
