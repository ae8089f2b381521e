# C types for batch_checks.py.

cimport cython

from kseg.format.checks.check_state cimport CheckState
from kseg.format.record.columns cimport BatchColumns
from kseg.format.record.framing cimport clamped

cdef long long RESERVED_V0, RESERVED_V1, RESERVED_V2, APPEND_TIME, EPOCH_STEP


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

@cython.locals(row=cython.Py_ssize_t, epoch=cython.longlong)
cpdef check_leader_epochs(BatchColumns batches, settings, CheckState state, report)

@cython.locals(row=cython.Py_ssize_t, timestamp=cython.longlong, epoch=cython.longlong)
cpdef check_append_times(BatchColumns batches, settings, CheckState state, report)

@cython.locals(row=cython.Py_ssize_t)
cpdef check_magic_order(BatchColumns batches, settings, CheckState state, report)
