# C types for line_writer.py. Names and meanings stand there; nothing is implemented here.

cimport cython

from kseg.format.record.encoder cimport headers_end
from kseg.format.record.columns cimport BatchColumns, RecordColumns
from kseg.format.record.framing cimport increment_sequence
from kseg.format.record.default_records cimport header_field
from kseg.format.record.memory cimport copy_bytes, decode_point, is_ascii, put_number

cdef long long NO_TIMESTAMP, MAX_HEADERS
cdef long long POSITION, OFFSET, TIMESTAMP, SEQUENCE, KEY_SIZE, VALUE_SIZE, PRODUCER_ID, PRODUCER_EPOCH, LEADER_EPOCH
cdef long long KEY, VALUE, HEADERS, NOTHING
cdef long long UTF8, AUTO, HEX, BASE64, GROWTH
cdef Py_ssize_t _LONG
cdef const unsigned char[::1] _HEX_DIGITS, _BASE64_DIGITS

cdef class Escapes:
    cdef readonly bint verbatim
    cdef readonly list codes
    cdef readonly const unsigned char[::1] marked

cdef class Layout:
    cdef const unsigned char[::1] text, marked
    cdef unsigned int codes[256]  # looked up by a byte, which needs no check
    cdef long long[::1] ends, cells
    cdef Py_ssize_t count, header_at, notes_at, null_at
    cdef bint header_values, leaves_out, verbatim
    cdef readonly long long encoding
    cdef long long room, header_room
    cdef unsigned char quote

cdef class LineBuffer:
    cdef readonly object sink
    cdef readonly Py_ssize_t capacity, at
    cdef unsigned char[::1] data

    cpdef flush(self)
    cpdef extend_line(self, const unsigned char[::1] text, const unsigned char[::1] end)
    cpdef put(self, text)

@cython.locals(
    out="unsigned char[::1]", i=cython.Py_ssize_t, at=cython.Py_ssize_t, header_count=cython.longlong,
    room=cython.longlong,
)
cpdef write_lines(
    LineBuffer lines, Layout layout, BatchColumns batches, Py_ssize_t row, RecordColumns records,
    const unsigned char[::1] data, Py_ssize_t first, Py_ssize_t stop, other
)

@cython.locals(key_size=cython.longlong, value_size=cython.longlong, bytes_of=cython.longlong)
cpdef long long room_of(Layout layout, RecordColumns records, Py_ssize_t i, const unsigned char[::1] data) except -1

@cython.locals(
    n=cython.Py_ssize_t, cell=cython.longlong, first=cython.Py_ssize_t, size=cython.longlong,
)
cdef Py_ssize_t put_line(
    unsigned char[::1] out, Py_ssize_t at, Layout layout, BatchColumns batches, Py_ssize_t row,
    RecordColumns records, Py_ssize_t i, const unsigned char[::1] data
) except -2

@cython.locals(sequence=cython.longlong)
cpdef long long number_of(
    long long cell, BatchColumns batches, Py_ssize_t row, RecordColumns records, Py_ssize_t i
) except? -2

@cython.locals(n=cython.longlong, size=cython.longlong, piece=cython.Py_ssize_t)
cpdef Py_ssize_t put_headers(
    unsigned char[::1] out, Py_ssize_t at, Layout layout, const unsigned char[::1] data, Py_ssize_t first,
    long long count
) except -2

@cython.locals(first=cython.size_t, size=cython.size_t, k=cython.size_t)
cpdef Py_ssize_t put_piece(unsigned char[::1] out, size_t at, Layout layout, Py_ssize_t piece) except -2

@cython.locals(end=cython.Py_ssize_t)
cdef Py_ssize_t put_bytes(
    unsigned char[::1] out, Py_ssize_t at, Layout layout, const unsigned char[::1] data, Py_ssize_t first,
    long long size, Py_ssize_t note
) except -2

@cython.locals(
    byte="unsigned char", code=cython.uint, k=cython.size_t, point=cython.longlong, size=cython.size_t,
)
cdef Py_ssize_t put_text(
    unsigned char[::1] out, size_t at, Layout layout, const unsigned char[::1] data, size_t i, size_t end
) except -2

@cython.locals(k=cython.Py_ssize_t)
cdef Py_ssize_t put_escape(unsigned char[::1] out, Py_ssize_t at, long long point) except -2

cpdef Py_ssize_t put_hex(
    unsigned char[::1] out, Py_ssize_t at, Layout layout, const unsigned char[::1] data, Py_ssize_t i,
    Py_ssize_t end
) except -2

@cython.locals(left=cython.Py_ssize_t, bits=cython.longlong)
cpdef Py_ssize_t put_base64(
    unsigned char[::1] out, Py_ssize_t at, Layout layout, const unsigned char[::1] data, Py_ssize_t i,
    Py_ssize_t end
) except -2
