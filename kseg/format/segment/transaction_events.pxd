# C types for transaction_events.py.

cimport cython

from kseg.format.record.columns cimport BatchColumns, RecordColumns

cdef long long CONTROL, TRANSACTIONAL

@cython.locals(row=cython.Py_ssize_t, members=cython.longlong)
cpdef bint has_transactions(BatchColumns batches)

@cython.locals(row=cython.Py_ssize_t, others=cython.Py_ssize_t)
cdef Py_ssize_t keep_control_batches(BatchColumns batches)

@cython.locals(row=cython.Py_ssize_t)
cpdef drop_control_batches(BatchColumns batches)

@cython.locals(batches=BatchColumns, records=RecordColumns, row=cython.Py_ssize_t, i=cython.Py_ssize_t,
    attributes=cython.longlong, key=cython.Py_ssize_t, value=cython.Py_ssize_t,
)
cpdef list chunk_events(chunk, const long long[::1] selected)
