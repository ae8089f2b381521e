"""Text for people: numbers with nouns, ranges, times, and hints about unknown names."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from kseg.findings import Finding
from kseg.text import count_of, inclusive_range, iso_time, one_of, row_to_json, shell_word, to_json, unknown_name


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (0, "file", "0 files"),
        (1, "file", "1 file"),
        (2228, "byte", "2,228 bytes"),
        (2, "batch", "2 batches"),
        (2, "older epoch", "2 older epochs"),
        (2, "stale entry", "2 stale entries"),
        (2, "day", "2 days"),
        (2, "index", "2 indexes"),
        (-1, "record", "-1 records"),
    ],
)
def test_numbers_have_the_right_noun(count: int, noun: str, text: str) -> None:
    """ "1 files" and "2 batchs" make a reader doubt the number, too."""
    assert count_of(count, noun) == text


def test_ranges_of_one_are_singular() -> None:
    """A message about one offset does not name it twice."""
    facts = {"first": 5, "last": 5, "why": "lost"}
    assert Finding("missing-batches", facts=facts).message == "no batch has offset 5: lost"
    assert inclusive_range("offset", 5, 7) == "offsets 5..7"


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_110, "2023-11-14T22:13:20.110Z"),
        (-1, "-1"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000"),
        (2**63 - 1, str(2**63 - 1)),
        (-(2**63), str(-(2**63))),
    ],
)
def test_times_are_iso_8601(timestamp: int, text: str) -> None:
    """Damaged headers have any 64-bit number: years that ISO 8601 cannot write are shown as the number."""
    assert iso_time(timestamp) == text


def test_a_wrong_name_gets_a_suggestion_or_the_names() -> None:
    """The error ends with the way out."""
    names = ("table", "jsonl", "junit")
    assert unknown_name("format", "json", names) == "unknown format 'json': did you mean jsonl?"
    assert unknown_name("format", "xyz", names) == "unknown format 'xyz': expected table, jsonl or junit"
    assert unknown_name("format", "xyz", names, "see --help") == "unknown format 'xyz': see --help"
    assert one_of(["a"]) == "a"
    assert one_of(["a", "b"]) == "a or b"


def test_json_is_unicode_text() -> None:
    """Strict readers refuse a whole file for one lone surrogate (RFC 8259, 8.2): of a file name, or of a decoded value."""
    for encode in (to_json, lambda value: row_to_json({"name": value})):
        line = encode("f\udcfcr\x9f \ud83d \U0001f600")
        found = json.loads(line)
        assert (found if isinstance(found, str) else found["name"]) == "f\\udcfcr\x9f \ufffd \U0001f600"
        assert "\x9f" not in line


@pytest.mark.parametrize(
    "name",
    [
        "plain-0",
        "sp ace",
        "quo'te\"",
        "a\nb",
        "esc\x1b[31m",
        "bytes\udcff\udcfe",
        "rtl\u202ex",
        "it's\t\\n",
        "",
        "é\udc80é",
    ],
)
def test_a_word_of_a_shell_is_printable_and_names_the_same_path(name: str) -> None:
    """A command that people copy must reach the folder, and not move the cursor of their terminal."""
    word = shell_word(name)
    assert word.isprintable()
    done = subprocess.run(["bash", "-c", f"printf %s {word}"], capture_output=True, check=True)
    assert os.fsdecode(done.stdout) == name
