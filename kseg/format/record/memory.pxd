cimport cython
cimport kseg.c_functions as c_functions
from kseg.format.record.columns cimport RecordColumns

# C types for memory.py.

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

cdef bint BY_THE_BYTE

cdef class Needle:
    cdef const unsigned char[::1] text, masks
    cdef Py_ssize_t size, first, second
    cdef bint ignore_case

cdef class ByteClasses:
    cdef const unsigned long long[::1] begins, continues
    cdef unsigned long long last

@cython.locals(
    first=cython.Py_ssize_t, second=cython.Py_ssize_t, x=cython.uchar, x_mask=cython.uchar, y=cython.uchar,
    y_mask=cython.uchar, stop=cython.Py_ssize_t, least=cython.uchar, difference=cython.uchar, n=cython.Py_ssize_t,
)
cpdef Py_ssize_t find(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, Needle needle) except -2

@cython.locals(
    begins="const unsigned long long[::1]", continues="const unsigned long long[::1]", last=cython.ulonglong,
    state=cython.ulonglong, byte=cython.uchar,
)
cpdef Py_ssize_t find_classes(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, ByteClasses classes) except -2

@cython.locals(different=cython.uchar, n=cython.Py_ssize_t)
cdef bint matches_at(const unsigned char[::1] data, Py_ssize_t at, Needle needle) noexcept

@cython.locals(
    last=cython.Py_ssize_t, stop=cython.Py_ssize_t, n=cython.Py_ssize_t, least=cython.uchar, bits=cython.uchar,
    filled=cython.uchar, no_size=cython.uchar, no_magic=cython.uchar,
)
cpdef Py_ssize_t find_header_bytes(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) except -2

@cython.locals(
    key_at="long long[::1]", row=cython.Py_ssize_t, at=cython.Py_ssize_t, after=cython.Py_ssize_t,
    middle=cython.Py_ssize_t,
)
cpdef records_with(
    const unsigned char[::1] data, Py_ssize_t end, needle, RecordColumns records, Py_ssize_t first,
    Py_ssize_t stop, list found
)
