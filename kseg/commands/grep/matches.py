"""Find the records that match: patterns or a path into JSON, in the fields that are searched.

Paths into JSON values: ``$.order.items[0].id``, and ``$.order.id=17`` with the value that a match must have.

The paths are those of RFC 9535 without slices, filters and lists of names: ``.name``, ``['name']``, ``[0]``, ``[-1]``,
``.*``, ``[*]``, ``..name``, ``..*`` and ``..[0]``.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from kseg.commands.grep import text_patterns
from kseg.commands.grep.text_patterns import MatchClock, classes_of
from kseg.errors import UsageError
from kseg.format.record.memory import ByteClasses, Needle
from kseg.format.segment.records_chunk import Chunk
from kseg.format.segment.row_filter import RecordCondition, among_rows, rows_with
from kseg.text import text_or_json

if TYPE_CHECKING:
    from kseg.extras.serialization.record_decoder import RecordDecoder


#: The pattern of a name in quotes in a path. ``unquoted`` returns the name.
QUOTED = r"'(?P<single>(?:[^'\\]|\\.)*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\""
_STEP = re.compile(
    r"(?P<dots>\.\.?)(?:(?P<name>[^\W\d][\w-]*)|(?P<any>\*))"
    rf"|(?P<deep>\.\.)?\[(?:(?P<index>-?\d{{1,9}})|(?P<every>\*)|{QUOTED})\]"
)
_INTEGER = re.compile(r"-?[0-9]+")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
# JSON writes these characters in more than one way, besides \uNNNN.
_TWO_FORMS = re.compile(r'["\\/\x00-\x1f]')


@dataclass(frozen=True, slots=True)
class PathStep:
    """A step of a path: the ``name`` of a member, the ``index`` of an item, or without both all members and items.

    ``deep``: of the value, and of all values in it.
    """

    name: str | None = None
    index: int | None = None
    deep: bool = False


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path, and the text of the value that it must lead to: None for any value.

    A string has this value if it is the text, another value if its JSON is the same. ``90`` and ``90.0`` are different.
    """

    steps: tuple[PathStep, ...]
    wanted: str | None = None

    def select(self, value: Any) -> Iterator[Any]:
        """Yield the values that the path leads to in a JSON value, and that have the wanted value."""
        found: Iterable[Any] = (value,)
        for step in self.steps:
            found = _follow(found, step)
        if self.wanted is None:
            yield from found
            return
        text, json_text = self.wanted, _canonical(self.wanted)
        for candidate in found:
            if candidate == text if isinstance(candidate, str) else _to_json(candidate) == json_text:
                yield candidate

    def needles(self) -> tuple[Needle, ...] | None:
        """Return needles of which one is in each JSON text with a match; None if no text must be in it.

        A string can be written with escapes, so the beginning of an escape is a needle, too.
        """
        texts = [step.name for step in self.steps if step.name]
        same = _canonical(self.wanted) if self.wanted else self.wanted
        # Other JSON than an integer can be written in more than one way.
        if self.wanted and (same is None or (same == self.wanted and _INTEGER.fullmatch(same))):
            texts.append(self.wanted)
        fixed = [text for text in texts if not _TWO_FORMS.search(text)]
        if not fixed:
            return None
        return Needle(max(fixed, key=len).encode("utf-8", "surrogateescape")), Needle(rb"\u")


def parse_json_path(text: str) -> JsonPath:
    """Return the path ``$…``, with ``=VALUE`` after it or not. Raises UsageError."""
    if not text.startswith("$"):
        raise UsageError(f"--json-path: expected a path such as $.order.id or $.order.id=17, got {text!r}")
    steps, at = [], 1
    while at < len(text) and text[at] != "=":
        match = _STEP.match(text, at)
        if not match:
            raise UsageError(
                f"--json-path: cannot read {text[at:]!r} in {text!r}: expected .name, ['name'], [0], .*, [*] or ..name"
            )
        steps.append(_step(match))
        at = match.end()
    return JsonPath(tuple(steps), text[at + 1 :] if at < len(text) else None)


def unquoted(match: re.Match[str]) -> str | None:
    """Return the name in a match of a pattern with QUOTED, None if it has no name in quotes."""
    quoted = match["double"] if match["single"] is None else match["single"]
    return None if quoted is None else _ESCAPED.sub(r"\1", quoted)


def _step(match: re.Match[str]) -> PathStep:
    quoted = unquoted(match)
    name = match["name"] if quoted is None else quoted
    deep = match["dots"] == ".." or match["deep"] is not None
    return PathStep(name, None if match["index"] is None else int(match["index"]), deep)


