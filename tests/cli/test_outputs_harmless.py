"""No option of any command harms a file of Kafka: all options that write are tried on all kinds of Kafka's files.

The options are found in the commands themselves, so a new option that writes is tried, too, or fails the first test.
"""

from __future__ import annotations

import ast
import os
import shutil
import stat
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import click
import pytest

from kseg.cli import common
from kseg.cli.main import COMMANDS
from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.engine import imported
from kseg.errors import UsageError
from tests.support.cli import ROOT, SEGMENTS, invoke
from tests.support.repairing import FIRST, SOUND, digests

#: Arguments with which each command reaches its work; ``{in}`` is a segment that is not below the log directory.
ARGUMENTS: dict[str, list[str]] = {
    "adopt": ["--node", "1={folder}/.."],
    "carve": ["{in}"],
    "completion": ["bash"],
    "convert": ["any-to-v2", "{in}"],
    "demo": [],
    "diff": ["{in}", "{in}"],
    "dump": ["{in}"],
    "explain": ["{in}"],
    "grep": ["x", "{in}"],
    "lag": ["{in}"],
    "pipeline": ["plan", "{config}"],
    "recovery": ["{folder}"],
    "repair": ["{in}"],
    "doctor": ["{in}"],
    "rules": [],
    "schemas": ["{in}"],
    "sql": ["select count(*) from batches", "{in}"],
    "stats": ["{in}"],
    "tier": ["fetch", "{in}"],
    "transactions": ["{in}"],
    "validate": ["{in}"],
}
#: What an option needs in order to work.
NEEDED: dict[str, list[str]] = {"SRC... [DST]": ["--force"], "DST": ["--force"], "FOLDER": []}
SIDE_FILES = (
    "t-4/leader-epoch-checkpoint", "t-4/partition.metadata", f"t-4/{FIRST}", f"t-4/{FIRST[:20]}.index",
    "t-4/00000000000000000024.snapshot", "t-4/00000000000000000024.timeindex", f"t-4/{FIRST[:20]}.txnindex",
    f"t-4/{FIRST}.deleted", f"t-4/{FIRST}.swap", f"t-4/{FIRST}.cleaned", "t-4/00000000000000000042-0000000003.checkpoint",
    "recovery-point-offset-checkpoint", "replication-offset-checkpoint", "meta.properties", ".kafka_cleanshutdown", ".lock",
    "t-4/quorum-state", f"remote/{FIRST[:20]}-AbcDefGhijKlmnOpqrStuv.log", "cache/7_AbcDefGhijKlmnOpqrStuv.index",
)  # fmt: skip
#: Copies under other names: their content shows what they are.
COPIES = {
    "segment.bak": FIRST,
    "producers.bak": "00000000000000000024.snapshot",
    "epochs.txt": "leader-epoch-checkpoint",
}
#: Names that do not exist: a broker would read them, or fail to start.
NEW = (
    "t-4/00000000000000009999.log",
    "t-4/00000000000000009999.index",
    "t-4/new.log",
    "t-4/old.snapshot",
    "t-4/x.deleted",
)


@pytest.mark.parametrize("name", [f"{FIRST[:20]}.index.bak", "a.idx.bak", "old.timeindex.ORIG", "notes~"])
def test_a_backup_copy_is_not_replaced(name: str, tmp_path: Path) -> None:
    """The bytes of an index do not show what it is, so its name protects a copy. A new file can have such a name."""
    output = tmp_path / name
    output.write_bytes(bytes(12))
    done = invoke("dump", "-o", output, SEGMENTS / "4.3.0-v2-none")
    assert (done.exit_code, output.read_bytes()) == (2, bytes(12))
    assert "backup copy" in done.stderr
    output.unlink()
    assert invoke("dump", "-o", output, SEGMENTS / "4.3.0-v2-none").exit_code == 0


def commands() -> Iterator[tuple[str, click.Command]]:
    for name, (place, *_) in COMMANDS.items():
        yield name, imported(place)


def writing_parameters() -> Iterator[tuple[str, click.Parameter]]:
    """Yield each command's parameters whose value is a path to be written."""
    for name, command in commands():
        for parameter in command.params:
            if isinstance(parameter.type, common.OutputPath | common.ResultPath):
                yield name, parameter


WRITING = list(writing_parameters())


