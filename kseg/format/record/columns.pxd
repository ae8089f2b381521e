# C types for columns.py.

cdef long long INT64_MIN

cdef class BatchColumns:
    cdef readonly Py_ssize_t capacity
    cdef public Py_ssize_t count
    cdef readonly long long[::1] at, position, size, magic, attributes, base_offset, last_offset, record_count
    cdef readonly long long[::1] base_timestamp, max_timestamp, crc, crc_state, producer_id, producer_epoch
    cdef readonly long long[::1] base_sequence, partition_leader_epoch, selected, intact
    cdef readonly long long[::1] first_record, record_total, attribute_bits, largest_timestamp, disorder
    cdef readonly long long[::1] null_keys, header_total, invalid_keys, record_sum
    cdef readonly long long[::1] first_record_offset, last_record_offset

    cpdef begin_records(self, Py_ssize_t row, Py_ssize_t first_record)

cdef class RecordColumns:
    cdef readonly Py_ssize_t capacity
    cdef public Py_ssize_t count
    cdef readonly long long[::1] batch, offset, timestamp, attributes, key_at, key_size, value_at, value_size
    cdef readonly long long[::1] headers_at, header_count

    cdef _reserve(self, Py_ssize_t capacity)
    cpdef grow(self)

cdef class PartialBatch:
    cdef public long long rows, index, previous, bits, largest, disorder, null_keys, header_total, invalid_keys
    cdef public long long faulty, faults_left_out, shift
    cdef public Py_ssize_t at
    cdef public bint final, hungry, done
