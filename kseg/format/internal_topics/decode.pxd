# C types for decode.py.

cimport cython

from kseg.format.messages.message_reader cimport Cursor, StructureReader, append_json
from kseg.format.record.columns cimport RecordColumns

cdef class DecodedPart:
    cdef readonly object type, name, version, data, raw, fault

    @cython.locals(start=cython.Py_ssize_t)
    cdef append_json(self, list parts)

cdef class DecodedRecord:
    cdef readonly DecodedPart key, value

    @cython.locals(parts=list)
    cpdef str as_json(self)

cdef class RecordType:
    cdef readonly long long number
    cdef readonly str name
    cdef str _topic, _message
    cdef StructureReader _key
    cdef dict _readers

    cdef key(self, Cursor cursor)
    cdef value(self, long long version, Cursor cursor)
    cdef StructureReader _reader(self, str message, long long version)

cdef _load_fault(RecordType kind, dict data)

cdef class RecordsDecoder:
    cdef str _topic
    cdef Cursor _key, _value

    @cython.locals(key_size=cython.Py_ssize_t, value_size=cython.Py_ssize_t)
    cpdef DecodedRecord decode(self, RecordColumns records, Py_ssize_t i)

    cpdef Py_ssize_t first_fault(self, RecordColumns records, Py_ssize_t first, Py_ssize_t stop) except -1

@cython.locals(types=dict, first=DecodedPart, part=DecodedPart, kind=RecordType)
cdef DecodedRecord _decoded(str topic, Cursor key, Cursor value)

@cython.locals(part=DecodedPart, kind=cython.longlong, found=RecordType)
cdef DecodedPart _key(dict types, Cursor cursor)

@cython.locals(part=DecodedPart)
cdef DecodedPart _value(RecordType kind, Cursor cursor)

@cython.locals(part=DecodedPart, frame=cython.longlong, kind=cython.longlong, version=cython.longlong, found=RecordType)
cdef DecodedPart _framed(str topic, dict types, Cursor cursor)

cdef DecodedPart _with_stored(DecodedPart part, Cursor cursor)