def _follow(values: Iterable[Any], step: PathStep) -> Iterator[Any]:
    for value in values:
        for inner in _with_descendants(value) if step.deep else (value,):
            if step.name is not None:
                if isinstance(inner, dict) and step.name in inner:
                    yield inner[step.name]
            elif step.index is not None:
                if isinstance(inner, list) and -len(inner) <= step.index < len(inner):
                    yield inner[step.index]
            elif isinstance(inner, (dict, list)):
                yield from inner.values() if isinstance(inner, dict) else inner


def _with_descendants(value: Any) -> Iterator[Any]:
    """Yield a value and all values in it, without a recursion: JSON from files can be deep."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        yield value
        if isinstance(value, (dict, list)):
            waiting += reversed(value.values() if isinstance(value, dict) else value)


def _canonical(text: str) -> str | None:
    """Return JSON in the form of ``_to_json``, None if the text is not JSON."""
    try:
        return _to_json(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


#: The fields that can be searched.
FIELDS = ("key", "value", "header-key", "header-value")
_SIDES = {"key", "value"}
#: A shorter text, in bytes, is searched for only if no classes of bytes are known.
_LEAST_TEXT = 3


@dataclass(frozen=True, slots=True)
class GrepQuery:
    """What ``kseg grep`` looks for.

    A record matches if one of ``fields`` matches one of ``patterns`` (Python's regular expressions; with ``literal``
    texts), or if the fields have all ``json_paths``. With both, a pattern must match a value that one of the paths leads
    to. ``whole``: the match
    must be the whole field. ``invert`` selects the other records. Only records that fulfil all ``conditions`` are searched.
    """

    patterns: tuple[str, ...] = ()
    literal: bool = False
    ignore_case: bool = False
    whole: bool = False
    invert: bool = False
    fields: tuple[str, ...] = FIELDS
    json_paths: tuple[JsonPath, ...] = ()
    conditions: tuple[RecordCondition, ...] = ()

    @property
    def has_pattern(self) -> bool:
        """Return whether the content of fields is searched."""
        return bool(self.patterns or self.json_paths)

    @property
    def reads_contents(self) -> bool:
        """Return whether keys or values are searched, also decoded ones."""
        return self.has_pattern and not _SIDES.isdisjoint(self.fields)


class RecordGrep(RecordCondition):
    """The search for a query in records of a topic. Raises UsageError for a pattern that is not one.

    With a ``decoder`` the decoded keys and values are searched: texts as they are, other values as JSON.

    ``unread`` is the number of records that Python's reader of JSON cannot read, although they can be valid: nested too
    deeply, or with a number of too many digits. ``first_unread`` is the offset of the first one.
    """

    def __init__(
        self,
        query: GrepQuery,
        decoder: RecordDecoder | None = None,
        topic: str | None = None,
        clock: MatchClock | None = None,
    ) -> None:
        self.query = query
        self.clock = clock or MatchClock()
        self.patterns = tuple(_compiled(text, query) for text in query.patterns)
        self._tests = [pattern.fullmatch if query.whole else pattern.search for pattern in self.patterns]
        self._fields = [_BYTES_OF[name] for name in query.fields]
        self._decoder = decoder
        self._topic = topic
        self.unread = 0
        self.first_unread: int | None = None
        self._last_unread = -1
        self._undecoded: set[int] = set()

    def rows(self, chunk: Chunk, among: Sequence[int]) -> Sequence[int]:
        """Return those of the rows ``among`` whose records match, in their order. The conditions are those of the filter."""
        if not self.query.has_pattern:
            return among
        candidates = among
        if self._needles is not None:
            candidates = among_rows(rows_with(chunk, self._needles), chunk, among)
        self._undecoded.clear()
        matching = [i for i in candidates if self._found(chunk, i)]
        self.clock.text = None
        if self.query.invert:
            left_out = self._undecoded.union(matching)
            return [i for i in among if i not in left_out]
        return matching

    def matches(self, chunk: Chunk, i: int) -> Iterator[tuple[str, str]]:
        """Yield the matches in record ``i``: the name of the field and the text that matches."""
        if not self.query.has_pattern:
            for condition in self.query.conditions:
                yield from condition.matches(chunk, i)
            return
        for name, text in self._texts(chunk, i):
            if not self.patterns:
                yield name, text
            for start, end in self.spans(text):
                yield name, text[start:end]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield start and end of the matches in a text; those of several patterns can overlap."""
        self.clock.text = text
        self.clock.steps += 1
        for pattern in self.patterns:
            if self.query.whole:
                if pattern.fullmatch(text):
                    yield 0, len(text)
            else:
                for match in pattern.finditer(text):
                    self.clock.steps += 1
                    yield match.span()
        self.clock.text = None

    def _found(self, chunk: Chunk, i: int) -> bool:
        """Return whether record ``i`` matches: as ``matches``, in half the time."""
        if self._decoder is not None or self.query.json_paths:
            return any(True for _ in self.matches(chunk, i))
        clock, tests = self.clock, self._tests
        for fields_of in self._fields:
            for data in fields_of(chunk, i):
                if data is not None:
                    clock.text = text = str(data, "utf-8", "surrogateescape")
                    clock.steps += 1
                    for test in tests:
                        if test(text):
                            return True
        return False

    @cached_property
    def _needles(self) -> tuple[Needle | ByteClasses, ...] | None:
        """Needles of which one is in each record with a match; None if that is not known."""
        if self._decoder is not None:
            return None
        if self.query.json_paths:
            known = [needles for path in self.query.json_paths if (needles := path.needles())]
            return max(known, key=lambda needles: len(needles[0]), default=None)
        return text_patterns.either([_needles_of(pattern) for pattern in self.patterns])

    def _texts(self, chunk: Chunk, i: int) -> Iterator[tuple[str, str]]:
        """Yield the name of each field of record ``i`` and the text that is searched in it.

        This is the only place where bytes become text. Null fields are left out. With paths, these are the values that
        they lead to, if each of them leads to one.
        """
        known = self._decoded(chunk, i) if self._decoder else {}
        paths = self.query.json_paths
        found: list[list[tuple[str, str]]] = [[] for _ in paths]
        for name in self.query.fields:
            for data in _BYTES_OF[name](chunk, i):
                if data is None:
                    continue
                if not paths:
                    yield name, text_or_json(known[name]) if name in known else _text(data)
                    continue
                try:
                    value = known[name] if name in known else json.loads(_text(data))
                    for path, texts in zip(paths, found, strict=True):
                        texts += ((name, text_or_json(text)) for text in path.select(value))
                except json.JSONDecodeError:
                    pass
                except (ValueError, RecursionError):
                    self._count_unread(chunk.lists.offset[i])
        if all(found):
            yield from chain.from_iterable(found)

    def add_unread(self, count: int, first: int | None) -> None:
        """Count records that cannot be read. ``first`` is the offset of the first one, None without one."""
        self.unread += count
        if self.first_unread is None:
            self.first_unread = first

    def _count_unread(self, offset: int) -> None:
        """Count a record once: the records that match are read again, to show them."""
        if offset > self._last_unread:
            self._last_unread = offset
            self.add_unread(1, offset)

    def _decoded(self, chunk: Chunk, i: int) -> dict[str, Any]:
        """Return the decoded key and the decoded value of record ``i``, without those that cannot be decoded."""
        assert self._decoder
        both = [*zip(("key", "value"), self._decoder.of_record(self._topic, chunk, i), strict=True)]
        if any(found.unread is not None and name in self.query.fields for name, found in both):
            self._undecoded.add(i)  # it is not known whether the record matches
        return {name: found.value for name, found in both if found.kind and not found.error}


