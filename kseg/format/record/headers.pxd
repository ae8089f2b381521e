# C types for headers.py.

cimport cython

from kseg.format.record.memory cimport is_utf8
from kseg.format.record.varints cimport finish_varint


@cython.locals(
    valid=cython.bint, byte=cython.ulonglong, size=cython.longlong, key_at=cython.Py_ssize_t, end=cython.Py_ssize_t,
    bits=cython.uint,
)
cpdef (Py_ssize_t, bint) skip_headers(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t stop, long long count
) except *

@cython.locals(byte=cython.ulonglong, size=cython.longlong)
cpdef (long long, Py_ssize_t) header_field(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t stop) except *

cdef int check_range(Py_ssize_t size, Py_ssize_t at, Py_ssize_t stop) except -1
