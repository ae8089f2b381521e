"""Ranges of offsets and times: the command line and Spark accept the same texts and reject others with the same words."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from kseg.cli.main import main
from kseg.errors import UsageError
from kseg.text import parse_offsets, parse_time

NOON = 1714564800000  # 2024-05-01T12:00:00Z


@pytest.mark.parametrize(
    ("text", "bounds"),
    [("3:7", (3, 7)), ("3:", (3, None)), (":7", (None, 7)), (" 3 : 7 ", (3, 7)), ("-1:1", (-1, 1))],
)
def test_offsets_are_half_open(text: str, bounds: tuple[int | None, int | None]) -> None:
    """One bound can be left out."""
    assert parse_offsets(text) == bounds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("2024-05-01T12:00:00Z", NOON), ("2024-05-01T12:00", NOON), ("2024-05-01T14:00+02:00", NOON),
        (str(NOON), NOON), ("-1", -1), ("2024-05-01T12:00:00.0001Z", NOON + 1), ("1969-12-31T23:59:59.9999", 0),
    ],
)  # fmt: skip
def test_times_are_epoch_milliseconds(text: str, milliseconds: int) -> None:
    """UTC without a zone. A bound between two milliseconds separates the same timestamps as the later one."""
    assert parse_time(text) == milliseconds


WRONG = [
    *(("offsets", text) for text in ("", ":", "7", "a:b", "1:2:3", "0x1:", "7:7", "7:3")),
    *(("since", text) for text in ("", "yesterday", "--5", "9" * 30, "2024-13-01", "²")),
]


@pytest.mark.parametrize(("option", "text"), WRONG)
def test_the_same_texts_are_rejected_with_the_same_words(option: str, text: str) -> None:
    """The usage error names the option, the accepted texts and the given text."""
    pytest.importorskip("pyspark")
    from kseg.spark import options

    with pytest.raises(ValueError, match="expected") as raised:
        (parse_offsets if option == "offsets" else parse_time)(text)
    assert repr(text) in str(raised.value)
    with pytest.raises(UsageError) as by_spark:
        options.parse({"path": "x", option: text})
    assert str(by_spark.value) == f"option {option}: {raised.value}"
    by_command = CliRunner().invoke(main, ["dump", f"--{option}={text}", "x"])
    assert by_command.exit_code == 2
    assert f"'--{option}': {raised.value}" in by_command.stderr