def _needles_of(pattern: re.Pattern[str]) -> tuple[Needle | ByteClasses, ...] | None:
    """Return texts or classes of bytes of which each match contains one. A short text is in many records."""
    texts = text_patterns.needles_of(pattern)
    if texts and min(len(needle) for needle in texts) >= _LEAST_TEXT:
        return texts
    classes = classes_of(pattern)
    return (classes,) if classes else texts


def _text(data: bytes) -> str:
    """Return bytes as text; bytes that are not UTF-8 are lone surrogates, which match nothing but themselves."""
    return str(data, "utf-8", "surrogateescape")


def _compiled(text: str, query: GrepQuery) -> re.Pattern[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as "possible nested set"
            return re.compile(re.escape(text) if query.literal else text, re.IGNORECASE if query.ignore_case else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"{text!r} is not a regular expression: {error}; -F searches for the text itself") from None


def _header_keys(chunk: Chunk, i: int) -> Iterator[bytes]:
    return (bytes(key) for key, _ in _headers(chunk, i))


def _header_values(chunk: Chunk, i: int) -> Iterator[bytes | None]:
    return (None if value is None else bytes(value) for _, value in _headers(chunk, i))


def _headers(chunk: Chunk, i: int) -> Iterator[tuple[memoryview, memoryview | None]]:
    return chunk.header_fields(i) if chunk.lists.header_count[i] else iter(())


_BYTES_OF: dict[str, Callable[[Chunk, int], Iterator[bytes | None]]] = {
    "key": lambda chunk, i: iter((chunk.key(i),)),
    "value": lambda chunk, i: iter((chunk.value(i),)),
    "header-key": _header_keys,
    "header-value": _header_values,
}
