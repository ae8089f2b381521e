"""Text: escaping of controls for outputs, JSON, and the ranges of offsets and times that options state.

Ranges are half-open, and any bound can be left out. The command line and Spark have the same.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from json import encoder as json_encoder
from json.encoder import JSONEncoder, encode_basestring
from typing import TYPE_CHECKING, Any, SupportsIndex

from kseg.engine import lazy
from kseg.errors import UsageError

if TYPE_CHECKING:
    import difflib
    import shlex
else:
    difflib = lazy("difflib")
    shlex = lazy("shlex")

# C0, DEL, C1, and the marks that change the direction of text. Patterns that few texts need are compiled at their use.
_CONTROLS = "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
# Bytes of a file name that are not UTF-8, as Python decodes them.
_CONTROLS_AND_BYTES = _CONTROLS[:-1] + "\udc80-\udcff]"


def _encoder() -> Callable[[object], str]:
    """Return ``JSONEncoder.encode`` without the encoder that it makes for each value: that takes a third of the time."""
    encoder = JSONEncoder(ensure_ascii=False, separators=(",", ":"))
    make: Any = getattr(json_encoder, "c_make_encoder", None)
    if make is None:
        return encoder.encode
    # No search for circles, no indentation; keys are neither sorted nor skipped; NaN is allowed.
    parts = make(None, encoder.default, encode_basestring, None, ":", ",", False, False, True)
    return lambda value: "".join(parts(value, 0))


_encode = _encoder()


def escape_controls(text: str) -> str:
    r"""Return text in which control characters, and bytes that are not UTF-8, are written as ``\xNN`` or ``\uNNNN``."""
    return text if text.isprintable() else re.sub(_CONTROLS_AND_BYTES, _escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else ascii(match[0])[1:-1]


def shell_word(text: str) -> str:
    """Return text as one word of a command of the shell, without control characters or bytes that are not UTF-8.

    Words with such characters are in the quotes of bash, zsh, ksh and POSIX 2024, in which they are written as bytes.
    """
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_quoted, text)) + "'"


def _quoted(character: str) -> str:
    if character.isprintable():
        return f"\\{character}" if character in "\\'" else character
    return "".join(f"\\x{byte:02x}" for byte in stored_bytes(character))


def shell_command(words: Iterable[str]) -> str:
    """Return words as a command of the shell."""
    return " ".join(map(shell_word, words))


def escape_json(text: str) -> str:
    r"""Return JSON that is safe on a terminal, and that readers accept which reject lone surrogates (RFC 8259, 8.2).

    JSON itself escapes C0. A byte of a file name that is not UTF-8 is the text ``\udcNN``, as in CSV and Parquet; a value
    of a record, which can have such characters, is for ``to_unicode_json``.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    return text if text.isprintable() else re.sub(_CONTROLS[:-1] + "\ud800-\udfff]", _escaped_in_json, text)


def _escaped_in_json(match: re.Match[str]) -> str:
    code = ord(match[0])
    if "\ud800" <= match[0] <= "\udfff":
        return f"\\\\u{code:04x}" if 0xDC80 <= code <= 0xDCFF else "\ufffd"
    return f"\\u{code:04x}"


def to_json(value: object) -> str:
    """Return a value as one line of JSON."""
    return escape_json(_encode(value))


def to_unicode_json(value: object) -> str:
    """Return a value of a record as one line of JSON in which lone surrogates are U+FFFD, as in ``unicode_text``."""
    return escape_json(unicode_text(_encode(value)))


def unicode_text(text: str) -> str:
    """Return a text in which lone surrogates are U+FFFD: JSON can have them as escapes, but a text of Arrow cannot."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def finite(value: Any) -> Any:
    """Return a number; NaN and the infinities as text, as in Protobuf's JSON: JSON lacks such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def text_or_json(value: object) -> str:
    """Return a text as it is, and any other value as one line of JSON."""
    return value if isinstance(value, str) else to_unicode_json(value)


