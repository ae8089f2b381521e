# C types for outline.py.

cimport cython

from kseg.format.record.columns cimport BatchColumns

cdef long long CRC_BAD, CODEC_MASK, CODECS, BUCKETS, FAR, SIZES

cdef class OutlineCounter:
    cdef public long long width
    cdef readonly long long[::1] codec_bytes, largest, records, times, first, last, sizes, bytes_by_codec
    cdef public dict producers

    @cython.locals(
        row=cython.Py_ssize_t, producer=cython.longlong, produced=cython.longlong, size=cython.longlong,
        end=cython.longlong, bucket=cython.longlong,
    )
    cpdef update(self, BatchColumns batches, set claimed)

    @cython.locals(power=cython.longlong)
    cdef _count_size(self, long long size)

    @cython.locals(size=cython.longlong, begin=cython.longlong, end=cython.longlong, records=cython.longlong)
    cdef _count(self, BatchColumns batches, Py_ssize_t row, long long bucket)

    cdef _count_offsets(self, BatchColumns batches, Py_ssize_t row, long long bucket)

    @cython.locals(bucket=cython.Py_ssize_t, left=cython.Py_ssize_t, codec=cython.Py_ssize_t, inside=cython.bint)
    cdef _fold(self)

    cdef _add_producer(self, long long producer, long long size)
