# C types for varints.py.

cimport cython


@cython.locals(raw=cython.ulonglong, byte=cython.ulonglong, shift=cython.int)
cpdef (unsigned long long, Py_ssize_t) finish_varint(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, unsigned long long first, int last_shift
) except *
