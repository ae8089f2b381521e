# C types for json_text.py.

cimport cython

from kseg.format.record.columns cimport RecordColumns
from kseg.format.record.memory cimport put_number

cdef long long TEXT, NUMBER, BOOL, UUID, STRING, BYTES, ITEMS, STRUCTURE, TAGS
cdef Py_ssize_t CAPACITY, _SHORT
cdef const unsigned char[::1] _DIGITS, _URL_SAFE, _NULL, _TRUE, _FALSE, _BRACKETS, _COMMA

cdef class JsonProgram:
    cdef readonly list words
    cdef readonly str pieces
    cdef const long long[::1] steps
    cdef readonly Py_ssize_t count
    cdef const unsigned char[::1] text

cdef class JsonText:
    cdef unsigned char[::1] out
    cdef public Py_ssize_t at
    cdef Py_ssize_t position

    @cython.locals(at=cython.Py_ssize_t, size=cython.longlong, programs=tuple, values=dict, kind=cython.longlong)
    cpdef bint write_record(
        self, dict kinds, const unsigned char[::1] data, RecordColumns records, Py_ssize_t i
    ) except -1

    cpdef Py_ssize_t first_unwritten(
        self, dict kinds, const unsigned char[::1] data, RecordColumns records, Py_ssize_t first, Py_ssize_t stop
    ) except -1

    cpdef bint write(self, JsonProgram program, const unsigned char[::1] data, Py_ssize_t first, Py_ssize_t end) except -1

    @cython.locals(kind=cython.longlong, first=cython.longlong, second=cython.longlong)
    cdef bint run(
        self, JsonProgram program, const unsigned char[::1] data, Py_ssize_t end, Py_ssize_t step, Py_ssize_t stop
    ) except -1

    @cython.locals(value=cython.longlong, half=cython.longlong, n=cython.Py_ssize_t)
    cdef long long number(
        self, const unsigned char[::1] data, Py_ssize_t end, Py_ssize_t size, bint signed
    ) except? -99

    @cython.locals(value=cython.longlong, byte=cython.longlong, n=cython.int)
    cdef long long length(
        self, const unsigned char[::1] data, Py_ssize_t end, Py_ssize_t size, bint nullable
    ) except? -99

    @cython.locals(n=cython.Py_ssize_t)
    cdef bint put(self, const unsigned char[::1] text, Py_ssize_t first, Py_ssize_t size) except -1

    cdef bint put_number(self, long long value) except -1

    @cython.locals(at=cython.Py_ssize_t, n=cython.Py_ssize_t, byte=cython.uchar)
    cdef bint put_sized(
        self, const unsigned char[::1] data, Py_ssize_t end, long long kind, Py_ssize_t size
    ) except -1

    @cython.locals(at=cython.Py_ssize_t)
    cdef bint put_fixed(self, const unsigned char[::1] data, Py_ssize_t end, long long kind) except -1

    @cython.locals(n=cython.Py_ssize_t)
    cdef bint put_items(
        self, JsonProgram program, const unsigned char[::1] data, Py_ssize_t end, Py_ssize_t step, Py_ssize_t stop,
        Py_ssize_t count
    ) except -1

    @cython.locals(to=cython.Py_ssize_t, left=cython.Py_ssize_t, bits=cython.longlong)
    cdef bint put_base64(
        self, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size, const unsigned char[::1] digits, bint padded
    ) except -1
