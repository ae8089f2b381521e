cimport cython
from kseg.format.record.columns cimport BatchColumns, RecordColumns
from kseg.format.record.framing cimport clamped

# C types for rewritten_rows.py.

cdef long long CRC_BAD, INT32_MAX, CODEC_MASK, CONTROL, NO_TIMESTAMP

@cython.locals(row=cython.Py_ssize_t)
cpdef long long check_offsets_in_batch(
    BatchColumns batches, RecordColumns records, Py_ssize_t first, Py_ssize_t stop, long long last_offset, list faults
) except? -99

cpdef long long first_offset(BatchColumns batches, Py_ssize_t row) except? -99

@cython.locals(
    low=cython.longlong, high=cython.longlong, first=cython.Py_ssize_t, total=cython.longlong, index=cython.Py_ssize_t,
)
cdef long long check_batch_offsets(
    BatchColumns batches, RecordColumns records, Py_ssize_t row, long long last_offset, list faults
) except? -99

@cython.locals(row=cython.Py_ssize_t)
cpdef (bint, long long) offsets_ascend(BatchColumns batches, long long last_offset, long long ceiling) except *

cpdef Py_ssize_t first_reaching(BatchColumns batches, Py_ssize_t row, long long ceiling) except -1

@cython.locals(records=cython.longlong)
cpdef (Py_ssize_t, long long) next_faulty(BatchColumns batches, Py_ssize_t row, Py_ssize_t stop, dict found) except *

cpdef Py_ssize_t end_of_selected(BatchColumns batches, Py_ssize_t row, dict found) except -1

cpdef Py_ssize_t first_other_epoch(BatchColumns batches, Py_ssize_t row, Py_ssize_t stop, long long epoch) except -1

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
