"""A new kind of side file needs a decoder and one row of the registry: all commands then know its files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.dump.dump_items import FileStart, SideFileItem
from kseg.commands.repair.repair import repair
from kseg.commands.repair.repaired_segment import RepairPlan
from kseg.errors import UsageError
from kseg.findings import Report
from kseg.format.sidefiles import registry
from kseg.format.sidefiles.registry import COPY, REBUILD, Handling, SideFile
from kseg.format.sidefiles.side_file_reading import read_small_file
from kseg.format.storage import naming
from kseg.format.storage.atomic_write import mark_results
from kseg.format.storage.source import Source, open_source
from kseg.format.writer import output_guards, output_rule
from kseg.report.dump_other_files import rows
from kseg.report.formats import View
from kseg.schema import Column

PARTITION = Path(__file__).parents[2] / "fixtures" / "segments" / "2.8.2-v1-none"
BASE = f"{0:020}"
COPIED, REBUILT, OTHER = f"{BASE}.heat", f"{BASE}.bloom", f"{BASE}.unknown"


class Heat(NamedTuple):
    """How often a segment was read."""

    fetches: int


def walk_heat(source: Source, base_offset: int, report: Report) -> Iterator[tuple[int, Heat]]:
    yield 0, Heat(json.loads(read_small_file(source, report) or b"{}")["fetches"])


def row_of(suffix: str, handling: Handling) -> SideFile:
    pattern = naming.OFFSET + "[.]" + suffix
    columns = (Column("fetches", "int", "how often"),)
    return SideFile(f"{suffix} file", suffix, pattern, walk_heat, columns, suffix=f".{suffix}", handling=handling)


@pytest.fixture
def partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A partition with two new kinds of side files, one of which commands copy, and a file of no known kind."""
    rows = (row_of("heat", Handling(COPY, COPY, COPY)), row_of("bloom", Handling(REBUILD, REBUILD, REBUILD)))
    monkeypatch.setattr(registry, "SIDE_FILES", (*registry.SIDE_FILES, *rows))
    folder = tmp_path / "orders-0"
    folder.mkdir()
    for path in PARTITION.glob(f"{BASE}.*"):
        shutil.copy(path, folder)
    for name in (COPIED, REBUILT, OTHER):
        (folder / name).write_text('{"fetches": 7}')
    return folder


def test_it_is_found_and_decoded(partition: Path) -> None:
    unknown: list[str] = []
    found = {Path(file.path).name for file in registry.find_files(str(partition), unknown.append)}
    assert {COPIED, REBUILT} <= found
    assert [Path(path).name for path in unknown] == [OTHER]
    known = registry.recognise(str(partition / f"{COPIED}.deleted"))
    assert known
    with open_source(str(partition / COPIED)) as source:
        entries = list(known.side.walk(source, known.base_offset, lambda finding: None))
    items: list[FileStart | SideFileItem] = [
        FileStart("x", None, known.side),
        SideFileItem("x", known.side, *entries[0]),
    ]
    assert [*rows(items, View()).rows] == [{"kind": "heat", "file": "x", "position": 0, "fetches": 7}]


def test_convert_and_repair_copy_it_or_report_it(partition: Path, tmp_path: Path) -> None:
    """What the row says is done: a copied file is in the target, a rebuilt one is not reported as left out."""
    for name in ("new", "repaired"):
        (tmp_path / name).mkdir()
    converted = convert(str(partition), str(tmp_path / "new" / "orders-0"), ConversionPlan.of("v1-to-v2"))
    repaired = repair(str(partition), str(tmp_path / "repaired" / "orders-0"), RepairPlan())
    for target, left_out in (("new", converted.left_out), ("repaired", repaired.left_out)):
        names = {path.name for path in (tmp_path / target / "orders-0").iterdir()}
        assert COPIED in names
        assert REBUILT not in names
        assert [name for name in left_out if Path(name).name in (COPIED, REBUILT, OTHER)] == [OTHER]


def test_the_guards_protect_it(partition: Path) -> None:
    """A report may not overwrite it, and replacing a folder that contains it destroys no foreign file."""
    log = str(partition / f"{BASE}.log")
    with pytest.raises(UsageError, match="side file of one"):
        output_rule.check_output(str(partition / COPIED), [log])
    with pytest.raises(UsageError, match="never replaces a file of Kafka"):
        output_rule.check_output(str(partition / COPIED), [])
    output_rule.check_output(str(partition / OTHER), [log])
    mark_results(partition)
    with pytest.raises(UsageError, match=OTHER):
        output_guards.check_earlier_result(partition)
    (partition / OTHER).unlink()
    output_guards.check_earlier_result(partition)
