# C types for segment_facts.py.

cimport cython

from kseg.format.record.columns cimport BatchColumns
from kseg.format.record.framing cimport clamped, increment_sequence
from kseg.format.record.offset_evidence cimport BoundedMap, shows_compaction

cdef long long CRC_BAD, CODEC_MASK, CONTROL, TRANSACTIONAL, INT64_MAX, NO_TIMESTAMP, LIMIT

cdef class FactsCollector:
    cdef object _offsets, _times
    cdef long long[::1] _offset_column, _position_column, _timestamp_column, _time_offset_column
    cdef public Py_ssize_t offset_row, time_row
    cdef Py_ssize_t _offset_rows, _time_rows
    cdef long long _offset_due, _time_due
    cdef long long _entry_offset, _entry_largest, _earlier_offset, _earlier_largest
    cdef public bint has_batches, thinned, wrapped, wrapped_start, untimed, disorder, damaged, transactional, crowded, intact_start
    cdef public long long first_offset, last_offset, largest_timestamp, indexed_timestamp, end, gaps
    cdef public list epochs, missing
    cdef bint _joined
    cdef long long _claimed_first, _claimed_last
    cdef long long _tail_position, _tail_first, _tail_last, _tail_before
    cdef long long _epoch, _epoch_first, _epoch_last
    cdef public dict first_batches, open, ended
    cdef public BoundedMap producers
    cdef long long _producer_id, _producer_epoch, _last_sequence, _producer_last, _offset_delta

    @cython.locals(row=cython.Py_ssize_t, position=cython.longlong, end=cython.longlong, last=cython.longlong)
    cpdef bint update(self, BatchColumns batches, set misplaced) except -1

    @cython.locals(highest=cython.longlong)
    cdef _match_offset_index(self, long long position, long long end)

    cdef _next_offset_entries(self)

    @cython.locals(before=cython.longlong, latest=cython.longlong, stored=cython.longlong)
    cdef _match_time_index(self, long long last, long long timestamp)

    cdef long long _largest_skipped(self, long long offset) except? -1

    cdef _next_time_entries(self)

    @cython.locals(wrapper=cython.bint, first=cython.longlong)
    cdef void _update_order(self, BatchColumns batches, Py_ssize_t row, long long last) except *

    cdef void _update_epoch(self, long long epoch, long long first, long long last) except *

    cdef _end_epoch(self)

    @cython.locals(producer_id=cython.longlong, attributes=cython.longlong, sequence=cython.longlong)
    cdef void _update_producer(self, BatchColumns batches, Py_ssize_t row, long long last) except *

    cdef _end_producer(self)

    cpdef facts(self, long long size)
