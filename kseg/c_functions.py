"""Functions in C: CRCs by instructions of the processor, blocks of memory by the C library, and objects made from bytes.

``c_functions.pxd`` has the functions of the compiled engine. These replace them in plain Python. The compiled engine has
the CRCs on x86-64, where the C compiler is GCC or Clang; plain Python uses libraries instead.
"""

from __future__ import annotations

from typing import Any


def has_crc_instructions() -> bool:
    """Return whether ``crc32_by_instructions`` and ``crc32c_by_instructions`` work on this processor."""
    return False


def crc32_by_instructions(data: Any, at: int, end: int, crcs: Any) -> int:
    """Return the unsigned CRC-32 of ``data[at:end]``. ``crcs`` is ``crc.CRC32_TABLE``. The caller checks the range."""
    raise NotImplementedError


def crc32c_by_instructions(data: Any, at: int, end: int) -> int:
    """Return the unsigned CRC-32C of ``data[at:end]``. The caller checks the range."""
    raise NotImplementedError


def equal_blocks(left: Any, a: int, right: Any, b: int, size: int) -> bool:
    """Return whether the ``size`` bytes from ``left[a]`` and from ``right[b]`` are equal. The caller checks the ranges."""
    return bytes(left[a : a + size]) == bytes(right[b : b + size])


def copy_block(out: Any, at: int, data: Any, first: int, size: int) -> None:
    """Copy ``data[first:first + size]`` to ``out[at]``. The caller checks the ranges."""
    out[at : at + size] = data[first : first + size]


def text_of(data: Any, at: int, size: int) -> str:
    """Return ``size`` bytes from ``data[at]`` as text, U+FFFD for bytes that are not UTF-8. The caller checks the range."""
    return str(data[at : at + size], "utf-8", "replace")


def bytes_of(data: Any, at: int, size: int) -> bytes:
    """Return ``size`` bytes from ``data[at]``. The caller checks the range."""
    return bytes(data[at : at + size])
