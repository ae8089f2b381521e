"""The table in README.md of what kafka-dump-log says beside kseg is what it says today."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.kafka


def test_its_answers_are_those_that_are_kept() -> None:
    """For every damaged fixture; `make peers` keeps them anew."""
    from tools.lab.dump_log_says import SAID, rows

    assert rows() == [json.loads(line) for line in SAID.read_text(encoding="utf-8").splitlines()]
