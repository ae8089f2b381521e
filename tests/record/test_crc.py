"""Table and instructions compute the libraries' CRCs, for every length that they are used for and every remainder."""

from __future__ import annotations

import subprocess
import sys
import zlib
from array import array

import pytest

from kseg.format.record import crc

DATA = bytes(i * i * 7 + i >> 3 & 255 for i in range(5000))
LENGTHS = (*range(40), 63, 64, 65, 127, *range(128, 148), 191, 192, 193, 255, 256, 511, 512, 513, 600, 4096, 4111)


@pytest.mark.parametrize("length", LENGTHS)
def test_the_table_gives_what_the_libraries_give(length: int) -> None:
    """Both ways, by table and by library: a wrong table would report valid batches as damaged."""
    view = memoryview(DATA)
    crc32, crc32c = crc.table(crc.CRC32), crc.table(crc.CRC32C)
    for at in (0, 1, 7):
        piece = DATA[at : at + length]
        end = at + length
        assert crc.crc_by_table(view, at, end, crc32) == crc.crc32_of(view, at, end) == zlib.crc32(piece)
        by_library = crc.crc32c(piece)
        assert crc.crc_by_table(view, at, end, crc32c) == crc.crc32c_of(view, at, end) == by_library


def test_crc32c_is_the_librarys_own_and_comes_without_its_package() -> None:
    """The package's import is a fifth of a short command's time; the test covers a library whose module has moved."""
    check = "assert crc.crc32c(b'123456789') == 0xE3069283"
    program = f"import sys; from kseg.format.record import crc; {check}; assert 'importlib.metadata' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
    elsewhere = (
        "import crc32c; from importlib.machinery import PathFinder; find = PathFinder.find_spec;"
        "PathFinder.find_spec = lambda name, *rest: None if name == 'crc32c._crc32c' else find(name, *rest);"
        f"from kseg.format.record import crc; {check}; assert crc.crc32c is crc32c.crc32c"
    )
    subprocess.run([sys.executable, "-c", elsewhere], check=True, timeout=300)


@pytest.mark.parametrize(("at", "end"), [(-1, 8), (0, len(DATA) + 1), (len(DATA) - 10, len(DATA) + 17)])
def test_ranges_outside_of_the_buffer_are_rejected(at: int, end: int) -> None:
    """The compiler omits bounds checks in that loop: it checks the bounds itself."""
    with pytest.raises(IndexError):
        crc.crc_by_table(memoryview(DATA), at, end, crc.table(crc.CRC32))
    for compute in (crc.crc32_of, crc.crc32c_of):
        with pytest.raises(IndexError):
            compute(memoryview(DATA), at, end)
    with pytest.raises(IndexError):
        crc.crc_by_table(memoryview(DATA), 0, 8, array("I", bytes(4 * 256)))
