"""The description of a run in its report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """The run that made a report: its command line, its ``paths``, the host, and the version of kseg.

    ``started`` is in epoch milliseconds. ``settings`` are options that a settings file gave.
    """

    command: str
    paths: tuple[str, ...]
    host: str
    started: int
    version: str
    settings: tuple[str, ...] = ()
