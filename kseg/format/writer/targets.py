"""The files that are written for one segment."""

from __future__ import annotations

from pathlib import Path

from kseg.errors import KsegError


class DamagedError(KsegError):
    """The source is damaged, and ``skip_damaged`` was not asked for."""


def index_paths(log: Path) -> tuple[Path, Path]:
    """Where the offset and the time index of a log stand."""
    stem = log.name.removesuffix(".log")
    return log.with_name(stem + ".index"), log.with_name(stem + ".timeindex")


def txn_index_path(log: Path) -> Path:
    """Where the index of a log's aborted transactions stands, if there are any."""
    return index_paths(log)[0].with_suffix(".txnindex")
