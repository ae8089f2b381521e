"""``python -m tools.proof.mutants COUNT [SEED] [ROOM...]``: random changes of lines, which a test must notice.

A mutant is one changed expression or one removed statement of a room. The room's tests run once over a copy of the tree, as
plain Python, to learn which lines each of them runs. Then those that run the line of a mutant, or start processes, run over
the mutant until one fails. A mutant that takes more than ten minutes of CPU time hangs, and counts as killed. Survivors are
printed with their line: each is a missing assertion, or changes nothing that can be observed.
``--write`` keeps the figure for the page of proof.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.proof.figures import write_figure

ROOT = Path(__file__).parents[2]
_COPIED = ("kseg", "tests", "tools", "bench", "fixtures", "docs", "pyproject.toml", "CHANGES.md")
#: Tests that run most lines of all rooms in a few seconds.
_APPROVED = tuple(f"tests/{room}/test_approved_{room}.py" for room in ("validate", "recovery", "repair"))
#: Room -> its modules, and the tests that may notice a change of them.
ROOMS = {
    "checks": (("kseg/format/checks",), ("tests/checks", "tests/segment", "tests/validate", "tests/wire")),
    "record": (
        ("kseg/format/record",),
        (
            "tests/record", "tests/segment", "tests/writer", "tests/dump", "tests/convert", "tests/checks", "tests/diff",
            "tests/wire", "tests/grep/test_byte_classes.py", *_APPROVED,
        ),
    ),
    "segment": (
        ("kseg/format/segment",),
        (
            "tests/segment", "tests/dump", "tests/validate", "tests/grep", "tests/checks", "tests/wire",
            "tests/library/test_reading.py", "tests/transactions/test_transaction_states.py", *_APPROVED,
        ),
    ),
    "repair": (("kseg/commands/repair",), ("tests/repair",)),
    "recovery": (
        ("kseg/commands/recovery.py", "kseg/format/log_loader"),
        ("tests/recovery", "tests/report/test_doctor.py", *_APPROVED),
    ),
}  # fmt: skip
#: CPU seconds after which a mutant hangs.
_SECONDS = 600

_COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.LShift: ast.RShift,
    ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


class Mutant(NamedTuple):
    """``old`` is what stands at the characters ``begin`` to ``end`` of a file, ``new`` the replacement."""

    path: str
    line: int
    begin: int
    end: int
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {' '.join(self.old.split())[:70]}  ->  {self.new[:70]}"


def mutants_of(path: str, text: str) -> list[Mutant]:
    """Return all mutants of a module."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data, found = text.encode(), []
    for node, new in _changes(ast.parse(text)):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
        found.append(Mutant(path, node.lineno, begin, end, data[begin:end].decode(), new))
    return found


def _changes(tree: ast.Module) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    for function in ast.walk(tree):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for statement in function.body:
                yield from _changes_below(statement)


def _changes_below(node: ast.AST) -> Iterator[tuple[ast.stmt | ast.expr, str]]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.JoinedStr, ast.Assert, ast.Raise)):
        return  # visited by itself; texts are no behaviour that these tests compare
    if isinstance(node, ast.stmt):
        yield from ((node, new) for new in _changed_statement(node))
    elif isinstance(node, ast.expr):
        yield from ((node, f"({new})") for new in _changed_expression(node))
    for name, child in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for one in child if isinstance(child, list) else (child,):
                if isinstance(one, ast.AST):
                    yield from _changes_below(one)


def _changed_statement(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Expr) and not isinstance(node.value, (ast.Constant, ast.Yield, ast.YieldFrom))
    ):
        yield "pass"
    elif isinstance(node, ast.Return) and node.value and not isinstance(node.value, ast.Constant):
        yield "return None"
    elif isinstance(node, ast.Continue):
        yield "break"


