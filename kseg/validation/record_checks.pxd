# C types for record_checks.py.

cimport cython

from kseg.validation.checks cimport History
from kseg.format.kernel cimport BatchColumns, clamped

cdef long long BAD, CODEC, CONTROL_BIT, APPEND_TIME


@cython.locals(
    batches=BatchColumns, offsets="long long[::1]", row=cython.Py_ssize_t, total=cython.longlong,
    first=cython.Py_ssize_t, last_record=cython.longlong, last=cython.longlong,
)
cpdef check_record_offsets(chunk, limits, report)

@cython.locals(batches=BatchColumns, row=cython.Py_ssize_t, stored=cython.longlong, largest=cython.longlong)
cpdef check_max_timestamps(chunk, limits, report)

@cython.locals(batches=BatchColumns, row=cython.Py_ssize_t)
cpdef check_record_attributes(chunk, limits, report)

@cython.locals(batches=BatchColumns, row=cython.Py_ssize_t)
cpdef check_control_records(chunk, limits, report)

@cython.locals(batches=BatchColumns, row=cython.Py_ssize_t)
cpdef check_header_keys(chunk, limits, report)

@cython.locals(
    batches=BatchColumns, offsets="long long[::1]", row=cython.Py_ssize_t, previous=cython.longlong,
    last=cython.longlong, first=cython.longlong,
)
cpdef check_wrapper_order(chunk, History history, report)
