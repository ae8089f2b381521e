"""Reports without names: paths, topics, the host and texts of files become hashes, so that a page can leave the house.

Messages have texts of files in quotes (``kseg.text.excerpt``): these are replaced as a whole, whatever is in them.
Scripts keep stderr with a report, so its lines have hashes, too.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from io import StringIO
from typing import TextIO

from kseg.errors import KsegError
from kseg.extras.html.page import as_json
from kseg.format.sidefiles.checkpoints import walk_offset_checkpoint
from kseg.format.storage import local_files
from kseg.format.storage.naming import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    is_url,
    partition_of,
)
from kseg.format.storage.source import STDIN, open_source
from kseg.report.formats import Run
from kseg.text import escape_controls, shell_word

#: Parts of a page in which a name is code: its style and its script, whose hashes the page declares.
_CODE = re.compile(r"(<(style|script)>.*?</\2>)", re.DOTALL)


#: An absolute path that is left: the target of a link, for instance. Not the end of an element, an address, a fraction, or
#: of a pattern of sed.
_ABSOLUTE = re.compile(r"(?<![\w<:/.+=*-])/(?!path-)[^\s\"'<>:,;&`]+")
#: What follows a path of the command line, and the parts of it that are Kafka's own names.
_BELOW = re.compile(r"(?<=/path-)([0-9a-f]{8}(?:\.[a-z]+(?:-\d+)?)?)((?:/[^\s\"'<>:,;&`/]+)+)")
_KAFKAS = re.compile(
    r"topic-[0-9a-f]{8}-.*|__\w+-\d+|\d{20}\D.*|.*(?:checkpoint|metadata|properties|cleanshutdown|quorum-state|\.lock|…)"
)
#: A text in quotes, to the last quote of the same string, element or paragraph, because it can have quotes itself. The one
#: command of kseg with quotes stays as it is.
_QUOTED_IN_JSON = r'(?<!sed -i )(?P<json>\\")(?:[^"\\]|\\.)*\\"'
_QUOTED_IN_PAGE = rf"{_QUOTED_IN_JSON}|(?<!sed -i )(?P<html>&quot;)[^<>]*&quot;"
_QUOTED_IN_TABLE = r'(?<!sed -i )(?P<table>")(?:.|\n {4,})*"'
#: The first character of a report -> its texts in quotes; a table begins with a letter.
_QUOTED = {"{": re.compile(_QUOTED_IN_JSON), "<": re.compile(_QUOTED_IN_PAGE)}
_QUOTED_ELSEWHERE = re.compile(_QUOTED_IN_TABLE)

#: The start of a message about skipped files, before the names of files and folders, which can be any text.
_SKIPPED = re.compile(r"(\bskipped [^:]*): .*")

_OFFSET_CHECKPOINTS = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)


class Redaction:
    """Names and their hashes: the same hash for the same name, of a secret that is drawn for each run.

    A hash without a secret would name the topic to anybody who tries some words.
    """

    def __init__(self, paths: Iterable[str], folders: Iterable[str]) -> None:
        """``paths`` are the absolute paths of the command line, ``folders`` those of the partitions below them."""
        self._secret = secrets.token_bytes(16)
        found = set(folders)
        topics = {one.topic for one in map(partition_of, map(os.path.basename, found)) if one}
        topics |= set(_checkpoint_topics({*found, *map(os.path.dirname, found)}))
        outside = {folder for folder in found if partition_of(os.path.basename(folder)) is None}
        named = {*paths, *map(os.path.dirname, found), *outside} - {"", "/"}
        self._paths = {path: f"/{self._hash('path', path)}" for path in named}
        self._topics = {one: self._hash("topic", topic) for topic in topics for one in _spellings(topic)}
        spelled = sorted({one for path in self._paths for one in _spellings(path)}, key=len, reverse=True)
        names = "|".join(map(re.escape, sorted(self._topics, key=len, reverse=True)))
        # A topic is a word of the language, too: it is one where its partition or the word "topic" is next to it.
        patterns = (
            [rf"(?<![\w.-])(?P<folder>{names})(?=-\d)", rf"(?<=topic )(?P<topic>{names})(?![\w.-])"] if names else []
        )
        patterns += [f"(?P<path>{'|'.join(map(re.escape, spelled))})"] if spelled else []
        log_dirs = {os.path.dirname(folder) for folder in found - outside}
        self._foreign = {one: self._hash("name", name) for name in _foreign(log_dirs) for one in _spellings(name)}
        if foreign := "|".join(map(re.escape, sorted(self._foreign, key=len, reverse=True))):
            patterns.append(rf"(?<=[>\s\"/(])(?P<foreign>{foreign})(?=[<\s\":,;)])")
        self._pattern = re.compile("|".join(patterns) or r"(?!)")
        self._spelled = {one: shown for path, shown in self._paths.items() for one in _spellings(path)}
        # In a command, an apostrophe of a name is in quotes, which are not those around a text.
        every = self._spelled | self._foreign | self._topics
        self._first = {one: shown for one, shown in every.items() if '"' in one or "&quot;" in one}
        first = sorted(self._first, key=len, reverse=True)
        self._quoting = re.compile("|".join(map(re.escape, first)) or r"(?!)")

    def _hash(self, kind: str, name: str) -> str:
        data = name.encode("utf-8", "surrogateescape")
        return f"{kind}-{hashlib.blake2b(data, key=self._secret, digest_size=4).hexdigest()}"

    def text(self, content: str) -> str:
        """Return a whole report without names."""
        parts = _CODE.split(content)
        quoted = _QUOTED.get(content[:1], _QUOTED_ELSEWHERE)
        # Of each match there are the code and the name of its element.
        for pattern, shown in (
            (self._quoting, lambda match: self._first[match[0]]),
            (quoted, self._text),
            (self._pattern, self._shown),
            (_ABSOLUTE, self._path),
            (_BELOW, self._below),
        ):
            parts[::3] = [pattern.sub(shown, part) for part in parts[::3]]
        return "".join(part for at, part in enumerate(parts) if at % 3 != 2)

    def message(self, line: str) -> str:
        """Return a line of stderr without names."""
        return self.text(_SKIPPED.sub(r"\1", line))

    def _text(self, match: re.Match[str]) -> str:
        quote = match[match.lastgroup or 0]
        content = html.unescape(match[0][len(quote) : -len(quote)])
        return f"{quote}{self._hash('text', content)}{quote}"

    def _path(self, match: re.Match[str]) -> str:
        return f"/{self._hash('path', match[0])}"

    def _below(self, match: re.Match[str]) -> str:
        names = (name if _KAFKAS.fullmatch(name) else self._hash("name", name) for name in match[2][1:].split("/"))
        return "/".join((match[1], *names))

    def _shown(self, match: re.Match[str]) -> str:
        if match.lastgroup == "path":
            return self._spelled[match[0]]
        return (self._foreign if match.lastgroup == "foreign" else self._topics)[match[0]]

    def run(self, run: Run) -> Run:
        """Return a run without its host, and without the options, which name files."""
        paths = tuple(self._paths.get(path, path) for path in map(absolute, run.paths))
        return replace(run, host="not shown", paths=paths, command=" ".join(("kseg doctor --redact", *paths)))

    @contextmanager
    def written(self, destination: AbstractContextManager[TextIO]) -> Iterator[TextIO]:
        """Yield a stream whose whole content is written to a destination without names."""
        with destination as out:
            whole = StringIO()
            yield whole
            out.write(self.text(whole.getvalue()))


def _checkpoint_topics(folders: Iterable[str]) -> Iterator[str]:
    """Yield the topics in the checkpoints of log directories. The folders of some were deleted."""
    for path in (os.path.join(folder, name) for folder in folders for name in _OFFSET_CHECKPOINTS):
        # A checkpoint that cannot be read is a message of the check.
        with suppress(KsegError):
            if local_files.is_file(path):
                with open_source(path, listed=True) as source:
                    yield from (entry.topic for _, entry in walk_offset_checkpoint(source))


def _foreign(log_dirs: Iterable[str]) -> Iterator[str]:
    """Yield the names of folders in log directories besides partitions."""
    for log_dir in log_dirs:
        # A folder that cannot be listed is a message of the check.
        with suppress(KsegError):
            for name, kind in () if is_url(log_dir) else local_files.entries(log_dir):
                if kind == "folder" and partition_of(name) is None:
                    yield name


def absolute(path: str) -> str:
    """Return a path by which it is found in a text; an address stays."""
    return path if is_url(path) or path == STDIN else os.path.abspath(path)


def _spellings(name: str) -> Iterator[str]:
    """Yield a path or a topic as it is written in text, in a page, in JSON and in a command."""
    quoted = shell_word(name)
    inside = quoted[2:-1] if quoted.startswith("$'") else name.replace("'", "'\"'\"'")
    for one in (name, escape_controls(name), quoted, inside):
        yield one
        yield html.escape(one)
        yield html.escape(one).encode("ascii", "xmlcharrefreplace").decode()
        yield json.dumps(one, ensure_ascii=False)[1:-1]
        yield json.dumps(one)[1:-1]
        yield as_json(one)[1:-1]