def _changed_expression(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED:
        ops = [_COMPARED[type(node.ops[0])](), *node.ops[1:]]
        yield ast.unparse(ast.Compare(node.left, ops, node.comparators))
    elif isinstance(node, ast.BinOp) and type(node.op) in _COMPUTED:
        yield ast.unparse(ast.BinOp(node.left, _COMPUTED[type(node.op)](), node.right))
    elif isinstance(node, ast.BoolOp):
        yield ast.unparse(ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield ast.unparse(node.operand)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield str(node.value + 1)


class _Observer:
    """A plugin of pytest that keeps, for each test, the lines of a room that it runs, its time, and whether it starts
    processes.
    """

    def __init__(self, modules: Sequence[Path], kept: Path) -> None:
        from coverage import Coverage  # the tests of this module have no need of it

        self._coverage = Coverage(
            data_file=None, include=[str(path / "*" if path.is_dir() else path) for path in modules]
        )
        self._kept, self._tests, self._with_processes = kept, list[str](), set[str]()
        self._seconds = defaultdict[str, float](float)
        sys.addaudithook(self._hear)

    def _hear(self, event: str, _: object) -> None:
        if event in ("subprocess.Popen", "os.fork", "os.posix_spawn") and self._tests:
            self._with_processes.add(self._tests[-1])

    def pytest_sessionstart(self) -> None:
        self._coverage.start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._tests.append(nodeid)
        self._coverage.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        data = self._coverage.get_data()
        lines = {path: data.contexts_by_lineno(path) for path in data.measured_files()}
        self._kept.write_text(json.dumps([self._tests, sorted(self._with_processes), lines, self._seconds]))


class _Tests:
    """The tests of one room: which of them run a line."""

    def __init__(self, copy: Path, room: str, log: Path) -> None:
        modules, tests = ROOMS[room]
        kept = log.with_name(f"{room}.json")
        if _run_tests(copy, tests, None, log, _Observer([copy / name for name in modules], kept)):
            sys.exit(f"the tests of {room} fail without a change:\n{log.read_text()[-3000:]}")
        self._copy = copy
        self._all, self._with_processes, self._lines, self._seconds = json.loads(kept.read_text())

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that can notice a mutant, the likely ones first.

        These run its line, the approved answers first, then the quick ones; then the others of their files, as one test can
        prepare what the next one reads; then those that start processes, which are not observed.
        """
        observed = self._lines.get(str(self._copy / mutant.path), {}).get(str(mutant.line), [])
        found = [test for test in observed if test]  # lines that run while tests are collected are of no test
        found.sort(key=lambda test: ("/test_approved_" not in test, self._seconds[test]))
        files = {test.partition("::")[0] for test in found}
        beside = [test for test in self._all if test.partition("::")[0] in files]
        return list(dict.fromkeys([*found, *beside, *self._with_processes]))


def _run_tests(copy: Path, tests: Sequence[str], seconds: int | None, log: Path, plugin: object = None) -> int:
    """Run tests over the copy in a forked process, until one fails. Return its exit code, negative for a signal."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(copy)
    os.environ.update(KSEG_ENGINE="python", PYTHONPATH=str(copy))
    sys.path.insert(0, str(copy))
    if seconds:
        sys.dont_write_bytecode = True
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    options = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", "not kafka and not spark")
    code = 70
    try:
        code = int(pytest.main([*options, *tests], plugins=[plugin] if plugin else []))
    except BaseException:  # also SystemExit: this process must not return to the caller
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _try(mutant: Mutant, copy: Path, tests: list[str], log: Path) -> str:
    """Return what became of a mutant: killed, hangs (which is killed, too), or survived."""
    path = copy / mutant.path
    data = path.read_bytes()
    for cached in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        cached.unlink()
    path.write_bytes(data[: mutant.begin] + mutant.new.encode() + data[mutant.end :])
    try:
        code = _run_tests(copy, tests, _SECONDS, log) if tests else 0
    finally:
        path.write_bytes(data)
    return "hangs" if code in (-signal.SIGXCPU, -signal.SIGKILL) else "killed" if code else "survived"


def copy_tree(copy: Path) -> None:
    """Copy what tests and tools need, without compiled modules."""
    for name in _COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("*.so"))
        else:
            shutil.copy(ROOT / name, copy / name)


def drawn(rooms: list[str], count: int, seed: int) -> list[tuple[str, Mutant]]:
    """Return random mutants, as many of each room."""
    chance, found = random.Random(f"mutants {seed}"), []
    for room in rooms:
        paths = [path for name in ROOMS[room][0] for path in sorted((ROOT / name).rglob("*.py")) or [ROOT / name]]
        every = [one for path in paths for one in mutants_of(str(path.relative_to(ROOT)), path.read_text("utf-8"))]
        found.append([(room, one) for one in chance.sample(every, min(len(every), -(-count // len(rooms))))])
    return [one for row in zip(*found, strict=False) for one in row][:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("rooms", nargs="*")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="draw no more after this time")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    rooms, began, done = asked.rooms or list(ROOMS), time.monotonic(), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        copy, log = Path(folder, "copy"), Path(folder, "log")
        copy_tree(copy)
        tests: dict[str, _Tests] = {}
        with suppress(KeyboardInterrupt):  # what was tried until then counts
            for room, mutant in drawn(rooms, asked.count, asked.seed):
                if time.monotonic() - began > asked.seconds:
                    break
                if room not in tests:
                    tests[room] = _Tests(copy, room, log)
                fate = _try(mutant, copy, tests[room].of(mutant), log)
                done[f"{room} {fate}"] += 1
                print(f"{fate}  {mutant}", flush=True)
    killed = sum(count for name, count in done.items() if not name.endswith("survived"))
    each = ", ".join(f"{room} {_killed(done, room)}" for room in rooms)
    figure = f"{killed} of {done.total()} random mutants killed from seed {asked.seed} ({each})"
    print(figure)
    if asked.write:
        write_figure("mutants", figure)


def _killed(done: Counter[str], room: str) -> str:
    killed = done[f"{room} killed"] + done[f"{room} hangs"]
    return f"{killed} of {killed + done[f'{room} survived']}"


if __name__ == "__main__":
    main()
