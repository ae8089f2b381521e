"""The documentation's table of kafka-dump-log's answers is current."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.kafka


def test_its_answers_are_those_that_are_kept() -> None:
    """The stored answers for every damaged fixture are current; `make peers` updates them."""
    from tools.lab.dump_log_says import SAID, rows

    assert rows() == [json.loads(line) for line in SAID.read_text(encoding="utf-8").splitlines()]
