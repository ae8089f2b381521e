"""The state file of ``kseg validate --cache``: results of files that are not read again until they change.

    state := header entry* end           -- JSON, one line each
    header := {"kseg_state", "kseg"}     -- versions of the layout and of kseg: another version has other findings
    entry := path TAB key TAB result     -- key: stamps of the file and its indexes, and the settings
    end   := {"entries", "crc32"}        -- CRC-32 of all bytes before

A segment that is not active keeps its findings while its size, time and inode stay the same. The same stamps show whether a
broker changed a segment or its indexes while they were validated. Results that depend on the date are not stored.
"""

from __future__ import annotations

import io
import json
import os
import time
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import kseg
from kseg.commands.validate.segment_facts import SegmentFacts
from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.findings import Finding, Severity, Verdict
from kseg.format.storage import local_files
from kseg.format.storage.atomic_write import whole_file
from kseg.format.storage.local_files import open_file
from kseg.format.storage.naming import INDEX_SUFFIXES, base_offset_of, is_in_use, is_url
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import LATELY, Stamp, stamp_of
from kseg.results import COUNTS, FileResult, Settings, Summary

# Seconds to wait for a write to finish, and between looks. A write is short, but the writer may wait for a processor.
_PATIENCE = _STEP = 0.05
# A broker writes a batch and then its index entries; on a busy machine, another process can run between the two.
_PATIENCE_WITH_BROKER = 2.0


def stamps_of(file: SegmentFile) -> tuple[Stamp, ...]:
    """Return the stamps of a file and of the indexes that are checked with it, in their order."""
    return tuple(map(stamp_of, (file.path, *(file.indexes or ()))))


def unchanged(file: SegmentFile, before: tuple[Stamp, ...]) -> bool:
    """Return whether the stamps equal ``before`` and the same index files exist.

    The first aborted transaction creates a .txnindex, and a compaction can remove it. A broker writes producer snapshots
    in place, so a new one can be empty or incomplete for a moment. If a file was written within the last ``LATELY``
    seconds, the function waits before it compares.
    """
    if file.indexes != indexes_of(file):
        return False
    now = stamps_of(file)
    newest = max((stamp[1] for stamp in now if stamp), default=0)
    if now == before and time.time_ns() - newest < LATELY * 1e9:
        log_dir = os.path.dirname(os.path.dirname(local_files.absolute(file.path)))
        until = time.monotonic() + (_PATIENCE_WITH_BROKER if is_in_use(log_dir) else _PATIENCE)
        while now == before and time.monotonic() < until:
            time.sleep(_STEP)
            now = stamps_of(file)
    return now == before


def indexes_of(file: SegmentFile) -> tuple[str, ...] | None:
    """Return the paths of the segment's indexes that exist now, or ``file.indexes`` if the file is not a segment.

    An index that a failing disk hides is one as it was listed: its check reports the error.
    """
    before = file.indexes
    if before is None or base_offset_of(file.path) is None:
        return before

    def exists(path: str) -> bool:
        try:
            return local_files.is_file(path)
        except UnreadableError:
            return path in before

    stem = file.path.removesuffix(".log")
    return tuple(filter(exists, (stem + suffix for suffix in INDEX_SUFFIXES)))


_VERSION = 7
# The least seconds between two saves, and the least ratio of that time to the duration of a save.
_INTERVAL = 5.0
_SHARE = 20
# Two writes within one tick of the file system's clock (up to 10 ms) have the same time.
_TICK_NS = 100_000_000
# This finding depends on today's date.
_DATE_DEPENDENT = "future-timestamp"


class ResultStore:
    """The results of earlier runs and of this one. ``reused`` counts the files that were not read again.

    ``saved`` is the time of the last save (time.monotonic).
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        self.path = path
        self.reused = 0
        self._settings = _settings_key(settings)
        self._entries = _read_state(path) if path.exists() else {}
        self._before: dict[str, tuple[Stamp, ...]] = {}
        self.saved = time.monotonic()
        self._pause = _INTERVAL

    def is_current(self, file: SegmentFile) -> bool:
        """Return whether the stored result of a file is current. If not, remember the file's stamps before it is read."""
        stamps = stamps_of(file)
        entry = self._entries.get(_name(file))
        if not file.active and entry and stamps[0] and entry[0] == self._key(file, stamps):
            return True
        self._before[file.path] = stamps
        return False

    def result(self, file: SegmentFile) -> FileResult:
        """Return the stored result of a file, with its current path. Raises KsegError."""
        self.reused += 1
        try:
            return _decoded(json.loads(self._entries[_name(file)][1]), file.path, file.indexes or ())
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise _refused(self.path, "an entry is malformed") from error

    def store(self, file: SegmentFile, result: FileResult) -> None:
        """Store a file's result, and save the state file from time to time. Raises KsegError."""
        before = self._before.pop(file.path)
        if self._can_be_stored(file, result, before):
            self._entries[_name(file)] = self._key(file, before), _json(_encoded(result))
        else:
            self._entries.pop(_name(file), None)
        if time.monotonic() - self.saved > self._pause:
            self.save()

    def save(self) -> None:
        """Write the state file atomically. Raises KsegError; the older file then remains."""
        began = time.monotonic()
        with whole_file(self.path) as file:
            crc = 0
            for line in _lines(self._entries):
                file.write(line)
                crc = zlib.crc32(line, crc)
            file.write(f"{_json({'entries': len(self._entries), 'crc32': crc})}\n".encode())
        self.saved = time.monotonic()
        self._pause = max(_INTERVAL, _SHARE * (self.saved - began))

    def forget_vanished(self, swept: Iterable[SegmentFile]) -> None:
        """Drop the results of deleted files. The files ``swept`` in this run are kept without a check."""
        present = {_name(file) for file in swept}
        for name in [name for name in self._entries if name not in present and _is_gone(name)]:
            del self._entries[name]

    def _can_be_stored(self, file: SegmentFile, result: FileResult, before: tuple[Stamp, ...]) -> bool:
        if file.active or result.vanished or not before[0]:
            return False
        every = (result, *result.indexes)
        if any(one.unread or _DATE_DEPENDENT in one.found for one in every):
            return False
        newest = max(stamp[1] for stamp in before if stamp)
        known = tuple(one.file for one in result.indexes) == (file.indexes or ())
        return known and stamps_of(file) == before and time.time_ns() - newest > _TICK_NS

    def _key(self, file: SegmentFile, stamps: tuple[Stamp, ...]) -> str:
        index_names = None if file.indexes is None else [os.path.basename(path) for path in file.indexes]
        return _json([stamps, index_names, self._settings])


