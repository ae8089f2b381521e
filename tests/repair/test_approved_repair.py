"""The approved answers of repair and diff about damaged partitions of brokers."""

from __future__ import annotations

import pytest

from tests.support.known_answers import CASES, answers, known


@pytest.mark.parametrize("command", ["repair", "salvage", "indexes", "replicas", "diff"])
def test_the_answers_are_those_that_were_approved(command: str) -> None:
    """A change of one must be meant: ``python -m tests.support.known_answers`` writes them, to be read in the difference."""
    found = [answers(command, number) for number in range(CASES)]
    assert dict(enumerate(found)) == dict(enumerate(known(command)))
