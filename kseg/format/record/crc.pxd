# C types for crc.py.

cimport cython

cimport kseg.c_functions as c_functions

cdef Py_ssize_t SHORT, TABLE_SIZE
cdef bint INSTRUCTIONS
cdef unsigned int ALL_ONES
cdef const unsigned int[::1] CRC32_TABLE, CRC32C_TABLE

@cython.locals(crcs="unsigned int[::1]", byte=cython.Py_ssize_t, crc=cython.uint, i=cython.Py_ssize_t)
cpdef table(unsigned int polynomial)

@cython.locals(crc=cython.uint)
cpdef long long crc_by_table(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, const unsigned int[::1] crcs
) except -1

cdef int check_range(Py_ssize_t size, Py_ssize_t at, Py_ssize_t end) except -1

cpdef long long crc32_of(const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t end) except -1

cpdef long long crc32c_of(const unsigned char[::1] view, Py_ssize_t at, Py_ssize_t end) except -1
