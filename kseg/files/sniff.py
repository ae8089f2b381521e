"""What a file that is no log segment seems to be, in a few words for the person who passed it."""

from __future__ import annotations

import os

_SIGNATURES = (
    (b"\x1f\x8b", "a gzip file: unpack it first, or pipe it in (gunzip -c FILE | kseg … -)"),
    (b"\x28\xb5\x2f\xfd", "a zstd file: unpack it first, or pipe it in (zstd -dc FILE | kseg … -)"),
    (b"\x04\x22\x4d\x18", "an LZ4 file: unpack it first"),
    (b"BZh", "a bzip2 file: unpack it first"),
    (b"\xfd7zXZ", "an xz file: unpack it first"),
    (b"PK\x03\x04", "a zip file: unpack it first"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"\x89PNG", "a PNG picture"),
    (b"%PDF", "a PDF document"),
    (b"\x7fELF", "a program"),
    (b"PAR1", "a Parquet file"),
)

_SIDE_FILES = {
    ".index": "an offset index",
    ".timeindex": "a time index",
    ".txnindex": "a transaction index",
    ".snapshot": "a producer state snapshot",
}


def what_it_is(name: str, head: bytes) -> str:
    """One phrase from a file's name and first bytes (a thousand, if there are so many)."""
    for suffix, kind in _SIDE_FILES.items():
        if name.endswith(suffix) or os.path.basename(name).rpartition(".")[0].endswith(suffix):
            named = os.path.basename(name)[:20].isdigit()
            return f"{kind}, which `kseg dump` and `kseg validate` read" if named else f"{kind} is named by 20 digits"
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            return kind
    from kseg.format import wide_message  # only here: every segment's reader loads this module

    if wide_message.is_proved(head, 0, len(head)):
        return "a tutorial's messages, whose CRC of eight bytes is the value's: `--as wide-crc` reads them"
    if not head.strip(b"\0"):
        return "nothing but zeros"
    if head and all(byte in b"\t\n\r\f\x1b" or 32 <= byte < 127 or byte >= 128 for byte in head):
        return "it looks like text"
    return f"no entry found; it begins with {head[:16].hex(' ')}"
