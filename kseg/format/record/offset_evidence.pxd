cimport cython
from kseg.format.record.columns cimport BatchColumns
from kseg.format.record.framing cimport clamped

# C types for offset_evidence.py.

cdef long long CODEC_MASK, LARGE_JUMP, DELETE_HORIZON

@cython.locals(
    first=cython.longlong, span=cython.longlong, following=cython.Py_ssize_t, behind=cython.Py_ssize_t
)
cpdef bint base_offset_proved_wrong(BatchColumns batches, Py_ssize_t row, long long previous, bint opened) except -1

@cython.locals(first=cython.longlong)
cpdef long long span_of(BatchColumns batches, Py_ssize_t row, bint opened) except -2

@cython.locals(span=cython.longlong)
cdef bint _begins_at(BatchColumns batches, Py_ssize_t row, long long offset, bint opened) except -1

cpdef bint is_wrapper(BatchColumns batches, Py_ssize_t row) except -1
cpdef bint shows_compaction(BatchColumns batches, Py_ssize_t row) except -1

cdef Py_ssize_t FULL

cdef class BoundedMap:
    cdef public dict young, old
    cdef public bint forgot

    cpdef get(self, number)
    cpdef put(self, number, value)
    cpdef drop(self, number)
    cpdef forget(self)
    cpdef dict all(self)
    cpdef BoundedMap copy(self)
