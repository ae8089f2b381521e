"""A command that needs a library which is not installed says in one line what to install; all others work without it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import pipelines
from tests.support.cli import PLAIN, ROOT, SEGMENTS

#: Runs kseg where a module can't be imported.
WITHOUT = """
import runpy, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == hidden:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
hidden, sys.argv = sys.argv[1], ["kseg", *sys.argv[2:]]
sys.meta_path.insert(0, Missing())
runpy.run_module("kseg", run_name="__main__")
"""
#: A distribution whose module has another name.
MODULES = {
    "python-snappy": "snappy",
    "protobuf": "google",
    "grpcio-tools": "grpc_tools",
    "openlineage-python": "openlineage",
}
DUMP = (
    "dump",
    "--deep",
    *(SEGMENTS / f"4.3.0-v2-{codec}" / f"{0:020}.log" for codec in ("none", "gzip", "snappy", "lz4", "zstd")),
)
URL = ("validate", PLAIN.as_uri())
SQL = ("sql", "select count(*) from records", PLAIN)
SERIALIZED = ROOT / "fixtures" / "serialized"
VALUES = ("dump", "--schemas", SERIALIZED / "_schemas-0", SERIALIZED)
#: Distribution -> a command that uses it.
COMMANDS: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(("click", "rich", "crc32c", "lz4", "python-snappy", "cramjam", "zstandard", "isal"), DUMP),
    **dict.fromkeys(("fsspec", "s3fs"), URL),
    **dict.fromkeys(("fastavro", "protobuf", "grpcio-tools"), VALUES),
    "pyarrow": ("dump", "--format", "parquet", "-o", "rows.parquet", PLAIN),
    "duckdb": SQL,
    "cryptography": ("validate", "--kek", PLAIN, ROOT / "fixtures" / "tiered" / "aiven"),
    "msgpack": ("dump", "--value-as", "msgpack", "one-0"),
    "cbor2": ("dump", "--value-as", "cbor", "one-0"),
    **dict.fromkeys(("pyiceberg", "deltalake"), ("pipeline", "plan", "night.toml")),
    "openlineage-python": ("pipeline", "run", "night.toml"),
    "pyspark": ("validate", "--spark", "local[1]", PLAIN),
}

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]


def names(lines: list[str]) -> set[str]:
    """Return the names of the distributions in a list of dependencies."""
    return {re.split(r"[\[<>=; ]", line)[0] for line in lines}


CORE = names(PROJECT["dependencies"])


def test_every_dependency_is_tried() -> None:
    """Without this test a new dependency could be forgotten."""
    assert {name for lines in EXTRAS.values() for name in names(lines)} | CORE == set(COMMANDS)


def test_every_extra_is_in_the_documentation() -> None:
    """An extra that the page does not list is not found."""
    page = (ROOT / "docs" / "how-to" / "install.md").read_text(encoding="utf-8")
    assert [name for name in EXTRAS if f"'.[{name}]'" not in page] == []


@pytest.mark.slow
@pytest.mark.parametrize("missing", COMMANDS)
def test_a_missing_library_is_named(missing: str, tmp_path: Path) -> None:
    """Whoever installs with --no-deps, or without an extra, is left with neither a traceback nor an internal error."""
    (tmp_path / "without.py").write_text(WITHOUT)
    kind = {"deltalake": "delta", "openlineage-python": "parquet"}.get(missing, "iceberg")
    config = pipelines.config(tmp_path, kind)
    if missing == "openlineage-python":
        config.write_text(config.read_text().replace("reports/{run}.jsonl", "openlineage"))
    (tmp_path / "source" / "orders-0").mkdir(parents=True)
    shutil.copy(PLAIN, tmp_path / "source" / "orders-0")
    (tmp_path / "one-0").mkdir()
    one = build_batch([PlainRecord(0, None, b"\x01", 0)])
    (tmp_path / "one-0" / PLAIN.name).write_bytes(one)
    command = [sys.executable, tmp_path / "without.py", MODULES.get(missing, missing), *COMMANDS[missing]]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=tmp_path, timeout=300)
    if done.returncode != 0:  # otherwise kseg works without it
        assert done.returncode == 2
        lines = [line for line in done.stderr.splitlines() if not line.startswith("kseg: skipped")]
        searched = missing in CORE or missing == "grpcio-tools"  # here the search for it fails
        way = missing if searched else rf"'kseg\[\w+\]', which has .*\b{missing}\b.*"
        assert re.fullmatch(rf"kseg: .*: pip install {way}", lines[0]), done.stderr
        assert len(lines) == 1, done.stderr


@pytest.mark.parametrize("missing", ["pyarrow", "duckdb"])
def test_a_condition_in_sql_names_the_extra_that_has_all_it_needs(missing: str, tmp_path: Path) -> None:
    """Who installs what one line says is not told of another extra then. Lists of ``kseg sql`` need none."""
    (tmp_path / "without.py").write_text(WITHOUT)

    def run(*arguments: object) -> tuple[int, str]:
        command = [sys.executable, tmp_path / "without.py", missing, *arguments]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300, check=False)
        return done.returncode, done.stderr

    shown = {"pyarrow": "pyarrow", "duckdb": "DuckDB"}[missing]
    needed = f"needs {shown}: pip install 'kseg[sql]', which has duckdb and pyarrow\n"
    for verb in ("grep", "dump"):
        assert run(verb, "--where", "1 = 1", PLAIN) == (2, f"kseg: --where {needed}")
    assert run(*SQL) == (2, f"kseg: kseg sql {needed}")
    for listed in ("--recipes", "--tables"):
        for name in ("table", "jsonl", "csv"):
            assert run("sql", listed, "--format", name) == (0, "")


@pytest.mark.parametrize("missing", ["fastavro", "duckdb", "fsspec"])
def test_the_program_does_not_speak_of_pip_install(missing: str, tmp_path: Path) -> None:
    """A broker without Python has no pip. ``packaging/check-program`` asks the packed program the same."""
    (tmp_path / "without.py").write_text("import sys\nsys.frozen = True" + WITHOUT)
    command = [sys.executable, tmp_path / "without.py", missing, *COMMANDS[missing]]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 2
    assert re.fullmatch(rf"kseg: .*{missing}: this program has no extras; .*\n", done.stderr, re.IGNORECASE)


def test_an_old_python_is_named_in_one_line() -> None:
    """Whoever runs a clone with the Python of an old system reads what is missing, and no traceback of an import."""
    old = "import runpy, sys; sys.version_info = (3, 9, 2); runpy.run_module('kseg', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", old], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert (done.returncode, done.stderr) == (2, "kseg: needs Python 3.11 or newer\n")


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["pyarrow", "duckdb", "fastavro"])
@pytest.mark.parametrize(
    "command", [("dump",), ("dump", "--deep", "--key", "key-1"), ("grep", "page_view"), ("stats",)]
)
def test_the_core_needs_no_extra(missing: str, command: tuple[str, ...], tmp_path: Path) -> None:
    """``pip install kseg`` without an extra is what an operator has: its commands read a segment."""
    (tmp_path / "without.py").write_text(WITHOUT)
    words = [sys.executable, tmp_path / "without.py", missing, *command, PLAIN]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout
