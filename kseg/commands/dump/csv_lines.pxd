# C types for csv_lines.py.

cimport cython

from kseg.commands.dump.line_writer cimport (
    Layout, LineBuffer, number_of, put_base64, put_headers, put_hex, put_piece, room_of
)
from kseg.format.record.columns cimport BatchColumns, RecordColumns
from kseg.format.record.memory cimport copy_bytes, is_ascii, is_utf8, put_number

cdef long long TIMESTAMP, KEY, VALUE, HEADERS, NOTHING, KEY_ENCODING, VALUE_ENCODING, UTF8, AUTO, HEX, NO_TIMESTAMP
cdef long long MAX_HEADERS, DOUBLED
cdef unsigned char QUOTE, APOSTROPHE, PLUS, MINUS
cdef const unsigned char[::1] SPECIAL, IS_START, IS_AFTER_PLUS, IS_AFTER_MINUS, NOTE

@cython.locals(
    out="unsigned char[::1]", i=cython.Py_ssize_t, at=cython.Py_ssize_t, count=cython.longlong, room=cython.longlong
)
cpdef write_csv_lines(
    LineBuffer lines, Layout layout, Layout json, BatchColumns batches, Py_ssize_t row, RecordColumns records,
    const unsigned char[::1] data, Py_ssize_t first, Py_ssize_t stop, other
)

@cython.locals(n=cython.Py_ssize_t, cell=cython.longlong)
cdef Py_ssize_t put_csv_line(
    unsigned char[::1] out, Py_ssize_t at, Layout layout, Layout json, BatchColumns batches, Py_ssize_t row,
    RecordColumns records, Py_ssize_t i, const unsigned char[::1] data
) except -2

@cython.locals(text=cython.bint)
cdef Py_ssize_t put_content(
    unsigned char[::1] out, Py_ssize_t at, Layout layout, const unsigned char[::1] data, Py_ssize_t first,
    long long size, bint content
) except -2

@cython.locals(
    begin=cython.size_t, i=cython.size_t, end=cython.size_t, byte="unsigned char", special=cython.uint,
    formula=cython.bint,
)
cdef Py_ssize_t put_cell(
    unsigned char[::1] out, size_t at, const unsigned char[::1] data, size_t first, size_t size
) except -2

@cython.locals(i=cython.size_t, allowed="const unsigned char[::1]")
cdef bint is_formula(const unsigned char[::1] data, size_t first, size_t size) except -1

@cython.locals(
    begin=cython.Py_ssize_t, end=cython.Py_ssize_t, after=cython.Py_ssize_t, i=cython.Py_ssize_t, quotes=cython.Py_ssize_t,
    quoted=cython.bint,
)
cdef Py_ssize_t put_json_headers(
    unsigned char[::1] out, Py_ssize_t at, Layout json, const unsigned char[::1] data, Py_ssize_t first, long long count
) except -2
