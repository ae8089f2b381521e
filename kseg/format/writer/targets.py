"""The files that are written for one segment."""

from __future__ import annotations

from pathlib import Path

from kseg.errors import KsegError


class DamagedError(KsegError):
    """The source is damaged, and ``skip_damaged`` is not set."""


def index_paths(log: Path) -> tuple[Path, Path]:
    """Return the paths of the offset index and the time index of a log."""
    stem = log.name.removesuffix(".log")
    return log.with_name(stem + ".index"), log.with_name(stem + ".timeindex")


def txn_index_path(log: Path) -> Path:
    """Return the path of the transaction index of a log."""
    return index_paths(log)[0].with_suffix(".txnindex")