def test_every_path_states_whether_it_is_written() -> None:
    """A parameter that names a path has a type of ``cli.common``, and so its check and its tests."""
    for name, command in commands():
        assert name in ARGUMENTS, f"{name}: add the arguments with which it reaches its work"
        for parameter in command.params:
            words = set(
                (parameter.metavar or "").replace("=", " ").strip("[]").replace("]", " ").replace("...", "").split()
            )
            is_path = words & {"PATH", "FILE", "DIR", "FOLDER", "SRC", "DST", "A", "B"} and "VALUE" not in (
                parameter.metavar or ""
            )
            assert not isinstance(parameter.type, click.Path | click.File), (name, parameter.name)
            assert bool(is_path) == isinstance(parameter.type, common.PathText), (name, parameter.name)
    found = {(name, parameter.opts[-1]) for name, parameter in WRITING}
    assert {
        ("validate", "--cache"),
        ("validate", "--report"),
        ("convert", "target"),
        ("doctor", "--output"),
        ("doctor", "--html"),
    } <= found


#: The modules that create files, and why no rule applies to these.
CREATORS = {
    "format/storage/atomic_write.py": "publishes",
    "format/writer/written_side_files.py": "in a staging folder",
    "commands/convert/convert_ranges.py": "in a staging folder",
    "commands/repair/merged_log.py": "in a scratch folder",
    "commands/repair/kept_batches.py": "in a staging folder",
    "spark/jobs/segment_run.py": "in a staging folder",
    "report/formats.py": "a device or a pipe",
    "cli/validate_command.py": "GITHUB_STEP_SUMMARY, checked",
    "cli/main.py": "the null device",
    "extras/serialization/protobuf.py": "in a temporary folder",
    "spark/jobs/launch.py": "in a temporary folder",
    "cli/demo_command.py": "in a scratch folder",
}


@pytest.mark.slow
def test_few_modules_create_files() -> None:
    """All others use ``atomic_write``, whose targets are checked."""
    found = set()
    for path in (ROOT / "kseg").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            named = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
            if not isinstance(node, ast.Call) or named not in (
                "open",
                "rename",
                "replace",
                "write_text",
                "write_bytes",
            ):
                continue
            called = ast.unparse(node.func)
            modes = [value.value for value in (*node.args, *(key.value for key in node.keywords))
                     if isinstance(value, ast.Constant) and isinstance(value.value, str)]  # fmt: skip
            opened = called.split(".")[-1] == "open" and any(
                set(mode) <= set("rwxab+t") and set(mode) & set("wxa+") for mode in modes
            )
            written = called.endswith((".write_text", ".write_bytes")) and called.split(".")[0] not in (
                "record_lines",
                "encoder",
            )
            if opened or written or called in ("os.rename", "os.replace"):
                found.add(path.relative_to(ROOT / "kseg").as_posix())
    assert found == set(CREATORS)


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A log directory with all kinds of Kafka's files, and ``in/t-5``, an input elsewhere."""
    folder = tmp_path / "kafka"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", folder / "t-4")
    for name in ("ORIGIN", "expect.jsonl"):
        (folder / "t-4" / name).unlink()
    for name in SIDE_FILES:
        if not (folder / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"" if name == ".lock" else b"of Kafka")
    for name, source in COPIES.items():
        shutil.copy(folder / "t-4" / source, tmp_path / name)
    (tmp_path / "in" / "t-5").mkdir(parents=True)
    shutil.copy(SOUND, tmp_path / "in" / "t-5")
    (tmp_path / "night.toml").write_text(
        '[pipeline]\nstate = "state"\n[source]\npaths = ["in", "kafka"]\n[table.t]\npath = "lake"\n'
    )
    return folder


def arguments(name: str, parameter: click.Parameter, target: Path, top: Path) -> list[str]:
    given = [
        text.format(**{"in": top / "in" / "t-5" / FIRST, "folder": top / "in" / "t-5", "config": top / "night.toml"})
        for text in ARGUMENTS[name]
    ]
    if parameter.param_type_name == "argument":
        return [name, *given, str(target), *NEEDED[parameter.metavar or ""]]
    if name in ("convert", "repair"):
        given.append(str(top / "result.log"))
    value = f"junit={target}" if parameter.metavar == "FORMAT=FILE" else str(target)
    return [name, *given, parameter.opts[-1], value, *NEEDED.get(parameter.opts[-1], [])]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameter"), WRITING, ids=lambda value: getattr(value, "name", value))
def test_no_option_touches_a_file_of_kafka(name: str, parameter: click.Parameter, log_dir: Path) -> None:
    """Also with --force, through links, and under other spellings of the path."""
    top = log_dir.parent
    (top / "link.txt").symlink_to(log_dir / "t-4" / "leader-epoch-checkpoint")
    (top / "kafka-link").symlink_to(log_dir)
    (top / "hard.txt").hardlink_to(top / "in" / "t-5" / FIRST)
    before = digests(top)
    targets = [log_dir / path for path in (*SIDE_FILES, *NEW)] + [top / path for path in COPIES]
    targets += [top / "link.txt", top / "hard.txt", top / "kafka-link" / "t-4" / FIRST, top / "in" / "t-5" / FIRST]
    targets += [log_dir / "t-4" / ".." / "t-4" / "partition.metadata", log_dir / "t-4" / "LEADER-EPOCH-CHECKPOINT"]
    targets += [top / "in" / "t-5" / f"{FIRST[:20]}.index"]
    # A folder is never replaced by a file, with a broker's files in it or with the input.
    targets += [log_dir, log_dir / "t-4", top / "in", top / "in" / "t-5", top / "kafka-link"]
    for target in targets:
        done = invoke(*arguments(name, parameter, target, top))
        assert (done.exit_code, digests(top)) == (2, before), (target, done.output)
        assert "internal error" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameter"), WRITING, ids=lambda value: getattr(value, "name", value))
