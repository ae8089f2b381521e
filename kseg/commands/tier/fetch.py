"""``kseg tier fetch``: partitions of tiered storage as folders that a broker loads.

The producer snapshot and the leader epochs of a remote segment are those of its end (``RemoteLogManager.copyLogSegment``).
A snapshot gets the name that a broker gives it. A segment that is cut gets new indexes (``LogSegment.recover``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kseg.commands.tier.fetch_plan import FetchedPartition, UploadPiece
from kseg.commands.tier.remote_segments import LOG
from kseg.errors import KsegError, UnreadableError
from kseg.extras import archive, tiered_view
from kseg.findings import Finding, do_nothing
from kseg.format.record.columns import CRC_BAD
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.sidefiles.checkpoints import LeaderEpoch
from kseg.format.sidefiles.index_walks import walk_txn_index
from kseg.format.sidefiles.indexes import IndexBuilder
from kseg.format.storage import file_access, local_files
from kseg.format.storage.atomic_write import NewFile, sync_folder, whole_folder, writing
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import INDEX_SUFFIXES, PARTITION_METADATA
from kseg.format.storage.source import open_source
from kseg.format.writer import written_side_files
from kseg.format.writer.output_guards import index_paths

_READ = 1 << 20
_SNAPSHOT, _TXN_INDEX = ".snapshot", ".txnindex"


def write_partitions(
    plans: Sequence[FetchedPartition], target: Path, progress: Progress = do_nothing, *, skip_damaged: bool = False
) -> int:
    """Write partition folders into the new folder ``target``, all or nothing; return the number of damaged chunks.

    ``progress`` is called with bytes of logs. Raises KsegError if the folder exists or cannot be written, for an object that
    cannot be read, and for a chunk that cannot be decoded, unless ``skip_damaged``: its bytes are then 0xff.
    """
    damaged = 0
    with whole_folder(target, replace=False) as folder, writing(target):
        for plan in plans:
            home = folder / plan.name
            home.mkdir()
            for piece in plan.pieces:
                damaged += _write_piece(piece, home, strict=not skip_damaged)
                progress(piece.size)
            _write_epochs(plan, home)
            with NewFile(home / PARTITION_METADATA) as out:
                out.file.write(f"version: 0\ntopic_id: {plan.topic_id}".encode())
                out.sync()
            sync_folder(home)
    return damaged


def _write_epochs(plan: FetchedPartition, home: Path) -> None:
    """Write the lineage of a partition without the epochs after its end, and without that of old batches, -1."""
    end = plan.pieces[-1].end if plan.pieces else 0
    epochs = [LeaderEpoch(epoch, first) for epoch, first in plan.lineage if epoch >= 0 and first < end]
    if epochs:
        written_side_files.write(home, epochs)


def _write_piece(piece: UploadPiece, home: Path, *, strict: bool) -> int:
    """Write the files of a segment; return the number of damaged chunks."""
    log = home / f"{piece.first:020}{LOG}"
    damaged = _copy(piece.segment.path(LOG), log, piece.begin, piece.stop, strict=strict)
    for source, name in _side_files(piece):
        damaged += _copy(source, home / name, strict=strict)
    if not piece.is_whole:
        _write_indexes(log)
        if _TXN_INDEX in piece.segment.files:
            damaged += _write_txn_index(piece, log, strict=strict)
    return damaged


def _write_indexes(log: Path) -> None:
    """Write the indexes of a log that was cut. A damaged log gets none: a broker cuts it when it builds them."""
    paths = index_paths(log)
    with NewFile(paths[0]) as offsets, NewFile(paths[1]) as times:
        is_valid = _index(log, IndexBuilder(int(log.stem), offsets.file, times.file))
        offsets.sync()
        times.sync()
    if not is_valid:
        for path in paths:
            path.unlink()


def _index(log: Path, builder: IndexBuilder) -> bool:
    """Add the batches of a log to its indexes. Return False for one with damage."""
    damage: list[Finding] = []
    with SegmentReader(open_source(log), report=damage.append) as reader:
        for window in reader.windows():
            batches = window.batches
            if damage or any(batches.crc_state[row] == CRC_BAD for row in range(batches.count)):
                return False
            try:
                builder.add(batches, 0, batches.count)
            except KsegError:  # no CRC covers an offset, which can be too large
                return False
    builder.finish()
    return not damage


def _write_txn_index(piece: UploadPiece, log: Path, *, strict: bool) -> int:
    """Write the entries whose marker is in the piece: they have offsets, and no positions. Return the damaged chunks."""
    copied = log.with_suffix(".copied")
    damaged = _copy(piece.segment.path(_TXN_INDEX), copied, strict=strict)
    with open_source(copied) as index:
        entries = (one for _, one in walk_txn_index(index, 0) if piece.first <= one.last_offset < piece.end)
        written_side_files.write_txn_index(log.with_suffix(_TXN_INDEX), entries)
    copied.unlink()
    return damaged


def _side_files(piece: UploadPiece) -> Iterator[tuple[str, str]]:
    """Yield the side files that fit a piece as they are, and their names in a partition folder."""
    segment = piece.segment
    for suffix in INDEX_SUFFIXES:
        if piece.is_whole and suffix in segment.files:
            yield segment.path(suffix), f"{piece.first:020}{suffix}"
    if piece.has_end and _SNAPSHOT in segment.files:
        yield segment.path(_SNAPSHOT), f"{piece.end:020}{_SNAPSHOT}"


def _copy(source: str, target: Path, begin: int = 0, stop: int | None = None, *, strict: bool) -> int:
    """Copy the bytes ``begin`` to ``stop`` of a file or a decoded file to a new, synced file. Raises KsegError.

    Returns the number of damaged chunks.
    """
    member = archive.member_at(source)
    opened: Any = member.open(strict=strict) if isinstance(member, tiered_view.DecodedMember) else None
    with writing(target), opened or local_files.open_file(source, named=False) as file, NewFile(target) as out:
        file.seek(begin)
        left = (1 << 63) - 1 if stop is None else stop - begin
        while left and (data := _read(file, source, min(_READ, left))):
            out.file.write(data)
            left -= len(data)
        out.sync()
    return opened.damaged if opened else 0


def _read(file: Any, source: str, size: int) -> bytes:
    """Read bytes. An error of the source must not be taken for one of the target."""
    try:
        data: bytes = file.read(size)
    except OSError as error:
        raise UnreadableError(f"{source}: {error.strerror or error}") from error
    file_access.current().limit.wait_for(len(data))
    return data


def target_of(plan: FetchedPartition, target: str | None) -> str:
    """Return the folder of a partition in the result."""
    return os.path.join(target or "", plan.name)
