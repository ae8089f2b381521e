cimport cython
from kseg.format.checks.batch_checks cimport CheckState
from kseg.format.record.columns cimport BatchColumns
from kseg.format.record.framing cimport clamped
from kseg.format.record.offset_evidence cimport base_offset_proved_wrong, is_wrapper, span_of
from kseg.format.record.offset_evidence cimport BoundedMap
from kseg.format.record.framing cimport clamped, increment_sequence

# C types for offset_checks.py.

cdef long long CODEC_MASK, REACH, LARGE_JUMP

@cython.locals(
    row=cython.Py_ssize_t, wrapper=cython.bint, first=cython.longlong, last=cython.longlong, previous=cython.longlong,
    name=cython.longlong, span=cython.longlong, deep=cython.bint, begun=cython.bint,
)
cpdef check_offsets(BatchColumns batches, settings, CheckState state, report)

@cython.locals(far=cython.longlong)
cdef bint _is_passed_over(
    BatchColumns batches, Py_ssize_t row, long long first, long long last, long long previous, bint begun,
    CheckState state, report
) except -1

@cython.locals(position=cython.longlong, wrapper=cython.bint)
cdef _check_step(
    BatchColumns batches, Py_ssize_t row, long long first, long long last, long long span, long long previous, settings,
    CheckState state, report
)

@cython.locals(last=cython.longlong)
cdef bint _is_disproved_within(BatchColumns batches, Py_ssize_t row, long long previous) except -1

@cython.locals(following=cython.longlong)
cdef bint _is_left_out(
    BatchColumns batches, Py_ssize_t row, long long first, long long previous, CheckState state, report
) except -1

@cython.locals(row=cython.Py_ssize_t, base=cython.longlong)
cpdef check_offset_range(BatchColumns batches, settings, CheckState state, report)

@cython.locals(first=cython.longlong, last=cython.longlong, following=cython.Py_ssize_t)
cpdef bint is_overflow(BatchColumns batches, Py_ssize_t row, long long previous) except -1

@cython.locals(row=cython.Py_ssize_t, name=cython.longlong, last=cython.longlong)
cpdef check_file_name(BatchColumns batches, settings, CheckState state, report)

cdef long long CONTROL, TRANSACTIONAL, LIMIT

@cython.locals(row=cython.Py_ssize_t)
cpdef check_producers(BatchColumns batches, settings, CheckState state, report)

cdef str _producer_contradiction(BatchColumns batches, Py_ssize_t row)

@cython.locals(
    producer_id=cython.longlong, epoch=cython.longlong, sequence=cython.longlong, control=cython.bint,
    newest=cython.longlong, last=cython.longlong, known_epoch=cython.longlong, expected=cython.longlong,
    gaps=cython.longlong, ended=cython.bint, coordinator=cython.bint,
)
cdef _check_sequence(BatchColumns batches, Py_ssize_t row, bint compacted, CheckState state, report)