def test_no_option_writes_into_an_input_folder(name: str, parameter: click.Parameter, log_dir: Path) -> None:
    """Not even under a name that brokers ignore; and not through a link to a folder in it."""
    top = log_dir.parent
    (top / "way").symlink_to(log_dir / "t-4")
    before = digests(top)
    for target in (log_dir / "t-4" / "notes.txt", top / "way" / "notes.txt"):
        given = [text.replace(str(top / "in" / "t-5" / FIRST), str(log_dir / "t-4")).replace(
            str(top / "in" / "t-5"), str(log_dir / "t-4")) for text in arguments(name, parameter, target, top)]  # fmt: skip
        done = invoke(*given)
        assert (done.exit_code, digests(top)) == (2, before), done.output
        assert "inputs are never changed" in done.stderr or name == "demo"


#: Two parameters of one command that write.
PAIRS = [(name, one, two) for (name, one), (other, two) in combinations(WRITING, 2) if name == other]


@pytest.mark.parametrize(("name", "one", "two"), PAIRS, ids=lambda value: getattr(value, "name", value))
def test_no_output_replaces_another(name: str, one: click.Parameter, two: click.Parameter, log_dir: Path) -> None:
    """Of two outputs in one file, also with other spellings, one would be lost: nothing is written at all."""
    top = log_dir.parent
    before = digests(top)
    (top / "link").symlink_to(top)
    _, *given = arguments(name, one, top / "same.log", top)
    _, *second = arguments(name, two, top / "link" / "same.log", top)
    done = invoke(name, *given, *second[second.index(two.opts[-1]) :] if two.opts[-1] in second else second[-1:])
    assert done.exit_code == 2, done.output
    assert any(why in done.stderr for why in ("used twice", "the report would be in DST", "cannot be combined"))
    assert digests(top) == before


def test_only_one_output_is_on_standard_output(log_dir: Path) -> None:
    """A page in the middle of a table, or two reports in one text, can be read by no program."""
    paths = [(name, one) for name, one in WRITING if type(one.type) is common.OutputPath and one.name != "output"]
    assert {name for name, _ in paths} >= {"doctor", "validate"}
    for name, parameter in paths:
        given = arguments(name, parameter, Path("-"), log_dir.parent)
        done = invoke(*given)
        assert (done.exit_code, done.stdout) == (2, ""), given
        assert "standard output is used twice" in done.stderr or "expected a file, got '-'" in done.stderr


def test_reports_of_a_pipeline_do_not_replace_each_other(log_dir: Path) -> None:
    """Its configuration names outputs, too."""
    config = log_dir.parent / "night.toml"
    text = config.read_text()
    for reports, more in (('["a.html", "html:./a.html"]', []), ('["a.html"]', ["-o", log_dir.parent / "a.html"])):
        config.write_text(f"{text}[report]\nto = {reports}\n")
        done = invoke("pipeline", "plan", config, *more)
        assert done.exit_code == 2
        assert "a.html is used twice" in done.stderr


def test_outputs_that_lose_nothing_can_be_the_same(log_dir: Path) -> None:
    """/dev/null throws away both, and the folder of a pipeline's state can have its other files."""
    done = invoke("doctor", log_dir.parent / "in" / "t-5", "-o", os.devnull, "--html", os.devnull)
    assert (done.exit_code < 2, "used twice" in done.stderr) == (True, False)
    config = log_dir.parent / "night.toml"
    code = invoke("pipeline", "plan", config).exit_code
    config.write_text(config.read_text() + '[quarantine]\nto = "state"\n')
    done = invoke("pipeline", "plan", config)
    assert (done.exit_code, "used twice" in done.stderr) == (code, False)


def test_a_forgotten_output_name_is_explained(log_dir: Path) -> None:
    """The shell expands ``-o t-4/*.log`` to all segments: the first would be replaced by a table of the others."""
    logs = sorted(map(str, (log_dir / "t-4").glob("*.log")))
    before = digests(log_dir)
    done = invoke("dump", "--deep", "-o", *logs)
    assert (done.exit_code, digests(log_dir)) == (2, before)
    assert "If its name was forgotten, the shell has put the first file of *.log in its place" in done.stderr