def row_to_json(row: Mapping[str, object]) -> str:
    """Return a row as one line of JSON, faster than ``to_json`` does. The names of its fields need no escapes."""
    fields = [f'"{name}":{value if type(value) is int else _field(value)}' for name, value in row.items()]
    return "{" + ",".join(fields) + "}"


def _field(value: object) -> str:
    if value is None:
        return "null"
    return escape_json(encode_basestring(value)) if type(value) is str else to_json(value)


def encoded(text: str) -> bytes:
    """Return text as the bytes of every output: the bytes of a file name that is not UTF-8 are shown escaped."""
    return text.encode("utf-8", "backslashreplace")


def stored_bytes(text: str) -> bytes:
    """Return the bytes of a text, such as a file name, that was decoded with ``surrogateescape``.

    Other surrogates, which no such text has, are encoded, too.
    """
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def os_error_text(error: OSError) -> str:
    """Return the reason of an error without its number: ``x.log: No such file or directory``."""
    if not error.strerror:
        return str(error) or type(error).__name__
    return (
        f"{os.fsdecode(error.filename)}: {error.strerror}"
        if isinstance(error.filename, (str, bytes))
        else error.strerror
    )


def count_of(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 file``, ``2,048 batches``, ``3 entries``."""
    return f"{count:,} {noun if count == 1 else _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    hissing = noun.endswith(("ch", "s", "x")) and not noun.endswith("epoch")
    return noun + ("es" if hissing else "s")


_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def size_text(count: float) -> str:
    """Return a size with a unit: ``512 bytes``, ``1.5 MiB``."""
    if count < 1024:
        return count_of(int(count), "byte")
    for unit in _UNITS:
        count /= 1024
        if count < 1024 or unit == _UNITS[-1]:
            break
    return f"{count:,.1f} {unit}"


def duration(milliseconds: int) -> str:
    """Return a duration in seconds, hours or days: ``5 hours``."""
    hours = milliseconds // 3_600_000
    if not hours:
        return count_of(milliseconds // 1000, "second")
    return count_of(hours, "hour") if hours < 72 else count_of(hours // 24, "day")


def unknown_name(kind: str, name: str, known: Iterable[str], where: str = "") -> str:
    """Return an error such as ``unknown rule 'crc-mismach': did you mean crc-mismatch?``.

    If no known name is similar, the way out is ``where``, or the list of the known names.
    """
    names = list(known)
    near = difflib.get_close_matches(name, names, n=2, cutoff=0.6)
    near = near or [known for known in names if len(name) > 2 and name in known][:4]
    way_out = f"did you mean {' or '.join(near)}?" if near else where or f"expected {one_of(names)}"
    return f"unknown {kind} {name!r}: {way_out}"


def one_of(names: Sequence[str]) -> str:
    """Return ``a``, ``a or b``, ``a, b or c``."""
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def excerpt(text: str) -> str:
    """Return the first 80 characters of a text of a file in quotes; ``zeros`` if it has only bytes of zeros."""
    return f'"{escape_controls(text[:80])}"' if text.strip("\0") or not text else "zeros"


def shortened(text: str, most: int) -> str:
    """Return the first words of a text that have at most ``most`` characters: no number is cut."""
    return text if len(text) <= most else text[:most].rpartition(" ")[0] + " …"


def inclusive_range(noun: str, first: int, last: int) -> str:
    """Return an inclusive range: ``offset 5``, or ``offsets 5..7``."""
    return f"{noun} {first}" if first == last else f"{_plural(noun)} {first}..{last}"


def span(first: int | None, last: int | None) -> str:
    """Return the cell of an inclusive range: ``5..7``, ``?..7`` if its start is unknown, ``-`` without one.

    Numbers below 0 are not offsets: an index entry can claim one.
    """
    known = [at for at in (first, last) if at is not None and at >= 0]
    return f"{'?' if first is None else known[0]}..{known[-1]}" if known else "-"


def iso_time(timestamp: int) -> str:
    """Return a timestamp of Kafka as ISO 8601 in UTC. A negative one is not a time: the number itself."""
    return str(timestamp) if timestamp < 0 else calendar_time(timestamp)


def calendar_time(timestamp: int) -> str:
    """Return epoch milliseconds as ISO 8601 in UTC; outside of the years 1 to 9999 the number itself."""
    seconds, milliseconds = divmod(timestamp, 1000)
    try:
        year, month, day, hour, minute, second, *_ = time.gmtime(seconds)  # faster to import than datetime
    except (OverflowError, OSError, ValueError):
        return str(timestamp)
    if not 1 <= year <= 9999:
        return str(timestamp)
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z"


#: A text that begins with one of these characters can be a formula of a spreadsheet. In CSV an apostrophe before it
#: prevents that; so a text that begins with an apostrophe gets another one. Spreadsheets skip white space and a byte order
#: mark, and some read full-width signs as the ASCII ones.
FORMULA_STARTS = "=@+-\t\n\r'\N{NO-BREAK SPACE}\N{ZERO WIDTH NO-BREAK SPACE}\uff1d\uff0b\uff0d\uff20"
_WORD = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz.: "
#: The characters after a plus or minus of numbers, words and base64, which are harmless.
AFTER_PLUS, AFTER_MINUS = _WORD + "+/=", _WORD + "_"


def is_formula(texts: Iterable[str]) -> bool:
    """Return whether a spreadsheet could run a text, which is given in pieces, as a formula."""
    harmless: str | None = None
    for text in filter(None, texts):
        if harmless is None:
            if text[0] not in FORMULA_STARTS:
                return False
            harmless = {"+": AFTER_PLUS, "-": AFTER_MINUS}.get(text[0], "")
            text = text[1:]
        if text.strip(harmless) if harmless else text:
            return True
    return False


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NUMBER = re.compile(r"-?[0-9]{1,19}")
_MILLISECOND = timedelta(milliseconds=1)
# A year or a date without hyphens. As epoch milliseconds it is a time of the first days of 1970, which nobody means.
_BARE_DATE = re.compile(r"((?:19|20)[0-9]{2})(?:(0[1-9]|1[0-2])([0-3][0-9]))?")
_DAY = 86_400_000
_UNITS_OF_TIME = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": _DAY, "w": 7 * _DAY}
_AGO = (
    r"-?([0-9]{1,6}) ?(?:(s)(?:ec(?:ond)?s?)?|(m)(?:in(?:ute)?s?)?|(h)(?:ours?)?|(d)(?:ays?)?|(w)(?:eeks?)?)(?: ago)?"
)


def parse_offsets(text: str) -> tuple[int | None, int | None]:
    """Return the first offset and the end (exclusive) of ``A:B``, ``A:``, ``:B``, ``A`` or ``A..B``. Raises ValueError.

    ``A`` is one offset. ``A..B`` includes B, as tables print ranges.
    """
    exclusive = ":" in text
    first, _, end = (part.strip() for part in text.partition(":" if exclusive else ".."))
    if not exclusive and ".." not in text:
        end = first
    try:
        bounds = int(first) if first else None, int(end) + (not exclusive) if end else None
    except ValueError:
        bounds = None, None
    if bounds[0] is not None and bounds[0] < 0 and bounds[1] is None:
        raise ValueError(f"offsets begin at 0: --last N shows the last rows, got {text!r}")
    if bounds == (None, None) or (not exclusive and None in bounds):
        raise ValueError(f"expected A:B (B is exclusive), A:, :B, A or A..B, got {text!r}")
    if bounds[0] is not None and bounds[1] is not None and bounds[0] >= bounds[1]:
        raise ValueError(f"expected A < B in A:B (B is exclusive), got {text!r}")
    return bounds


#: A partition, None for all; the first offset, and the end (exclusive), None where it is open.
PartitionOffsets = tuple[int | None, int | None, int | None]


def parse_partition_offsets(text: str) -> PartitionOffsets:
    """Return the partition and the offsets of ``[P:]A:B``. Raises ValueError."""
    partition, _, rest = text.partition(":")
    if ":" not in rest:
        return (None, *parse_offsets(text))
    if not partition.isdecimal():
        raise ValueError(f"expected [P:]A:B, a partition number and offsets, got {text!r}")
    return (int(partition), *parse_offsets(rest))


def parse_time(text: str, now: int | None = None) -> int:
    """Return the epoch milliseconds of an ISO 8601 time (UTC without a zone) or of a number. Raises ValueError.

    A number that looks like a year or a date is an error. With ``now`` (epoch milliseconds), text can also be ``now``,
    ``today``, ``yesterday`` (their start in UTC) and the time since then, such as ``2h`` or ``3 days ago``. A time between
    two milliseconds is the later one: timestamps have milliseconds, and those from then on are the same.
    """
    if bare := _BARE_DATE.fullmatch(text):
        day = "-".join(part or "01" for part in bare.groups())
        raise ValueError(f"expected {day} for a date, or 0{text} for epoch milliseconds, got {text!r}")
    if _NUMBER.fullmatch(text) and abs(int(text)) < 1 << 63:
        return int(text)
    if now is not None and (relative := _relative_time(text.strip().lower(), now)) is not None:
        return relative
    try:
        return -((_EPOCH - _with_zone(datetime.fromisoformat(text.strip()))) // _MILLISECOND)
    except (ValueError, OverflowError):
        words = "" if now is None else ", 2h, yesterday"
        raise ValueError(
            f"expected ISO 8601, such as 2024-05-01T12:00:00Z{words}, or epoch milliseconds, got {text!r}"
        ) from None


def parse_time_or_word(text: str) -> int:
    """Return ``parse_time`` of a text that can be relative to the current time."""
    return parse_time(text, time.time_ns() // 1_000_000)


#: A time in the library: epoch milliseconds, a datetime (UTC without a zone), a date, or a text for ``parse_time_or_word``.
Time = int | str | date


def epoch_time(name: str, given: Time | None) -> int | None:
    """Return the epoch milliseconds of a time. ``name`` is that of the argument. Raises UsageError."""
    if given is None or isinstance(given, int):
        return given
    text = given.isoformat() if isinstance(given, date) else given
    if not isinstance(text, str):
        raise UsageError(f"{name}: expected epoch milliseconds as an int, a datetime or a text, not {given!r}")
    try:
        return parse_time_or_word(text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


def check_number(name: str, given: int | None, least: int | None = None) -> None:
    """Raise UsageError for an argument that is no whole number, or not from ``least`` to 2^63. None is not an argument."""
    if given is not None and not (isinstance(given, SupportsIndex) and (least is None or least <= given < 1 << 63)):
        below = least is not None and isinstance(given, int) and given >= least
        limit = " below 2^63" if below else "" if least is None else f" of at least {least}"
        raise UsageError(f"{name}: expected a whole number{limit}, got {given!r}")


def as_bytes(name: str, given: str | bytes) -> bytes:
    """Return the bytes of an argument that is a text or bytes. Raises UsageError."""
    if isinstance(given, str):
        return stored_bytes(given)
    if not isinstance(given, (bytes, bytearray, memoryview)):
        raise UsageError(f"{name}: expected bytes or a text, got {given!r}")
    return bytes(given)


#: Times that ``parse_time_or_word`` accepts, as examples.
TIMES = ("1h", "24h", "7d", "today", "yesterday", "now")


def _relative_time(text: str, now: int) -> int | None:
    """Return the epoch milliseconds of a word or of a time before ``now``; None for another text."""
    days_ago = {"today": 0, "yesterday": 1}.get(text)
    if days_ago is not None:
        return (now // _DAY - days_ago) * _DAY
    if text == "now":
        return now
    found = re.fullmatch(_AGO, text)
    if found is None:
        return None
    return now - int(found[1]) * _UNITS_OF_TIME[next(filter(None, found.groups()[1:]))]


def milliseconds(moment: datetime) -> int:
    """Return epoch milliseconds, rounded down; a time without a zone is UTC."""
    return (_with_zone(moment) - _EPOCH) // _MILLISECOND


def _with_zone(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
