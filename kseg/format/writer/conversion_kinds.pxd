# C types for conversion_kinds.py.

cimport cython

from kseg.format.record.columns cimport BatchColumns, RecordColumns

cdef long long CODEC_MASK, CONTROL, NO_TIMESTAMP, CRC_BAD
cdef int SKIPPED, COPIED, DROPPED, UNPACKED, COMPRESSED, DESELECTED

@cython.locals(magic=cython.longlong, attributes=cython.longlong)
cpdef int classify(BatchColumns batches, Py_ssize_t row, long long target, bint copies) except -1

@cython.locals(kind=cython.int, magic=cython.longlong)
cpdef (int, Py_ssize_t) classify_run(
    BatchColumns batches, Py_ssize_t row, Py_ssize_t stop, long long target, bint copies
) except *

@cython.locals(size=cython.longlong)
cpdef long long count_codecs(BatchColumns batches, Py_ssize_t row, Py_ssize_t stop, list counts) except -1

@cython.locals(timed=cython.longlong, i=cython.Py_ssize_t)
cpdef long long count_timed(RecordColumns records, Py_ssize_t first, Py_ssize_t stop) except -1
