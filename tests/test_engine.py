"""The engine that was asked for is the one that runs; both are the same sources."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import kseg
from kseg.engine import COMPILED_MODULES, engine


@pytest.mark.skipif("KSEG_ENGINE" not in os.environ, reason="KSEG_ENGINE asks for no engine")
def test_the_engine_asked_for_is_loaded() -> None:
    """Without this a failed compilation would leave one engine untested, in silence."""
    import importlib

    assert engine() == os.environ["KSEG_ENGINE"]
    for name in COMPILED_MODULES:
        loaded = importlib.import_module(name).__file__ or ""
        assert loaded.endswith(".py") is (os.environ["KSEG_ENGINE"] == "python"), name


def test_plain_python_can_be_asked_for() -> None:
    command = [sys.executable, "-m", "kseg", "--version"]
    environment = {**os.environ, "KSEG_ENGINE": "python"}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed == f"kseg {kseg.__version__} (engine: python)\n"
