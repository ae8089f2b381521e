"""The JSON Schema of rows: every row that a command writes of any fixture is valid, and other rows are not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kseg.format.sidefiles.registry import recognise
from kseg.report.row_schema import VERSION, row_kinds, row_schema
from kseg.schema import RowKind
from tests.support.cli import invoke
from tests.support.cut_images import BLOCK, cut, unpack_twins
from tools.docs import sandbox
from tools.docs.parts import output_formats

FIXTURES = Path(__file__).parents[2] / "fixtures"
STORED = FIXTURES.parent / "docs" / "reference" / "rows.schema.json"
SCHEMAS = str(FIXTURES / "serialized" / "_schemas-0")
COMMANDS = list(dict.fromkeys(kind.command for kind in row_kinds()))


def folders(*names: str) -> list[str]:
    """Return the folders of fixtures that are logs."""
    found = (path for name in names for path in sorted((FIXTURES / name).iterdir()) if path.is_dir())
    return [str(path) for path in found if not (path / "settings.json").exists()]


#: The kinds of rows that no fixture has, by command.
NEVER = {"schemas": {"extra", "missing"}, "repair": {"gap", "uncertain"}}
LOGS = folders("segments", "findings", "statements", "serialized")
FRAMED = {
    "requests": [*(FIXTURES / "streams").rglob("*.requests"), *(FIXTURES / "statements").glob("produce*.bin")],
    "responses": [*(FIXTURES / "streams").rglob("*.responses")],
    "message": [*(FIXTURES / "framed").glob("message-*/data")],
    "wide-crc": [path for path in (FIXTURES / "framed").glob("*/data") if "message" not in path.parent.name],
    "message-set": [*(FIXTURES / "statements").glob("set-*.bin")],
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the documentation's examples."""
    return sandbox.make(tmp_path_factory.mktemp("home"))


def runs(command: str, home: Path) -> Iterator[list[str]]:
    """Yield the arguments with which a command writes rows of all fixtures, and of the examples below ``home``."""
    if command == "dump":
        yield ["--shallow", *LOGS]
        yield ["--deep", *LOGS]
        for name, paths in FRAMED.items():
            yield ["--shallow", "--as", name, *map(str, sorted(paths))]
            yield ["--deep", "--as", name, *map(str, sorted(paths))]
        yield ["--deep", "--value-as=auto", "--key-as=auto", "--schemas", SCHEMAS, *folders("serialized")]
        yield [str(path) for path in sorted(FIXTURES.rglob("*")) if recognise(path.name)]
        yield ["--effective", *LOGS]
    elif command == "stats":
        yield LOGS
        yield ["--deep", *LOGS]
        yield ["--as=requests", *map(str, sorted(FRAMED["requests"]))]
    elif command == "repair":
        for path in LOGS:
            yield ["--dry-run", "--salvage-records", path]
        yield ["--dry-run", *(str(home / "backup" / f"broker-{n}" / "clicks-2") for n in (1, 2, 3))]
    elif command == "convert":
        for n, path in enumerate(LOGS):
            yield ["--skip-damaged", "--lossy", "v2-to-v1", path, str(home / f"converted-{n}")]
    elif command == "carve":
        twins = unpack_twins(home / "twins")
        image = cut({name: data for name, data in twins.items() if name.endswith(".log")}, 1, lost=0.2)
        copy = twins["orders-1/00000000000000000000.log"][:8_000].ljust(2 * BLOCK, b"\0")
        (home / "image").write_bytes(image.data + copy + twins["orders-0/partition.metadata"].ljust(BLOCK, b"\0"))
        yield [str(home / "image")]
    elif command == "adopt":
        (home / "adopted" / "orders-0.a-stray").mkdir(parents=True)
        nodes = [f"--node={n}={home / 'backup' / f'broker-{n}'}" for n in (1, 2)]
        yield [*nodes, f"--node=3={home / 'adopted'}", f"--node=4={home / 'kafka-logs'}"]
        yield [f"--node=1={home / 'kafka-logs'}"]
    elif command == "tier":
        bucket, logs = (str(FIXTURES / "tiered" / "reference" / name) for name in ("bucket", "logs"))
        yield ["fetch", bucket, "-o", str(home / "fetched")]
        yield ["check", bucket, logs, logs]
        yield ["check", str(FIXTURES / "tiered" / "aiven"), logs, logs]
    elif command == "rules":
        yield []
    elif command == "diff":
        for a, b in pairwise(LOGS):
            yield [a, b]
        yield [str(home / "kafka-logs"), str(home / "backup" / "broker-1")]
        metadata = home / "copy" / "__cluster_metadata-0"
        shutil.copytree(FIXTURES / "segments" / "4.3.0-v2-none-internal-cluster-metadata", metadata)
        yield [str(metadata), str(home / "kafka-logs" / metadata.name)]
        yield ["--by-key", str(home / "kafka-logs"), str(home / "backup" / "broker-1")]
    elif command == "validate":
        yield ["--shallow", *LOGS]
        yield LOGS
        for name, paths in FRAMED.items():
            yield ["--as", name, *map(str, sorted(paths))]
    elif command == "transactions":
        yield [*(f"--state={state}" for state in ("hanging", "open", "aborted", "committed")), *LOGS]
    elif command == "schemas":
        yield [SCHEMAS]
        yield ["--used-by", *folders("serialized")[1:2], SCHEMAS]
    elif command == "recovery":
        yield ["--clean", *LOGS]
        yield ["--unclean", *LOGS]
    elif command == "pipeline":
        yield from ([action, str(home / "night.toml")] for action in ("plan", "run", "status"))
    elif command == "grep":
        yield ["-C1", "1", *LOGS]
    elif command == "lag":
        yield [str(home / "consumer-logs")]
        yield ["--history", "billing", str(home / "slow-group")]
    else:
        yield [str(home / "consumer-logs")]