def test_names_that_no_broker_reads_are_allowed_next_to_an_input_file(tmp_path: Path) -> None:
    """``kseg dump file.log -o file.txt`` and ``kseg convert v0-to-v2 file.log new.log``, also repeatedly."""
    log = tmp_path / "file.log"
    shutil.copy(SEGMENTS / "0.8.2.2-v0-none" / FIRST, log)
    before = log.read_bytes()
    for force in ([], ["--force"]):
        assert invoke("dump", log, "-o", tmp_path / "file.txt").exit_code == 0
        assert invoke("convert", "v0-to-v2", log, tmp_path / "new.log", *force).exit_code == 0
    assert invoke("repair", log, tmp_path / "kept.log").exit_code == 0
    assert log.read_bytes() == before
    names = {
        "file.log",
        "file.txt",
        *(f"{stem}.{kind}" for stem in ("new", "kept") for kind in ("log", "index", "timeindex")),
    }
    assert {path.name for path in tmp_path.iterdir()} == names


@pytest.mark.parametrize("verb", [["convert", "any-to-v2"], ["repair"]], ids=["convert", "repair"])
def test_force_replaces_an_earlier_result_only(verb: list[str], log_dir: Path) -> None:
    """A segment next to others, or without indexes, is no earlier result of one segment."""
    top = log_dir.parent
    source = top / "in" / "t-5" / FIRST
    (top / "new").mkdir()
    for _ in range(2):
        assert invoke(*verb, source, top / "new" / FIRST, "--force").exit_code == 0
    shutil.copy(source, top / "new" / "00000000000000000100.log")
    before = digests(top)
    for target in (
        top / "new" / FIRST,
        log_dir / "t-9",
        log_dir / "t-4" / "inner",
        top / "in" / "t-5" / "00000000000000000100.log",
    ):
        given = source if target.suffix else source.parent
        assert (invoke(*verb, given, target, "--force").exit_code, digests(top)) == (2, before), target


@pytest.mark.parametrize("kind", ["fifo", "null"])
def test_a_pipe_or_a_device_is_written(kind: str, tmp_path: Path) -> None:
    """They hold nothing that could be replaced."""
    target = Path("/dev/null")
    if kind == "fifo":
        target = tmp_path / "pipe"
        os.mkfifo(target)
        reader = os.open(target, os.O_RDONLY | os.O_NONBLOCK)
    assert invoke("dump", SOUND, "-o", target).exit_code == 0
    if kind == "fifo":
        assert b"base_offset" in os.read(reader, 1 << 16).lower().replace(b" ", b"_")
        os.close(reader)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["table", "jsonl", "csv", "html", "markdown", "junit", "sarif", "parquet", "arrow", "text", "hex"]
)
def test_an_earlier_report_is_not_taken_for_a_file_of_kafka(name: str, tmp_path: Path) -> None:
    """It can be replaced in every format."""
    target, ran = tmp_path / "out", 0
    for verb in ("validate", "dump", "stats", "recovery", "transactions"):
        for _ in range(2):
            done = invoke(verb, SEGMENTS / "4.3.0-v2-none-transactions", "--format", name, "-o", target)
            ran += done.exit_code < 2
            assert "of Kafka" not in done.stderr
    assert ran or name in ("arrow",)


def test_completion_is_installed_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start file keeps its content, its permissions and its link; a full disk leaves it as it was."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    (tmp_path / "real").write_bytes(b"alias x=y # \xff")
    (tmp_path / "real").chmod(0o600)
    (tmp_path / ".bashrc").symlink_to("real")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        assert "nothing was written" in invoke("completion", "bash", "--install").stderr
    assert (tmp_path / "real").read_bytes() == b"alias x=y # \xff"
    assert invoke("completion", "bash", "--install").exit_code == 0
    assert (tmp_path / ".bashrc").is_symlink()
    assert (tmp_path / "real").read_bytes().startswith(b"alias x=y # \xff\n[ ! -r ")
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o600
    (tmp_path / "real").write_bytes(b'[ ! -r "old" ] || . "old"  # completion of kseg\nalias x=y # \xff\n')
    assert invoke("completion", "bash", "--install").exit_code == 0
    assert (tmp_path / "real").read_bytes().startswith(b"alias x=y # \xff\n[ ! -r ")


def test_the_library_has_the_rule_too(log_dir: Path) -> None:
    """A program that calls ``convert`` is protected like the command line."""
    before = digests(log_dir)
    with pytest.raises(UsageError, match=r"expected a \.log file"):
        convert(str(SOUND), str(log_dir / "t-4" / "partition.metadata"), ConversionPlan.of("any-to-v2", force=True))
    assert digests(log_dir) == before
