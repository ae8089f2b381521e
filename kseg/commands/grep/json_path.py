"""Paths into JSON values: ``$.order.items[0].id``, and ``$.order.id=17`` with the value that a match must have.

The paths are those of RFC 9535 without slices, filters and lists of names: ``.name``, ``['name']``, ``[0]``, ``[-1]``,
``.*``, ``[*]``, ``..name``, ``..*`` and ``..[0]``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kseg.errors import UsageError
from kseg.format.record.byte_search import Needle

_STEP = re.compile(
    r"(?P<dots>\.\.?)(?:(?P<name>[^\W\d][\w-]*)|(?P<any>\*))"
    r"|(?P<deep>\.\.)?\[(?:(?P<index>-?\d{1,9})|(?P<every>\*)|'(?P<single>(?:[^'\\]|\\.)*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\")\]"
)
_INTEGER = re.compile(r"-?[0-9]+")
_ESCAPED = re.compile(r"\\(.)")
# JSON writes these characters in more than one way, besides \uNNNN.
_TWO_FORMS = re.compile(r'["\\/\x00-\x1f]')


@dataclass(frozen=True, slots=True)
class Step:
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

    steps: tuple[Step, ...]
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


def _step(match: re.Match[str]) -> Step:
    name = match["name"]
    for quoted in (match["single"], match["double"]):
        name = _ESCAPED.sub(r"\1", quoted) if quoted is not None else name
    deep = match["dots"] == ".." or match["deep"] is not None
    return Step(name, None if match["index"] is None else int(match["index"]), deep)


def _follow(values: Iterable[Any], step: Step) -> Iterator[Any]:
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
