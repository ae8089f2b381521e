"""Random conditions of ``--where``, each with the answer of plain Python for a record: true, false or None for unknown."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from operator import eq, ge, gt, lt, ne
from random import Random
from typing import Any, NamedTuple

from kseg.format.writer.records_builder import PlainRecord
from tests.support.searched_logs import WORDS

#: SQL's NULL is None.
Answer = bool | None


class Place(NamedTuple):
    """A record and the partition that it was written to."""

    topic: str
    partition: int
    record: PlainRecord


class Condition(NamedTuple):
    """A condition in SQL, and its answer for a record."""

    sql: str
    answer: Callable[[Place], Answer]


_COMPARE: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "<>": ne, "<": lt, ">": gt, ">=": ge}
_PATHS: Sequence[tuple[str, tuple[str | int, ...]]] = (
    ("id", ("id",)), ("name", ("name",)), ("nested.id", ("nested", "id")), ("tags[0]", ("tags", 0)),
    ("tags[-1]", ("tags", -1)), ("nested['name']", ("nested", "name")), ("price", ("price",)), ("ok", ("ok",)),
    ("nowhere.else", ("nowhere", "else")),
)  # fmt: skip


def random_condition(random: Random, depth: int = 2) -> Condition:
    """Return a condition of one to four parts."""
    kind = random.random()
    if not depth or kind < 0.4:
        return random.choice((_of_key, _of_value, _of_path, _of_path, _of_header, _of_number))(random)
    if kind < 0.5:
        inner = random_condition(random, depth - 1)
        return Condition(f"not ({inner.sql})", lambda place: _negated(inner.answer(place)))
    left, right = random_condition(random, depth - 1), random_condition(random, depth - 1)
    if kind < 0.8:
        return Condition(f"({left.sql}) and ({right.sql})", lambda place: _and(left.answer(place), right.answer(place)))
    return Condition(
        f"({left.sql}) or ({right.sql})",
        lambda place: _negated(_and(_negated(left.answer(place)), _negated(right.answer(place)))),
    )


def as_text(data: bytes | None) -> str | None:
    """Return bytes as the fields have them: UTF-8 as it is, other bytes in base64."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data or b"").decode()


def _negated(answer: Answer) -> Answer:
    return None if answer is None else not answer


def _and(left: Answer, right: Answer) -> Answer:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _compared(sign: str, found: Any, wanted: Any) -> Answer:
    return None if found is None else _COMPARE[sign](found, wanted)


def _text(random: Random) -> str:
    return random.choice((*WORDS, "key-3", "/wA=", "/wA", "alpha beta", "_w"))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _of_key(random: Random) -> Condition:
    text = _text(random)
    if random.random() < 0.2:
        return Condition("key is null", lambda place: place.record.key is None)
    if random.random() < 0.3:
        texts = [text, _text(random)]
        return Condition(
            f"key in ({', '.join(map(_literal, texts))})",
            lambda place: None if place.record.key is None else as_text(place.record.key) in texts,
        )
    sign = random.choice(tuple(_COMPARE))
    if not text.isascii():  # an order of texts is by bytes
        sign = "="
    return Condition(f"key {sign} {_literal(text)}", lambda place: _compared(sign, as_text(place.record.key), text))


def _of_value(random: Random) -> Condition:
    text = random.choice((_text(random), "lph", "Al", random.choice(("AAAA", "eyJ", "w8", "fQ=="))))
    form = random.choice(
        ("contains(value, {0})", "value like '%' || {0} || '%'", "value like {1}", "starts_with(value, {0})")
    )
    if "%" in text or "_" in text:
        form = "contains(value, {0})"

    def answer(place: Place) -> Answer:
        value = as_text(place.record.value)
        return None if value is None else value.startswith(text) if form.startswith("starts") else text in value

    return Condition(form.format(_literal(text), _literal(f"%{text}%")), answer)


def _json(data: bytes | None, steps: Sequence[str | int]) -> Any:
    """Return the value at a path; None if there is none, and for null."""
    try:
        found = json.loads(as_text(data) or "")
    except ValueError:
        return None
    for step in steps:
        if isinstance(step, str) and isinstance(found, dict):
            found = found.get(step)
        elif isinstance(step, int) and isinstance(found, list) and -len(found) <= step < len(found):
            found = found[step]
        else:
            return None
    return found


def _of_path(random: Random) -> Condition:
    path, steps = random.choice(_PATHS)
    kind = random.choice(("number", "text", "bool", "null", "in"))

    def found(place: Place) -> Any:
        return _json(place.record.value, steps)

    def text_of(place: Place) -> str | None:
        value = found(place)
        return value if value is None or isinstance(value, str) else json.dumps(value, separators=(",", ":"))

    if kind == "number":
        number, sign = random.choice((17, -3, 0, 1.5, 16.5)), random.choice(tuple(_COMPARE))

        def is_number(place: Place) -> Answer:
            value = found(place)
            numeric = isinstance(value, (int, float)) and not isinstance(value, bool)
            return _COMPARE[sign](value, number) if numeric else None

        return Condition(f"value.{path} {sign} {number}", is_number)
    if kind == "bool":
        return Condition(f"value.{path}", lambda place: value if isinstance(value := found(place), bool) else None)
    if kind == "null":
        return Condition(f"value.{path} is null", lambda place: found(place) is None)
    texts = [_text(random) for _ in range(1 + (kind == "in"))]
    sql = (
        f"value.{path} in ({', '.join(map(_literal, texts))})"
        if kind == "in"
        else f"value.{path} = {_literal(texts[0])}"
    )
    return Condition(sql, lambda place: None if (text := text_of(place)) is None else text in texts)


def _of_header(random: Random) -> Condition:
    name, text = random.choice(WORDS), _text(random)

    def last(place: Place) -> str | None:
        values = [header.value for header in place.record.headers if header.key == name]
        return as_text(values[-1]) if values else None

    if random.random() < 0.3:
        return Condition(f"headers[{_literal(name)}] is null", lambda place: last(place) is None)
    return Condition(f"headers[{_literal(name)}] = {_literal(text)}", lambda place: _compared("=", last(place), text))


def _of_number(random: Random) -> Condition:
    number, sign = random.randrange(60), random.choice(tuple(_COMPARE))
    fields: dict[str, tuple[str, Callable[[Place], int | None]]] = {
        "offset": (str(number), lambda place: place.record.offset),
        "partition": (str(number % 3), lambda place: place.partition),
        "timestamp_ms": (str(1_700_000_000_000 + number), lambda place: _time(place)),
        "key_size": (str(number % 8), lambda place: None if place.record.key is None else len(place.record.key)),
        "value_size": (str(number), lambda place: None if place.record.value is None else len(place.record.value)),
    }
    name = random.choice(tuple(fields))
    text, value = fields[name]
    return Condition(f"{name} {sign} {text}", lambda place: _compared(sign, value(place), int(text)))


def _time(place: Place) -> int | None:
    return None if place.record.timestamp == -1 else place.record.timestamp
