"""KSEG_ENGINE chooses the engine; both engines are the same sources."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import kseg
from kseg.engine import COMPILED_MODULES, engine, how_to_compile
from tests.support.cli import ROOT
from tests.support.fuzzing import cases
from tools.proof import engines


@pytest.mark.skipif("KSEG_ENGINE" not in os.environ, reason="KSEG_ENGINE asks for no engine")
def test_the_engine_asked_for_is_loaded() -> None:
    """Without this test a failed compilation would leave one engine untested."""
    import importlib

    assert engine() == os.environ["KSEG_ENGINE"]
    for name in COMPILED_MODULES:
        loaded = importlib.import_module(name).__file__ or ""
        assert loaded.endswith(".py") is (os.environ["KSEG_ENGINE"] == "python"), name


def test_no_compiled_generator_has_work_to_do_when_it_is_dropped() -> None:
    """The wheels' stable ABI drops a compiled generator without its ``finally``: an open file would stay open."""
    yields = (ast.Yield, ast.YieldFrom)
    installed = Path(kseg.__file__).parents[1]  # the sources of a wheel are not in the repository
    for name in COMPILED_MODULES:
        source = installed.joinpath(*name.split(".")).with_suffix(".py").read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.With) or (isinstance(node, ast.Try) and node.finalbody):
                assert not any(isinstance(part, yields) for part in ast.walk(node)), f"{name}:{node.lineno}"


def test_plain_python_can_be_asked_for() -> None:
    """KSEG_ENGINE=python selects the sources."""
    command = [sys.executable, "-m", "kseg", "--version"]
    environment = {**os.environ, "KSEG_ENGINE": "python"}
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert printed == f"kseg {kseg.__version__} (engine: python)\n"


@pytest.mark.parametrize(("asked", "reason"), [("compiled", "the compiled modules are missing"), ("quick", "expected")])
def test_an_engine_that_is_not_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, asked: str, reason: str
) -> None:
    """KSEG_ENGINE=compiled in CI must not test plain Python: the command line and the library fail."""
    shutil.copytree(ROOT / "kseg", tmp_path / "kseg", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    environment = {**os.environ, "KSEG_ENGINE": asked, "PYTHONPATH": str(tmp_path)}
    for command in (["-m", "kseg", "--version"], ["-c", "import kseg; kseg.validate"]):
        done = subprocess.run([sys.executable, *command], env=environment, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode
        assert reason in done.stderr.splitlines()[-1]
    monkeypatch.setenv("KSEG_ENGINE", "")
    kseg.validate  # noqa: B018


@pytest.mark.parametrize(
    ("installed", "chosen", "hint"), [("compiled", None, False), ("python", None, True), ("python", "python", False)]
)
def test_version_says_how_to_get_the_compiled_engine(
    monkeypatch: pytest.MonkeyPatch, installed: str, chosen: str | None, hint: bool
) -> None:
    """pip hides the messages of a build: `kseg --version` informs a user that a compiler was missing."""
    monkeypatch.setattr(sys.modules["kseg.engine"], "engine", lambda: installed)
    monkeypatch.delenv("KSEG_ENGINE", raising=False)
    if chosen:
        monkeypatch.setenv("KSEG_ENGINE", chosen)
    assert bool(how_to_compile()) is hint


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.skipif(engine() != "compiled", reason="nothing is compiled here")
@pytest.mark.parametrize("chunk", range(3))
def test_both_engines_make_the_same_of_damage(chunk: int) -> None:
    """What a command prints, its exit code and the files that it writes are equal to the byte."""
    numbers = range(1_000_000 * chunk, 1_000_000 * chunk + cases(8))
    compared, different = engines.compare(numbers)
    assert set(compared.values()) == {len(numbers)}
    assert different == []


@pytest.mark.slow
@pytest.mark.skipif(engine() != "compiled", reason="nothing is compiled here")
@pytest.mark.parametrize("case", ["transactions 5168", "csv 5269", "reader 10279", "hex 20024"])
def test_no_sum_of_a_compiled_loop_wraps(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offset 2**63 - 1 made each later batch one beyond the range; the time between two timestamps was negative."""
    target, number = case.split()
    monkeypatch.setattr(engines, "TARGETS", (target,))
    assert engines.compare([int(number)]) == (Counter({target: 1}), [])


@pytest.mark.skipif(engine() != "compiled", reason="the loops run as plain Python")
def test_buffers_are_passed_in_small_structs() -> None:
    """The engine is built for buffers of two dimensions: with Cython's eight, a deep dump takes 1.5 times as long."""
    from kseg.format.record.columns import BatchColumns

    assert BatchColumns.__basicsize__ < 3000  # 26 buffers of 64 bytes, or of 208


def test_cython_finds_the_pxd_files_that_a_module_uses() -> None:
    """Cython ignores the module in ``from package cimport module``: a change in it would not be compiled."""
    for path in ROOT.glob("kseg/**/*.pxd"):
        for name in re.findall(r"^from (kseg[\w.]*) cimport", path.read_text(encoding="utf-8"), re.MULTILINE):
            used = ROOT / f"{name.replace('.', '/')}.pxd"
            assert used.exists(), f"{path}: write `cimport {name}.module as module`"
