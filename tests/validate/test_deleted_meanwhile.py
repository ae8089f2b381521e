"""A broker deletes a partition while it is validated: that is no error, at whatever moment."""

from __future__ import annotations

from typing import NoReturn

import pytest

from kseg.errors import VanishedError
from kseg.format.sidefiles import indexes
from tests.support.cli import invoke
from tests.support.fixtures import SEGMENTS


def test_an_index_that_is_deleted_at_the_end_of_its_check_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks open the newest indexes once more, after all batches."""

    def gone(path: str, *_: int) -> NoReturn:
        raise VanishedError(f"{path}: No such file or directory")

    monkeypatch.setattr(indexes, "open_range", gone)
    done = invoke("validate", SEGMENTS / "4.3.0-v2-none-segments")
    assert done.exit_code == 0, done.output
    assert "a broker deleted" in done.stderr
