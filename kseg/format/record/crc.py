# cython: boundscheck=False
"""The two CRCs of Kafka's formats: CRC-32C of v2 batches, CRC-32 of v0 and v1 messages.

The libraries use the processor's CRC instructions, but a call with its slice takes 0.2 us. So the compiled engine uses the
instructions itself: always for CRC-32, for which zlib does not have them, and for short ranges for CRC-32C. On other
processors it uses a table for short ranges. It checks bounds once: the compiler's checks took half the time.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any

from kseg import c_functions

# The polynomials, bits reversed.
CRC32 = 0xEDB88320
CRC32C = 0x82F63B78


def _crc32c_function() -> Callable[..., int]:
    """Return ``crc32c.crc32c`` from the package's C module: the package takes 20 ms to import, for its metadata."""
    package = find_spec("crc32c")
    if package is not None and package.submodule_search_locations:
        spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            found: Callable[..., int] | None = getattr(module, "crc32c", None)
            if found is not None:
                return found
    from crc32c import crc32c  # other builds of the package have no such module

    return crc32c


# The number of CRCs in a table.
TABLE_SIZE = 16 * 256
# The initial value of a CRC, and the mask that inverts it. Cython would make a Python integer of a literal.
ALL_ONES = 0xFFFFFFFF


def table(polynomial: int) -> Any:
    """Return 16 tables of 256 CRCs: those of a byte followed by 0 to 15 zeros.

    They process 16 bytes per step ("slicing-by-8", Intel 2006, doubled).
    """
    crcs = array("I", bytes(4 * TABLE_SIZE))
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (polynomial if crc & 1 else 0)
        crcs[byte] = crc
    for i in range(256, TABLE_SIZE):
        crcs[i] = crcs[i - 256] >> 8 ^ crcs[crcs[i - 256] & 255]
    return crcs


# The most bytes for which a call of the library is slower. In plain Python it never is.
SHORT = -1 if __file__.endswith(".py") else 512
INSTRUCTIONS = SHORT > 0 and c_functions.has_crc_instructions()
CRC32_TABLE = table(CRC32) if SHORT > 0 else array("I")
CRC32C_TABLE = table(CRC32C) if SHORT > 0 else array("I")

crc32c = _crc32c_function()


def crc_by_table(data: Any, at: int, end: int, crcs: Any) -> int:
    """Return the unsigned CRC of ``data[at:end]``, computed with a table.

    Raises IndexError if the range exceeds ``data``.
    """
    if len(crcs) < TABLE_SIZE:
        raise IndexError(f"the table has {len(crcs)} CRCs")
    check_range(len(data), at, end)
    crc = ALL_ONES
    while end - at >= 16:
        crc = (
            crcs[3840 + ((crc ^ data[at]) & 255)]
            ^ crcs[3584 + ((crc >> 8 ^ data[at + 1]) & 255)]
            ^ crcs[3328 + ((crc >> 16 ^ data[at + 2]) & 255)]
            ^ crcs[3072 + (crc >> 24 ^ data[at + 3])]
            ^ crcs[2816 + data[at + 4]]
            ^ crcs[2560 + data[at + 5]]
            ^ crcs[2304 + data[at + 6]]
            ^ crcs[2048 + data[at + 7]]
            ^ crcs[1792 + data[at + 8]]
            ^ crcs[1536 + data[at + 9]]
            ^ crcs[1280 + data[at + 10]]
            ^ crcs[1024 + data[at + 11]]
            ^ crcs[768 + data[at + 12]]
            ^ crcs[512 + data[at + 13]]
            ^ crcs[256 + data[at + 14]]
            ^ crcs[data[at + 15]]
        )
        at += 16
    while at < end:
        crc = crc >> 8 ^ crcs[(crc ^ data[at]) & 255]
        at += 1
    return crc ^ ALL_ONES


def check_range(size: int, at: int, end: int) -> None:
    """Raise IndexError unless ``at`` to ``end`` is a range within ``size`` bytes."""
    if at < 0 or at > end or end > size:
        raise IndexError(f"{at} to {end} is not within {size}")


def crc32_of(view: memoryview, at: int, end: int) -> int:
    """Return the unsigned CRC-32 of ``view[at:end]``. Raises IndexError."""
    check_range(len(view), at, end)
    if INSTRUCTIONS:
        return c_functions.crc32_by_instructions(view, at, end, CRC32_TABLE)
    if end - at <= SHORT:
        return crc_by_table(view, at, end, CRC32_TABLE)
    return zlib.crc32(view[at:end])


def crc32c_of(view: memoryview, at: int, end: int) -> int:
    """Return the unsigned CRC-32C of ``view[at:end]``. Raises IndexError."""
    check_range(len(view), at, end)
    if end - at > SHORT:
        return crc32c(view[at:end])
    if INSTRUCTIONS:
        return c_functions.crc32c_by_instructions(view, at, end)
    return crc_by_table(view, at, end, CRC32C_TABLE)
