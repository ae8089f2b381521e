"""CRCs by instructions of the processor. The compiled engine has them on x86-64, where the C compiler is GCC or Clang.

``crc_instructions.pxd`` has the functions in C. These stand for them in plain Python, which uses libraries instead.
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
