# C types for batch_rows.py.

cimport cython

from kseg.format.record.columns cimport BatchColumns
from kseg.format.record.framing cimport clamped

cdef long long BAD, CODEC


@cython.locals(row=cython.Py_ssize_t)
cpdef (bint, long long) offsets_ascend(BatchColumns batches, long long last_offset, long long ceiling) except *

cpdef Py_ssize_t first_reaching(BatchColumns batches, Py_ssize_t row, long long ceiling) except -1

@cython.locals(records=cython.longlong)
cpdef (Py_ssize_t, long long) next_faulty(BatchColumns batches, Py_ssize_t row, Py_ssize_t stop, dict found) except *

cpdef Py_ssize_t end_of_selected(BatchColumns batches, Py_ssize_t row, dict found) except -1

cpdef Py_ssize_t first_other_epoch(BatchColumns batches, Py_ssize_t row, Py_ssize_t stop, long long epoch) except -1
