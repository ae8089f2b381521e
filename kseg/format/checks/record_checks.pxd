# C types for record_checks.py.

cimport cython

from kseg.format.checks.batch_checks cimport CheckState
from kseg.format.record.columns cimport BatchColumns, RecordColumns
from kseg.format.record.framing cimport clamped
from kseg.format.record.offset_evidence cimport shows_compaction
from kseg.format.record.default_records cimport skip_headers

cdef long long CODEC_MASK, CONTROL, LOG_APPEND_TIME, NO_TIMESTAMP, TRANSACTIONAL

@cython.locals(
    batches=BatchColumns, offsets="long long[::1]", row=cython.Py_ssize_t, total=cython.longlong,
    first=cython.Py_ssize_t, last_record=cython.longlong, last=cython.longlong,
)
cpdef check_record_offsets(chunk, settings, report)

@cython.locals(
    batches=BatchColumns, offsets="long long[::1]", row=cython.Py_ssize_t, total=cython.longlong, first=cython.Py_ssize_t,
)
cpdef update_compaction_evidence(chunk, CheckState state)

@cython.locals(
    batches=BatchColumns, row=cython.Py_ssize_t, stored=cython.longlong, largest=cython.longlong, checked=cython.bint,
)
cpdef check_max_timestamps(chunk, settings, report)

@cython.locals(
    batches=BatchColumns, timestamps="long long[::1]", row=cython.Py_ssize_t, first=cython.Py_ssize_t, i=cython.Py_ssize_t,
)
cpdef check_negative_timestamps(chunk, settings, report)

@cython.locals(batches=BatchColumns, row=cython.Py_ssize_t)
cpdef check_record_attributes(chunk, settings, report)

@cython.locals(
    batches=BatchColumns, records=RecordColumns, row=cython.Py_ssize_t, key_ats="long long[::1]",
    key_sizes="long long[::1]", value_ats="long long[::1]", value_sizes="long long[::1]", i=cython.Py_ssize_t,
    data="const unsigned char[::1]", alone=cython.bint,
)
cpdef check_control_records(chunk, settings, report)

cdef bint is_marker(
    const unsigned char[::1] data, Py_ssize_t key_at, long long key_size, Py_ssize_t value_at, long long value_size
) except -1

@cython.locals(batches=BatchColumns, row=cython.Py_ssize_t)
cpdef check_header_keys(chunk, settings, report)
