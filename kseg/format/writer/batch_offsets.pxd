# C types for batch_offsets.py.

cimport cython

from kseg.format.record.columns cimport BatchColumns, RecordColumns
from kseg.format.record.framing cimport clamped

cdef long long BAD, MAX_SPAN


@cython.locals(row=cython.Py_ssize_t)
cpdef long long check_offsets_in_batch(
    BatchColumns batches, RecordColumns records, Py_ssize_t first, Py_ssize_t stop, long long last_offset, list faults
) except? -99

cpdef long long first_offset(BatchColumns batches, RecordColumns records, Py_ssize_t row) except? -99

@cython.locals(
    low=cython.longlong, high=cython.longlong, first=cython.Py_ssize_t, total=cython.longlong, index=cython.Py_ssize_t,
)
cdef long long check_batch_offsets(
    BatchColumns batches, RecordColumns records, Py_ssize_t row, long long last_offset, list faults
) except? -99
