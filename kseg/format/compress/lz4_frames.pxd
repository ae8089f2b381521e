# C types for lz4_frames.py.

cimport cython

cdef Py_ssize_t BLOCK, HEADER_SIZE
cdef unsigned long long STORED

@cython.locals(position=cython.Py_ssize_t, end=cython.Py_ssize_t, made=cython.Py_ssize_t, length=cython.ulonglong, stored=cython.ulonglong, space=cython.Py_ssize_t)
cdef Py_ssize_t _unlz4_blocks(view, const unsigned char[::1] data, room) except -2
