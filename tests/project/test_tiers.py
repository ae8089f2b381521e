"""`make test` collects every test module with only what it installs: Python imports also those of the other tiers."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path

from tests.support.rooms import BEGIN_FIRST

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "kseg"
#: An import at the top of a module: those in functions and for type checkers are indented.
IMPORT = re.compile(r"^(?:from|import) ([\w.]+)(?: import (\([^)]*\)|.*))?$", re.MULTILINE)


def modules_of(*groups: str) -> set[str]:
    """Return the names of the modules that dependency groups of pyproject.toml install."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    names = {re.split(r"[\[<>=;]", line)[0] for group in groups for line in listed[group]}
    return {name.replace("-", "_") for name in names}


@cache
def file_of(module: str) -> Path | None:
    """Return the source of a module of this repository."""
    path = ROOT.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@cache
def imported(path: Path) -> frozenset[str]:
    """Return what a module imports while it is imported, up to the first ``pytest.importorskip``.

    That call skips the module where the library is missing, so all that follows can rely on it. A module of kseg that
    another one imports does not run, except for its names.
    """
    text = re.split(
        r"^(?:\w+ = )?pytest\.importorskip\(", path.read_text(encoding="utf-8"), maxsplit=1, flags=re.MULTILINE
    )[0]
    found: set[str] = set()
    for module, names in IMPORT.findall(text):
        parts = {f"{module}.{name}" for name in re.findall(r"\w+", names)}
        deferred = (
            {part for part in parts if part.startswith("kseg.") and file_of(part)} if PACKAGE in path.parents else set()
        )
        found |= {module, *(parts - deferred)}
    return frozenset(found)


def libraries(path: Path) -> set[str]:
    """Return the third-party packages that the import of a test module imports, also through modules of this repository."""
    seen: set[Path] = set()
    foreign: set[str] = set()
    waiting = [path]
    while waiting:
        file = waiting.pop()
        seen.add(file)
        for name in imported(file):
            own = file_of(name)
            if own is None:
                foreign.add(name.split(".")[0])
            elif own not in seen:
                waiting.append(own)
    return foreign


def test_the_files_that_begin_first_exist() -> None:
    """A file that got another name would begin last again."""
    assert {*BEGIN_FIRST} <= {path.name for path in (ROOT / "tests").rglob("test_*.py")}


def test_make_test_needs_only_what_it_installs() -> None:
    """A newcomer's first `make test` has no Kafka client and no Spark: it may skip tests, but must collect all of them."""
    forbidden = modules_of("lab", "spark") - modules_of("test", "s3")
    assert {"confluent_kafka", "pyspark"} <= forbidden
    needing = {
        str(path.relative_to(ROOT)): sorted(libraries(path) & forbidden)
        for path in [*(ROOT / "tests").rglob("test_*.py"), ROOT / "tests" / "conftest.py"]
    }
    assert {path: names for path, names in needing.items() if names} == {}
