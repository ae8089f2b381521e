"""Ranges of offsets and times: the command line and Spark accept the same texts and reject others with the same words."""

from __future__ import annotations

import pytest

from kseg.errors import UsageError
from kseg.text import parse_offsets, parse_time, parse_time_or_word
from tests.support.cli import invoke

NOON = 1714564800000  # 2024-05-01T12:00:00Z


@pytest.mark.parametrize(
    ("text", "bounds"),
    [("3:7", (3, 7)), ("3:", (3, None)), (":7", (None, 7)), (" 3 : 7 ", (3, 7)), ("-1:1", (-1, 1)),
     ("7", (7, 8)), ("-1", (-1, 0)), ("3..7", (3, 8)), ("7..7", (7, 8))],
)  # fmt: skip
def test_offsets_are_half_open(text: str, bounds: tuple[int | None, int | None]) -> None:
    """One bound can be left out. One number is one offset. Two dots include the end, as in tables."""
    assert parse_offsets(text) == bounds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2024-05-01T12:00:00Z", NOON), ("2024-05-01T12:00", NOON), ("2024-05-01T14:00+02:00", NOON),
        (str(NOON), NOON), ("-1", -1), ("02024", 2024),
        ("2024-05-01T12:00:00.0001Z", NOON + 1), ("1969-12-31T23:59:59.9999", 0),
    ],
)  # fmt: skip
def test_times_are_epoch_milliseconds(text: str, milliseconds: int) -> None:
    """UTC without a zone. A bound between two milliseconds separates the same timestamps as the later one."""
    assert parse_time(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "before_noon"),
    [
        ("2h", 7_200_000), ("90s", 90_000), ("1 min", 60_000), ("2 hours ago", 7_200_000),
        ("-30m", 1_800_000), ("1d", 86_400_000),
        ("2w", 14 * 86_400_000), ("now", 0), ("today", 43_200_000), ("yesterday", 129_600_000), ("0s", 0),
        ("2024-05-01 10:00", 7_200_000), (str(NOON), 0),
    ],
)  # fmt: skip
def test_words_are_times_before_now(text: str, before_noon: int) -> None:
    """Days begin in UTC, as all times that are printed."""
    assert parse_time(text, NOON) == NOON - before_noon


def test_only_the_command_line_has_words() -> None:
    """A job of Spark reads its options more than once, on several machines: a word would have several meanings there."""
    with pytest.raises(ValueError, match="expected ISO 8601"):
        parse_time("2h")
    assert parse_time_or_word("2024-05-01 12:00") == NOON
    done = invoke("dump", "--since", "2h", "--until", "now", "missing")
    assert "missing: No such file" in done.stderr


WRONG = [
    *(("offsets", text) for text in ("", ":", "a", "a:b", "1:2:3", "0x1:", "7:7", "7:3", "..", "7..", "7..3")),
    *(("since", text) for text in ("", "tomorrow", "--5", "9" * 30, "2024-13-01", "²", "2024", "20240501")),
]


@pytest.mark.parametrize(("option", "text"), WRONG)
def test_the_same_texts_are_rejected_with_the_same_words(option: str, text: str) -> None:
    """The usage error names the option, the accepted texts and the given text."""
    pytest.importorskip("pyspark")
    from kseg.spark import options

    with pytest.raises(ValueError, match="expected") as raised:
        (parse_offsets if option == "offsets" else parse_time)(text)
    with pytest.raises(ValueError, match="expected") as by_words:
        (parse_offsets if option == "offsets" else parse_time_or_word)(text)
    assert repr(text) in str(raised.value)
    with pytest.raises(UsageError) as by_spark:
        options.parse({"path": "x", option: text})
    assert str(by_spark.value) == f"option {option}: {raised.value}"
    by_command = invoke("dump", f"--{option}={text}", "x")
    assert by_command.exit_code == 2
    assert f"'--{option}': {by_words.value}" in by_command.stderr
