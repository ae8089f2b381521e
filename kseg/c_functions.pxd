# The functions of c_functions.py in C.

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.string cimport memcmp, memmove


cdef extern from *:
    """
    #ifndef KSEG_CRC_INSTRUCTIONS
    #define KSEG_CRC_INSTRUCTIONS
    #include <stdint.h>
    #include <string.h>

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <cpuid.h>
    #include <immintrin.h>

    /* zig tells Clang each feature by its name, and then SSE 4.2 is without CRC-32C; older GCCs don't know that name. */
    #ifdef __clang__
    #define KSEG_SSE42 "sse4.2,crc32"
    #else
    #define KSEG_SSE42 "sse4.2"
    #endif

    /* Not __builtin_cpu_supports: zig has a stub of it, which always says no. */
    static inline int kseg_has_crc_instructions(void) {
        unsigned int a, b, c, d;
        return __get_cpuid(1, &a, &b, &c, &d) && c & bit_PCLMUL && c & bit_SSE4_2;
    }

    /* The table has 16 parts of 256 CRCs: part n has the CRCs of a byte that is followed by n zeros. */
    static inline uint32_t kseg_crc32_bytes(uint32_t crc, const uint8_t *data, const uint8_t *end, const uint32_t *table) {
        while (data < end) crc = crc >> 8 ^ table[(crc ^ *data++) & 255];
        return crc;
    }

    static inline __attribute__((target("pclmul," KSEG_SSE42)))
    __m128i kseg_fold(__m128i sum, __m128i constants, __m128i next) {
        __m128i low = _mm_clmulepi64_si128(sum, constants, 0x00), high = _mm_clmulepi64_si128(sum, constants, 0x11);
        return _mm_xor_si128(_mm_xor_si128(low, high), next);
    }

    /* V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009.
       The last 16 bytes that folding leaves are reduced by the table. */
    static __attribute__((target("pclmul," KSEG_SSE42), unused))
    uint32_t kseg_crc32(const uint8_t *data, size_t size, const uint32_t *table) {
        const uint8_t *end = data + size;
        uint32_t crc = 0xFFFFFFFF;
        if (size >= 32) {
            const __m128i by_64_bytes = _mm_set_epi64x(0x1C6E41596, 0x154442BD4);
            const __m128i by_16_bytes = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0);
            const __m128i *next = (const __m128i *)data;
            __m128i sum = _mm_xor_si128(_mm_loadu_si128(next++), _mm_cvtsi32_si128((int)crc));
            if (size >= 128) {
                __m128i second = _mm_loadu_si128(next++), third = _mm_loadu_si128(next++), fourth = _mm_loadu_si128(next++);
                for (; end - (const uint8_t *)next >= 64; next += 4) {
                    sum = kseg_fold(sum, by_64_bytes, _mm_loadu_si128(next));
                    second = kseg_fold(second, by_64_bytes, _mm_loadu_si128(next + 1));
                    third = kseg_fold(third, by_64_bytes, _mm_loadu_si128(next + 2));
                    fourth = kseg_fold(fourth, by_64_bytes, _mm_loadu_si128(next + 3));
                }
                sum = kseg_fold(sum, by_16_bytes, second);
                sum = kseg_fold(sum, by_16_bytes, third);
                sum = kseg_fold(sum, by_16_bytes, fourth);
            }
            for (; end - (const uint8_t *)next >= 16; next++) sum = kseg_fold(sum, by_16_bytes, _mm_loadu_si128(next));
            uint8_t left[16];
            _mm_storeu_si128((__m128i *)left, sum);
            crc = 0;
            for (int i = 0; i < 16; i++) crc ^= table[(15 - i) * 256 + left[i]];
            data = (const uint8_t *)next;
        }
        return kseg_crc32_bytes(crc, data, end, table) ^ 0xFFFFFFFF;
    }

    static __attribute__((target(KSEG_SSE42), unused))
    uint32_t kseg_crc32c(const uint8_t *data, size_t size) {
        const uint8_t *end = data + size;
        uint64_t crc = 0xFFFFFFFF, eight;
        for (; end - data >= 8; data += 8) {
            memcpy(&eight, data, 8);
            crc = _mm_crc32_u64(crc, eight);
        }
        while (data < end) crc = _mm_crc32_u8((uint32_t)crc, *data++);
        return (uint32_t)crc ^ 0xFFFFFFFF;
    }
    #else
    static inline int kseg_has_crc_instructions(void) { return 0; }
    #define kseg_crc32(data, size, table) 0
    #define kseg_crc32c(data, size) 0
    #endif
    #endif
    """
    bint kseg_has_crc_instructions() nogil
    unsigned int kseg_crc32(const unsigned char *data, size_t size, const unsigned int *table) nogil
    unsigned int kseg_crc32c(const unsigned char *data, size_t size) nogil


cdef inline bint has_crc_instructions():
    return kseg_has_crc_instructions()


cdef inline long long crc32_by_instructions(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, const unsigned int[::1] crcs
):
    return kseg_crc32(&data[0] + at, end - at, &crcs[0])


cdef inline long long crc32c_by_instructions(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end):
    return kseg_crc32c(&data[0] + at, end - at)


cdef inline bint equal_blocks(
    const unsigned char[::1] left, Py_ssize_t a, const unsigned char[::1] right, Py_ssize_t b, Py_ssize_t size
) noexcept:
    return size == 0 or memcmp(&left[0] + a, &right[0] + b, size) == 0


cdef inline void copy_block(
    unsigned char[::1] out, Py_ssize_t at, const unsigned char[::1] data, Py_ssize_t first, Py_ssize_t size
) noexcept:
    if size:
        memmove(&out[0] + at, &data[0] + first, size)


cdef inline unicode text_of(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size):
    return PyUnicode_DecodeUTF8(<char*>&data[0] + at, size, b"replace") if size else ""


cdef inline bytes bytes_of(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size):
    return PyBytes_FromStringAndSize(<char*>&data[0] + at, size) if size else b""
