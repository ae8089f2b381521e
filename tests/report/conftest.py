"""A browser for the tests of HTML pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.browser import Browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser for the tests of a module."""
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()
