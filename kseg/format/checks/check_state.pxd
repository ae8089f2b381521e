# C types for check_state.py.

from kseg.format.record.bounded_map cimport BoundedMap
from kseg.format.record.columns cimport BatchColumns


cdef class CheckState:
    cdef public bint begun, misnamed, keyless, thinned
    cdef public long long end, last_offset, highest_offset, gaps, next_offset, leader_epoch, magic, base, last_opened, first_opened
    cdef public long long highest_opened, opened_end, wrapper_gaps
    cdef public list before_wrappers
    cdef public long long first_leader_epoch, first_magic
    cdef public long long append_time, append_epoch, first_append_time, first_append_epoch
    cdef public BoundedMap producers
    cdef public dict first_producers
    cdef public set misplaced
    cdef public set claimed


cdef _finding(str rule, BatchColumns batches, Py_ssize_t row, dict facts)
