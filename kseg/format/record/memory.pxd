# C types for memory.py.

cimport cython

cimport kseg.format.record.c_functions as c_functions

cdef bint BY_THE_BYTE

cdef int check(Py_ssize_t end, Py_ssize_t at, Py_ssize_t size) except -1

cpdef bint equal_bytes(
    const unsigned char[::1] left, Py_ssize_t a, const unsigned char[::1] right, Py_ssize_t b, Py_ssize_t size
) except -1

@cython.locals(bits=cython.uchar, n=cython.Py_ssize_t)
cpdef bint is_ascii(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size) except -1

@cython.locals(end=cython.Py_ssize_t, point=cython.longlong)
cpdef bint is_utf8(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size) except -1

@cython.locals(byte=cython.longlong, size=cython.Py_ssize_t, point=cython.longlong, k=cython.Py_ssize_t)
cpdef long long decode_point(const unsigned char[::1] data, Py_ssize_t i, Py_ssize_t end) except -2

cpdef Py_ssize_t copy_bytes(
    unsigned char[::1] out, Py_ssize_t at, const unsigned char[::1] data, Py_ssize_t first, Py_ssize_t size
) except -1

@cython.locals(raw=cython.ulonglong, bound=cython.ulonglong, end=cython.Py_ssize_t)
cpdef Py_ssize_t put_number(unsigned char[::1] out, Py_ssize_t at, long long value) except -1
