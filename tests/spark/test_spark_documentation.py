"""The examples of the documentation that need Spark print what the pages show."""

from __future__ import annotations

import pytest

from tools.docs import documents

pytestmark = pytest.mark.spark


def test_the_examples_with_spark_are_current() -> None:
    """A newcomer copies these lines; `python -m tools.docs --write --spark` updates their output."""
    made = documents.with_spark()
    assert len(made) >= 3
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text