def written(command: str, home: Path) -> list[dict[str, Any]]:
    """Return the rows that a command writes."""
    rows: list[dict[str, Any]] = []
    for arguments in runs(command, home):
        done = invoke(command, "--format", "jsonl", *arguments)
        assert done.stdout or done.stderr.startswith("kseg: "), done.output
        rows += [json.loads(line) for line in done.stdout.split("\n") if line]
    return rows


@cache
def validator(command: str, kind: str) -> Any:
    """Return the validator of the rows of a kind, which says more about a fault than that of all rows."""
    found = row_schema(command)
    names = [
        name
        for name, one in found["$defs"].items()
        if kind in one.get("properties", {}).get("kind", {}).get("enum", ())
    ]
    assert names, f"kseg {command} declares no rows of kind {kind}"
    return jsonschema.Draft202012Validator(found | {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names]})


def shape(value: Any) -> object:
    """Return the same for values that a schema cannot tell apart."""
    if isinstance(value, dict):
        return tuple((name, shape(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return frozenset(map(shape, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return value.bit_length() if value >= 0 else -1
    return value if not isinstance(value, str) or len(value) < 20 else str


def faults(command: str, rows: list[dict[str, Any]]) -> list[str]:
    different = {shape(row): row for row in rows}
    errors = (
        (row, jsonschema.exceptions.best_match(validator(command, row["kind"]).iter_errors(row)))
        for row in different.values()
    )
    return [f"{error.json_path}: {error.message} in {row}" for row, error in errors if error]


@pytest.mark.parametrize("command", COMMANDS)
def test_rows_of_all_fixtures_are_valid(command: str, home: Path) -> None:
    """A pipeline that validates rows would reject others, and rows that nothing writes would prove nothing."""
    rows = written(command, home)
    assert faults(command, rows) == []
    declared = {name for kind in row_kinds() if kind.command == command for name in kinds_of(kind)}
    assert {row["kind"] for row in rows} == declared - NEVER.get(command, set())


def kinds_of(kind: RowKind) -> tuple[Any, ...]:
    return tuple(kind.columns[0].values) or (kind.columns[0].meaning,)


def test_the_schema_finds_faults(home: Path) -> None:
    """A schema that accepts everything would prove nothing."""
    row = written("lag", home)[0]
    assert (
        len(
            faults("lag", [row | {"status": "fine"}, row | {"lag": "1"}, row | {"more": 1}, row | {"partition": 2**31}])
        )
        == 4
    )
    del row["metadata"]
    assert faults("lag", [row])


@pytest.mark.slow
def test_the_schema_is_valid() -> None:
    for command in (*COMMANDS, None):
        jsonschema.Draft202012Validator.check_schema(row_schema(command))


def test_every_command_with_rows_declares_them() -> None:
    """A command that is added without its fields would be missing in the schema and in the documentation."""
    found = {row.split("`")[1].removeprefix("kseg ") for row in output_formats().splitlines() if "`jsonl`" in row}
    assert found - {"sql"} == set(COMMANDS)  # the columns of a statement are its own


def test_the_version_names_the_rows() -> None:
    """A pipeline trusts the version: other rows have another one, which the changes name."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert row_schema() == stored, f"raise row_schema.VERSION, name it in CHANGES.md, and run `make docs`: {STORED}"
    changes = (FIXTURES.parent / "CHANGES.md").read_text(encoding="utf-8")
    assert f"version {VERSION} of the JSON Schema" in changes
