"""Text as Kafka's readers of small files get it from Java: lines, numbers, fields and properties.

Sources: ``BufferedReader.readLine``, ``Integer.parseInt``, ``Pattern.split``, ``String.trim`` and ``Properties.load``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LINE_END = re.compile(r"\r\n|\r|\n")
LINE_END_BYTES = re.compile(LINE_END.pattern.encode())
#: ``\\s+`` of Java: Python's has more characters.
WHITE_SPACE = re.compile(r"[ \t\n\x0b\f\r]+")
# Character.digit knows the digits of all scripts, and parseInt looks at single UTF-16 units.
_NUMBER = re.compile("[+-]?[^\\D\U00010000-\U0010ffff]+")
_LONGEST_NUMBER = 1000
_TRIMMED = "".join(map(chr, range(0x21)))

# The key ends at the first separator that no backslash escapes. One "=" or ":" belongs to the separator.
_PROPERTY = re.compile(r"((?:\\.|[^ \t\f:=\\])*)[ \t\f]*[:=]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class FileFault(Exception):
    """A fault for which Kafka's reader throws an IOException. ``str(fault)`` is the reason in one line."""


class UncheckedFault(FileFault):
    """A fault for which it throws a RuntimeException, which callers that catch an IOException don't catch."""


class MemoryFault(UncheckedFault):
    """A fault that ends in an OutOfMemoryError, which callers that catch an Exception don't catch."""


def decoded(data: bytes) -> str:
    """Return bytes as text. Raises FileFault."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise FileFault(f"the file is not UTF-8 at byte {error.start}") from error


def lines_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (byte, line) of each line of a small file, without its end."""
    at = 0
    for end in LINE_END_BYTES.finditer(data):
        yield at, data[at : end.start()]
        at = end.end()
    if at < len(data):
        yield at, data[at:]


def split(pattern: re.Pattern[str], line: str) -> list[str]:
    """Split like ``Pattern.split``: empty fields at the end are left out."""
    fields = pattern.split(line)
    while len(fields) > 1 and not fields[-1]:
        fields.pop()
    return fields


def number(text: str, largest: int) -> int | None:
    """Parse like ``Integer.parseInt`` or ``Long.parseLong``; None if these throw."""
    value = int(text) if len(text) < _LONGEST_NUMBER and _NUMBER.fullmatch(text) else None
    return value if value is not None and -largest - 1 <= value <= largest else None


def trimmed(text: str) -> str:
    """Trim like ``String.trim``."""
    return text.strip(_TRIMMED)


def properties(text: str) -> dict[str, str]:
    """Return the entries of a properties file. Raises UncheckedFault for an incomplete escape."""
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        if match := _PROPERTY.fullmatch(line):
            values[_unescaped(match[1])] = _unescaped(match[2])
    return values


def _logical_lines(text: str) -> Iterator[str]:
    r"""Yield the lines without comments. A line that ends in an odd number of ``\`` continues on the next one."""
    whole = ""
    for line in LINE_END.split(text):
        line = line.lstrip(" \t\f")
        if not whole and (not line or line[0] in "#!"):
            continue
        continued = (len(line) - len(line.rstrip("\\"))) % 2
        whole += line[: len(line) - continued]
        if not continued:
            yield whole
            whole = ""
    if whole:
        yield whole


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text

    def character(at: re.Match[str]) -> str:
        if at[2] == "u":
            raise UncheckedFault("a \\u is not followed by four hexadecimal digits")
        return chr(int(at[1], 16)) if at[1] else _CONTROLS.get(at[2], at[2])

    # Two escapes can be the halves of one character.
    return _ESCAPED.sub(character, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
