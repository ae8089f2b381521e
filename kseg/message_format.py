"""The messages of findings: the templates of ``kseg.rule_table``, filled with facts."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

from kseg.rule_table import RANGES, Rule
from kseg.text import count_of, inclusive_range, iso_time


class _MessageFormatter(string.Formatter):
    """Formats the templates of the rules; ``kseg.rule_table`` describes their fields."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if key in RANGES:
            return inclusive_range(str(key)[:-1], kwargs["first"], kwargs["last"])
        return super().get_value(key, args, kwargs)

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "time":
            return iso_time(value)
        is_noun = format_spec.replace(" ", "").isalpha() and len(format_spec) > 1
        return count_of(value, format_spec) if is_noun else format(value, format_spec)


_formatter = _MessageFormatter()


def message_of(rule: Rule, facts: Mapping[str, Any]) -> str:
    """Return the message of a rule with the facts, one line of text."""
    return _formatter.vformat(rule.message, (), facts)