@contextmanager
def open_state_file(path: str, settings: Settings, files: list[SegmentFile]) -> Iterator[ResultStore]:
    """Yield the results stored at ``path``, and save them at the end, also after an interrupt.

    Raises KsegError if the file is not a state file of this version, or cannot be written. Then a new file is deleted if
    there is no result in it.
    """
    state = ResultStore(Path(path), settings)
    is_new = not state.path.exists()
    state.save()  # if it can't be written, the run must not start
    empty = state.saved
    try:
        yield state
        state.forget_vanished(files)
    finally:
        try:
            state.save()
        except KsegError:
            if is_new and state.saved == empty:
                state.path.unlink(missing_ok=True)
            raise


def _is_gone(name: str) -> bool:
    try:
        return not (os.path.lexists(name) or (is_url(name) and local_files.exists(name)))
    except UnreadableError:
        return False


def _name(file: SegmentFile) -> str:
    return local_files.absolute(file.path)


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _settings_key(settings: Settings) -> list[object]:
    overrides = sorted((name, int(level)) for name, level in settings.policy.overrides.items())
    limits = [settings.max_message_bytes, settings.max_per_rule]
    limits += [settings.timestamp_before_max_ms, settings.timestamp_after_max_ms]
    return [settings.deep, settings.verify_crc, settings.compacted, *limits, overrides]


_Entries = dict[str, tuple[str, str]]


def _lines(entries: _Entries) -> Iterator[bytes]:
    yield f"{_json({'kseg_state': _VERSION, 'kseg': kseg.__version__})}\n".encode()
    for name, (key, result) in entries.items():
        yield f"{_json(name)}\t{key}\t{result}\n".encode()


def _refused(path: Path, why: str) -> KsegError:
    return UsageError(f"{path} is not a usable state file: {why}. Delete it to start again")


def _read_state(path: Path) -> _Entries:
    entries: _Entries = {}
    crc = 0
    end: Any = None
    try:
        with io.BufferedReader(open_file(str(path), named=False)) as file:
            header = _object(file.readline(_HEADER_LIMIT))
            if "kseg_state" not in header:
                raise _refused(path, "it is another kind of file")
            if header["kseg_state"] != _VERSION or header.get("kseg") != kseg.__version__:
                raise _refused(path, f"kseg {header.get('kseg')} wrote it, this is {kseg.__version__}")
            file.seek(0)
            for line in file:
                parts = line.decode().rstrip("\n").split("\t")
                if len(parts) == 3:
                    entries[json.loads(parts[0])] = parts[1], parts[2]
                elif crc and line.endswith(b"\n"):
                    end = _object(line)
                    break
                crc = zlib.crc32(line, crc)
            trailing = file.read(1)
    except OSError as error:
        raise KsegError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise _refused(path, "it is damaged") from error
    if trailing or not end or (end.get("entries"), end.get("crc32")) != (len(entries), crc):
        raise _refused(path, "it is damaged")
    return entries


_HEADER_LIMIT = 1024


def _object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line, or {} if it holds none."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _encoded(result: FileResult) -> dict[str, Any]:
    return {
        "counts": [getattr(result.summary, name) for name in COUNTS],
        "rules": result.summary.rules,
        "found": sorted(result.found),
        "findings": [[int(verdict.severity), verdict.finding._asdict()] for verdict in result.verdicts],
        "unlisted": [others._asdict() for others in result.unlisted.values()],
        "facts": result.facts and asdict(result.facts),
        "indexes": [_encoded(one) for one in result.indexes],
    }


def _decoded(value: dict[str, Any], path: str, indexes: tuple[str, ...]) -> FileResult:
    summary = Summary(**dict(zip(COUNTS, value["counts"], strict=True)), rules=Counter(value["rules"]))
    verdicts = tuple(Verdict(path, Severity(level), Finding(**finding)) for level, finding in value["findings"])
    others = tuple(_decoded(one, other, ()) for one, other in zip(value["indexes"], indexes, strict=True))
    facts, found = value["facts"] and _facts(value["facts"]), frozenset(value["found"])
    unlisted = {one["rule"]: Finding(**one) for one in value["unlisted"]}
    return FileResult(path, verdicts, summary, indexes=others, facts=facts, found=found, unlisted=unlisted)


def _facts(value: dict[str, Any]) -> SegmentFacts:
    """Return the facts from JSON, which lacks tuples and integer keys: each default value shows the type."""
    empty = SegmentFacts()
    return SegmentFacts(**{name: _with_type_of(getattr(empty, name), one) for name, one in value.items()})


def _with_type_of(first: object, value: Any) -> Any:
    if isinstance(first, dict):
        return {int(number): tuple(one) if isinstance(one, list) else one for number, one in value.items()}
    if isinstance(first, tuple):
        return tuple(tuple(one) if isinstance(one, list) else one for one in value)
    return value
