"""The table formats of the tests of pipelines."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["parquet", "iceberg", "delta"])
def kind(request: pytest.FixtureRequest) -> str:
    """A table format that is installed."""
    needed = {"iceberg": "pyiceberg", "delta": "deltalake"}
    if request.param in needed:
        pytest.importorskip(needed[request.param], reason=f"{needed[request.param]} is not installed")
    return str(request.param)
