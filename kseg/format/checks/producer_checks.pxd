# C types for producer_checks.py.

cimport cython

from kseg.format.checks.check_state cimport CheckState
from kseg.format.record.bounded_map cimport BoundedMap
from kseg.format.record.columns cimport BatchColumns
from kseg.format.record.framing cimport clamped, increment_sequence

cdef long long CONTROL_BIT, TRANSACTIONAL_BIT, MOST


@cython.locals(row=cython.Py_ssize_t)
cpdef check_producers(BatchColumns batches, settings, CheckState state, report)

cdef str _producer_contradiction(BatchColumns batches, Py_ssize_t row)

@cython.locals(
    producer_id=cython.longlong, epoch=cython.longlong, sequence=cython.longlong, control=cython.bint,
    newest=cython.longlong, last=cython.longlong, known_epoch=cython.longlong, expected=cython.longlong,
    gaps=cython.longlong, ended=cython.bint, coordinator=cython.bint,
)
cdef _check_sequence(BatchColumns batches, Py_ssize_t row, bint compacted, CheckState state, report)
