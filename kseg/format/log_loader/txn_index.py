"""The check of a transaction index at each start of a broker (``TransactionIndex.sanityCheck`` of Kafka 4.3)."""

from __future__ import annotations

import struct

from kseg.format.log_loader.partition_files import File
from kseg.format.log_loader.refusals import RefusedError

_ENTRY = struct.Struct(">bx8x8xq8x")  # the first byte of the version, and the last offset
_BLOCK = _ENTRY.size * 1024


def check_txn_index(file: File, base_offset: int) -> str | None:
    """Return why the segment must be recovered, otherwise None. Raises RefusedError for another version."""
    at = 0
    while block := file.read(at, _BLOCK):
        for version, last_offset in _ENTRY.iter_unpack(block[: len(block) - len(block) % _ENTRY.size]):
            # Kafka looks at the first byte of the two alone (AbortedTxn.version).
            if version > 0:
                raise RefusedError(f"its transaction index has version {version}")
            if last_offset < base_offset:
                return f"its transaction index has an abort at offset {last_offset}"
        at += len(block)
    return None
