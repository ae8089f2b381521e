"""The names of ``kseg``: typed, documented, and without effect on the process that imports them."""

from __future__ import annotations

import ast
import inspect
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import kseg

ROOT = Path(__file__).parents[2]

# Prints the state of the interpreter that all code of a process shares, without kseg's own entries.
STATE = """
import gc, json, locale, logging, os, signal, socket, sys, threading, warnings
def state():
    return json.dumps({
        "gc": [gc.get_threshold(), gc.isenabled(), gc.get_freeze_count(), len(gc.callbacks)],
        "imports": [list(map(repr, sys.meta_path)), list(map(repr, sys.path_hooks)), sys.path],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), sys.get_int_max_str_digits()],
        "hooks": [repr(sys.excepthook), repr(sys.displayhook), repr(threading.excepthook), repr(sys.unraisablehook)],
        "signals": [repr(signal.getsignal(number)) for number in signal.valid_signals()],
        "streams": [repr(sys.stdin), repr(sys.stdout), repr(sys.stderr)],
        "warnings": list(map(repr, warnings.filters)),
        "logging": [repr(logging.root.handlers), logging.root.level],
        "other": [dict(os.environ), os.getcwd(), threading.active_count(), locale.setlocale(locale.LC_ALL),
                  socket.getdefaulttimeout(), oct(os.umask(os.umask(0o22)))],
    }, indent=1)
import importlib.util
# Modules of the standard library that change this state themselves on import.
import random, concurrent.futures
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compiled", "python"])
@pytest.mark.parametrize(
    "statement", ["import kseg", "import kseg; [getattr(kseg, name) for name in kseg.__all__]", "import kseg.cli.main"]
)
def test_importing_changes_no_state_of_the_process(statement: str, engine: str) -> None:
    """kseg is a guest in a pipeline's process: the collector, the import system and signals belong to the host."""
    code = f"{STATE}\nimport click\nbefore = state()\n{statement}\nprint(json.dumps([before, state()]))"
    environment = {**os.environ, "KSEG_ENGINE": engine}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, timeout=300)
    before, after = map(json.loads, json.loads(done.stdout))
    assert after == before


def declared() -> set[str]:
    """Return the names that type checkers see in ``kseg``."""
    tree = ast.parse((ROOT / "kseg" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or "" for node in imports for alias in node.names}


def test_type_checkers_see_the_exported_names() -> None:
    """The names are imported when they are used, which no type checker understands: a second list declares them."""
    assert declared() | {"engine", "version_line"} == set(kseg.__all__)


def test_every_public_name_is_documented() -> None:
    """``help(kseg.NAME)`` is the reference of the library."""
    for name in kseg.__all__:
        member = getattr(kseg, name)
        if callable(member):
            assert inspect.getdoc(member), name
        for method, function in inspect.getmembers(member, inspect.isfunction) if inspect.isclass(member) else ():
            assert method.startswith("_") or inspect.getdoc(function), f"{name}.{method}"


@pytest.mark.skipif(find_spec("mypy") is None, reason="needs mypy")
def test_mypy_knows_every_public_name(tmp_path: Path) -> None:
    """With ``Any`` a caller's mistakes are found when the program runs."""
    reveals = "\n".join(f"reveal_type(kseg.{name})" for name in kseg.__all__)
    uses = (
        "for record in kseg.open_partition('p').records(first_offset=1):\n"
        "    offset: int = record.offset\n"
        "for finding in kseg.validate('p', settings=kseg.Settings()).findings:\n"
        "    text: str = finding.message\n"
        "kseg.validate_segment(kseg.SegmentFile('p'), kseg.Settings())\n"
        "from datetime import UTC, datetime\n"
        "topics: list[str | None] = [one.topic for one in kseg.grep('p', 'x', key=b'k', since=datetime.now(UTC))]\n"
        "lags: list[int | None] = [one.lag for one in kseg.lag('p', at='yesterday')]\n"
        "states = {one.state for one in kseg.transactions(['p']) if isinstance(one, kseg.Transaction)}\n"
        "state: str = states.pop()\n"
        "records: int = [one.stats.total('records') for one in kseg.stats('p')][-1]\n"
        "verdicts: list[str] = [one.verdict for one in kseg.diff('a', 'b', deep=False)]\n"
        "folders: list[str] = [one.folder for one in kseg.recovery('p')]\n"
        "error: str | None = kseg.Schemas('p').decode(b'', 'orders', side='key').error\n"
        "kseg.scan('p', schemas=kseg.Schemas('p'), value_as='avro')\n"
        "kseg.no_such_name\n"
    )
    program = tmp_path / "program.py"
    program.write_text(f"import kseg\n{reveals}\n{uses}", encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml", str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    revealed = [line for line in done.stdout.splitlines() if "Revealed type" in line]
    assert len(revealed) == len(kseg.__all__), done.stdout
    assert [line for line in revealed if '"Any"' in line or "def (*args: Any" in line] == []
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1, done.stdout
    assert 'Module has no attribute "no_such_name"' in errors[0]
