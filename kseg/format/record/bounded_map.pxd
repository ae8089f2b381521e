# C types for recent.py.

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
