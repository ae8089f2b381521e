# C types for message_reader.py.

cimport cython
cimport kseg.c_functions as c_functions

cdef bint COMPILED
cdef long long _VARINT_BYTES, MAX_ITEMS
cdef int INT, UINT, BOOL, DOUBLE, UUID, STRING, BYTES, RECORDS, STRUCTURE

cdef class Cursor:
    cdef const unsigned char[::1] data
    cdef readonly bint in_place
    cdef public bint discards
    cdef public Py_ssize_t at
    cdef Py_ssize_t first, end
    cdef long long items

    cpdef move(self, Py_ssize_t first, Py_ssize_t end)
    cpdef bytes stored(self)

    @cython.locals(at=cython.Py_ssize_t)
    cdef Py_ssize_t skip(self, Py_ssize_t size) except -1

    cpdef bytes read_bytes(self, Py_ssize_t size)

    @cython.locals(at=cython.Py_ssize_t, value=cython.longlong, half=cython.longlong, n=cython.Py_ssize_t)
    cpdef long long number(self, int size, bint signed) except? -99

    cpdef long long int16(self) except? -99

    @cython.locals(value=cython.longlong, shift=cython.int, byte=cython.uchar, low=cython.longlong)
    cpdef long long uvarint(self) except? -99

    @cython.locals(length=cython.longlong)
    cdef long long length(self, int size, bint flexible, bint nullable) except -2

    cdef count(self, long long items)

cdef class StructureReader:
    cdef list order
    cdef readonly list fields
    cdef readonly dict tagged
    cdef readonly bint flexible

    @cython.locals(message=dict, field=FieldReader)
    cpdef dict read(self, Cursor cursor)

    @cython.locals(count=cython.longlong, tag=cython.longlong, field=FieldReader, own=Cursor)
    cdef long long _read_tags(self, Cursor cursor, dict message) except -1

cdef class FieldReader:
    cdef readonly str name
    cdef readonly object tag
    cdef readonly str type
    cdef readonly bint tagged, flexible, nullable, array
    cdef readonly int size
    cdef readonly StructureReader structure
    cdef int kind

    @cython.locals(count=cython.longlong)
    cdef object read(self, Cursor cursor)

    @cython.locals(kind=cython.int, length=cython.longlong, number=cython.longlong)
    cdef object item(self, Cursor cursor, bint nullable)

@cython.locals(at=cython.Py_ssize_t)
cdef object _content(Cursor cursor, int kind, Py_ssize_t size)

cpdef append_json(list parts, node)

@cython.locals(before=str, name=str)
cdef _append_object(list parts, dict node)
