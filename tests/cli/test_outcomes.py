"""Exit codes and last lines are right if a stream is closed or full, a URL fails, or every file was unreadable."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import DAMAGED, PLAIN, ROOT, SEGMENTS, kseg
from tests.support.repairing import FIRST

BROKEN = DAMAGED / FIRST


def shell(command: str) -> tuple[int, str]:
    """Return exit code and stderr of a shell line in which ``kseg`` is this one."""
    line = f'set -o pipefail; kseg() {{ {sys.executable} -m kseg "$@"; }}; {command}'
    done = subprocess.run(["bash", "-c", line], capture_output=True, check=False)
    return done.returncode, done.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb",
    [
        *(f"dump --deep --format {name}" for name in ("jsonl", "text", "csv", "hex", "table")),
        *(f"grep . --format {name}" for name in ("jsonl", "text")),
        "grep . --template '%{offset}'",
        "grep . --columns offset,value",
        "grep . --only-matching",
    ],
)
def test_a_reader_that_closes_the_pipe_is_no_failure(verb: str) -> None:
    """head closes the pipe: Click and rich would exit with 1, which means findings."""
    many = f"{PLAIN} " * 150
    assert shell(f"kseg {verb} {many} | head -n 1 > /dev/null") == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    "verb", ["validate", "validate --format jsonl", "validate --format sarif", "stats", "dump --deep"]
)
@pytest.mark.parametrize("reader", ["true", "head -c 1"])
def test_a_reader_that_exits_early_changes_no_exit_code(verb: str, reader: str) -> None:
    """A script that shows the first line of a report must still learn of the damage."""
    line = f"kseg {verb} {BROKEN} | {reader} > /dev/null; test $? = 1"
    assert shell(line)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("stream", ["2>&-", "2>/dev/full", "<&-"])
@pytest.mark.parametrize(
    ("arguments", "code"), [(f"stats {PLAIN}", 0), (f"stats {BROKEN}", 1), ("stats absent", 2), ("--x", 2)]
)
def test_output_that_cannot_be_written_changes_no_exit_code(arguments: str, code: int, stream: str) -> None:
    """A daemon runs without streams, and the next file to be opened must not get their descriptors."""
    assert shell(f"kseg {arguments} {stream}")[0] == code


@pytest.mark.parametrize(("stream", "code"), [("> /dev/full", 2), ("| true", 1)])
def test_a_repair_is_not_undone_by_its_report(stream: str, code: int, tmp_path: Path) -> None:
    """A repair can take hours; a full disk under the report must not undo it."""
    found, reported = shell(f"kseg repair {BROKEN} {tmp_path / FIRST} {stream}")
    assert (found, (tmp_path / FIRST).exists()) == (code, True)
    assert "nothing was written" not in reported
    assert str(tmp_path) not in reported


def test_nothing_read_is_not_success(tmp_path: Path) -> None:
    """Exit code 0 would claim that the files are valid."""
    (tmp_path / "a-0" / FIRST).mkdir(parents=True)
    (tmp_path / "b-0").mkdir()
    (tmp_path / "b-0" / FIRST).symlink_to("nowhere")
    absent = kseg("recovery", tmp_path / "absent")
    assert absent.stdout.splitlines()[-1] == "no partition was read; 1 path unreadable"
    folder = kseg("recovery", tmp_path / "a-0")
    assert (folder.returncode, folder.stderr) == (1, "")
    assert "a folder has the name of a file" in folder.stdout
    link = kseg("recovery", "-v", tmp_path / "b-0")
    assert (link.returncode, link.stderr) == (2, "")
    assert "no partition was read" in link.stdout
    assert "it is a link without a target" in link.stdout
    (tmp_path / "ld").mkdir()
    (tmp_path / "a-0").rename(tmp_path / "ld" / "a-0")
    (tmp_path / "ld" / "a-0" / FIRST).rmdir()
    (tmp_path / "ld" / "a-0" / FIRST).symlink_to("nowhere")
    (tmp_path / "ld" / "a-0" / "00000000000000000005.log").write_bytes(PLAIN.read_bytes())
    repaired = kseg("repair", tmp_path / "ld", tmp_path / "out")
    assert repaired.returncode == 2
    assert "nothing is lost" not in repaired.stdout
    assert "1 partition not repaired" in repaired.stdout


@pytest.mark.slow
@pytest.mark.parametrize("time", ["--5", "²", "9" * 5000, "9" * 19, "0001-01-01T00:00:00+23:00x"])
def test_a_time_that_is_none_is_wrong_usage(time: str) -> None:
    """A wrong time is an error with the expected notation."""
    done = kseg("dump", f"--since={time}", PLAIN)
    assert done.returncode == 2
    assert "Invalid value for '--since'" in done.stderr


@pytest.mark.parametrize("verb", ["dump", "validate", "stats", "transactions"])
def test_standard_input_is_read_once(verb: str) -> None:
    """A second `-` would be an empty file."""
    done = kseg(verb, "-", "-", stdin=PLAIN.read_bytes())
    assert (done.returncode, done.stdout) == (2, "")
    assert "can be read only once" in done.stderr


@pytest.mark.slow
def test_a_name_that_is_no_utf8_is_the_same_text_in_all_formats(tmp_path: Path) -> None:
    """Rows of several formats are joined by their file, and strict readers refuse a file with one lone surrogate."""
    parquet = pytest.importorskip("pyarrow.parquet")
    arrow_json = pytest.importorskip("pyarrow.json")
    source, shown = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.log"), f"{tmp_path}/\\udcff.log"
    shutil.copy(PLAIN, source)
    for command in (("dump", "--shallow"), ("dump", "--deep"), ("grep", "."), ("stats",)):
        rows, lines, table = (tmp_path / f"{'-'.join(command)}.{suffix}" for suffix in ("jsonl", "csv", "parquet"))
        assert kseg(*command, "--format", "jsonl", source, "-o", rows).returncode == 0
        assert arrow_json.read_json(rows).num_rows
        assert json.dumps(shown) in rows.read_text("utf-8")
        assert kseg(*command, "--format", "csv", source, "-o", lines).returncode == 0
        assert shown in lines.read_text("utf-8")
        if command[0] == "dump":
            done = kseg(*command, "--format", "parquet", source, "-o", table)
            assert (done.returncode, done.stderr.count("\n")) == (0, 1)
            assert parquet.read_table(table)["file"][0].as_py() == shown


@pytest.mark.parametrize("words", ["--help", "--version", "help dump", "help dump time", "completion bash"])
def test_a_text_that_nobody_gets_is_a_failure(words: str) -> None:
    """Exit code 0 says that the text was written: a script of completions would be empty."""
    assert shell(f"kseg {words} >&-") == (2, "kseg: standard output is closed\n")


def test_a_failing_url_gives_its_reason() -> None:
    """The line has the reason of the file system."""
    pytest.importorskip("aiohttp")
    done = kseg("dump", "http://localhost:1/x.log")
    assert done.returncode == 2
    assert "Cannot connect to host localhost:1" in done.stderr


@pytest.mark.parametrize("verb", ["repair", "convert any-to-v2"])
def test_messages_name_what_was_asked_for(verb: str, tmp_path: Path) -> None:
    """The message names DST, not the hidden folder in which the result is made and which is deleted by then."""
    # The limit would cut the interpreter's own cache, too.
    code, reported = shell(
        f"export PYTHONDONTWRITEBYTECODE=1; ulimit -f 4; kseg {verb} {PLAIN.parent} {tmp_path / 'out-0'}"
    )
    assert code == 2
    assert reported == f"kseg: {tmp_path / 'out-0' / FIRST}: File too large; nothing was written there\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "start"),
    [
        (b"\xff\xfe", "kseg: kseg.toml: byte 0 is not UTF-8"),
        (b"fail-on = 'x'", "kseg: kseg.toml: fail-on: unknown value 'x'"),
        (b"limit = 0", "kseg: kseg.toml: limit: expected a whole number of at least 1, got 0"),
        (b"limit = [1]", "kseg: kseg.toml: limit: expected a whole number, got [1]"),
        (b"max-message-bytes = 1.5", "kseg: kseg.toml: max-message-bytes: expected a whole number, got 1.5"),
        (b"jobs = true", "kseg: kseg.toml: jobs: expected a whole number, got true"),
        (b"deep = 3", "kseg: kseg.toml: deep: expected true or false, got 3"),
        (b"rule = [3]", "kseg: kseg.toml: rule: expected a list of texts, got [3]"),
        (b"rule = ['x=error']", "kseg: kseg.toml: rule: unknown rule 'x'"),
        (b"columns = 'rules'", "kseg: kseg.toml: columns: unknown column 'rules': did you mean rule?"),
        (b"columns = 'rule'\nformat = 'jsonl'", "kseg: kseg.toml: columns needs format table or csv"),
        (b"compacted = true\ndeep = false", "kseg: kseg.toml: compacted cannot be combined with --shallow: it checks"),
        (b"verbose = true\nquiet = true", "kseg: kseg.toml: verbose cannot be combined with quiet"),
        (b"fail-on = 'error'\nfail_on = 'never'", "kseg: kseg.toml: fail-on and fail_on are one setting: give it once"),
    ],
)
def test_a_wrong_setting_names_the_file_and_the_setting(content: bytes, start: str, tmp_path: Path) -> None:
    """The user finds the place in the file by its own spelling."""
    (tmp_path / "kseg.toml").write_bytes(content)
    code, reported = shell(f"cd {tmp_path} && kseg validate {PLAIN}")
    assert code == 2
    assert reported.startswith(start)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[tool]\nkseg = 3\n", "pyproject.toml: tool.kseg: expected a table, got 3"),
        ("tool = 'x' # kseg\n", "pyproject.toml: tool: expected a table, got 'x'"),
        ("[tool.kseg]\nfail-on = 'info'\n[broken\n", "pyproject.toml: Expected ']'"),
    ],
)
def test_settings_that_cannot_be_read_do_not_pass(content: str, message: str, tmp_path: Path) -> None:
    """A gate in CI is not off because of a wrong line elsewhere in the file."""
    (tmp_path / "pyproject.toml").write_text(content)
    code, reported = shell(f"cd {tmp_path} && kseg validate {PLAIN}")
    assert code == 2
    assert message in reported


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["repair", "convert any-to-v2"])
def test_dst_is_named_as_it_was_given(verb: str, tmp_path: Path) -> None:
    """A relative DST stays relative in the report and in errors; one without a name of its own is made absolute."""
    (tmp_path / "here").mkdir()
    for dst, shown in (("out-0", "out-0"), (".", str(tmp_path / "here")), ("./a/../b-0", "a/../b-0")):
        (tmp_path / "here" / "a").mkdir(exist_ok=True)
        command = (
            f"cd {tmp_path}/here && kseg {verb} {PLAIN.parent} {dst} 2>/dev/null; kseg {verb} {PLAIN.parent} {dst} >&2"
        )
        code, reported = shell(command)
        assert code == 2
        assert reported.splitlines()[-1] == f"kseg: {shown} exists: add --force to replace it"


def test_a_printed_name_that_is_not_utf8_has_its_bytes(tmp_path: Path) -> None:
    """A name that is not UTF-8 is shown by its bytes, not by Python's placeholders for them."""
    code, reported = shell(f"kseg validate $'{tmp_path}/a\\xff.log'")
    assert (code, reported) == (2, f"kseg: {tmp_path}/a\\xff.log: No such file or directory\n")


@pytest.mark.parametrize("stream", ["dump", "stats", "rules"])
def test_a_full_disk_is_reported_without_a_number(stream: str) -> None:
    """The number of an operating system's error helps nobody."""
    code, reported = shell(f"kseg {stream} {'' if stream == 'rules' else PLAIN} > /dev/full")
    assert code == 2
    assert reported == "kseg: standard output: No space left on device\n"


def test_outputs_are_not_named_as_inputs(tmp_path: Path) -> None:
    """The message names the option or argument that has to change."""
    shutil.copy(PLAIN, tmp_path / FIRST)
    state = kseg("validate", "--cache", tmp_path / FIRST, tmp_path / FIRST).stderr
    assert state.startswith(f"kseg: {tmp_path / FIRST} is an input or a side file of one: inputs are never changed")
    assert state.endswith("write --cache FILE\n")
    shutil.copy(PLAIN, tmp_path / "copy")
    state = kseg("validate", "--cache", tmp_path / "copy", tmp_path / "copy").stderr
    assert state.endswith("copy is an input or a side file of one: inputs are never changed: give another --cache\n")
    report = kseg("repair", tmp_path / FIRST, tmp_path / "x", "-o", tmp_path / "x").stderr
    assert report == f"kseg: -o {tmp_path / 'x'}: the report would be in DST or replace it: give another FILE\n"
    (tmp_path / "ld" / "t-0").mkdir(parents=True)
    shutil.copy(PLAIN, tmp_path / "ld" / "t-0" / FIRST)
    (tmp_path / "ld" / "meta.properties").write_text("version=9\n")
    summary = kseg("recovery", tmp_path / "ld").stdout.splitlines()[-1]
    assert summary.endswith("because of 1 log directory")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "summary"),
    [
        ("dump --deep", "44 rows"),
        ("dump --as message-set", "rows"),
        ("validate", "sound: 1 file"),
        ("stats", "1 segment counted"),
        ("recovery", "1 of 1 partition would lose data"),
        ("transactions", "no transactions in 1 partition"),
        ("repair --dry-run", "no data lost"),
        ("diff", "identical: "),
    ],
)
def test_an_output_file_has_a_summary_on_stderr(command: str, summary: str, tmp_path: Path) -> None:
    """With -o stdout is empty, and a line names the file and its content."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    shutil.copy(PLAIN, folder / FIRST)
    path = folder / FIRST if "--as" in command else folder
    code, reported = shell(f"kseg {command} -o {tmp_path}/found {path} {path if command == 'diff' else ''}")
    assert code == (command == "recovery")
    assert (tmp_path / "found").read_text()
    assert f"kseg: {tmp_path}/found: " in reported
    assert summary in reported


@pytest.mark.parametrize(("command", "line"), [("stats", "14 more"), ("transactions", "more of them follow")])
def test_findings_that_are_not_printed_are_mentioned(command: str, line: str, tmp_path: Path) -> None:
    """16 lines and then nothing would read as 16 findings; without -v one sentence has the number of all."""
    content = bytearray(PLAIN.read_bytes())
    content[11 + int.from_bytes(content[8:12], "big")] ^= 1
    (tmp_path / PLAIN.name).write_bytes(content[: 12 + int.from_bytes(content[8:12], "big")] * 30)
    done = kseg(command, "-v", tmp_path)
    assert done.stderr.count("crc-mismatch at byte") == 16
    assert f"crc-mismatch: {line}" in done.stderr
    done = kseg(command, tmp_path)
    assert done.stderr.count("crc-mismatch") == 1
    assert done.stderr.startswith("kseg: 30 findings in 1 file: `kseg validate` lists them; the first: ")


#: Bytes on standard input in which there is nothing: of a failed command, of it with gzip, and of tar without files.
NOTHING = {"empty": b"", "gzip": gzip.compress(b""), "tar": bytes(10240), "tar.gz": gzip.compress(bytes(10240))}


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTHING)
@pytest.mark.parametrize("command", ["validate", "dump", "stats", "grep x", "transactions", "validate --as requests"])
def test_nothing_on_standard_input_is_not_sound(command: str, name: str) -> None:
    """A failing `kubectl exec … | kseg validate -` must not stay green: nothing was looked at."""
    done = kseg(*command.split(), "-", stdin=NOTHING[name])
    assert (done.returncode, "nothing was read" in done.stderr) == (2, True), done.stderr
    if command == "validate":
        assert done.stdout.startswith("undetermined: 0 files (nothing read in 1 path)")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["validate", "dump", "stats", "grep x", "transactions", "dump --as message"])
def test_an_empty_file_is_valid_only_under_the_name_of_a_segment(command: str, tmp_path: Path) -> None:
    """A broker creates segments of 0 bytes; a download that failed leaves other files of 0 bytes."""
    segment, download = tmp_path / FIRST, tmp_path / "segment.bin"
    segment.touch()
    download.touch()
    assert kseg(*command.split(), download).returncode == 2
    assert kseg(*command.split(), segment).returncode == int(command.startswith("grep"))


@pytest.mark.parametrize("name", ["junit", "sarif", "github", "markdown"])
def test_reports_have_the_paths_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    """CI servers read the report: an empty one is green."""
    (tmp_path / "empty").mkdir()
    done = kseg("validate", "--format", name, "empty", cwd=tmp_path)
    assert (done.returncode, "no segment found" in done.stdout) == (2, True)


def test_a_baseline_of_a_deep_run_is_not_gone_in_a_shallow_one(tmp_path: Path) -> None:
    """What a run does not check can't be missing from its findings."""
    path, known = DAMAGED.parent / "null-key" / FIRST, tmp_path / "known.json"
    assert kseg("validate", "--compacted", "--write-baseline", known, path).returncode == 1
    assert "no longer" not in kseg("validate", "--shallow", "--baseline", known, path).stderr
    assert "no longer found" in kseg("validate", "--baseline", known, path).stderr


def test_keys_cannot_be_checked_in_headers() -> None:
    """Only records have keys: --shallow said sound over null keys."""
    done = kseg("validate", "--shallow", "--compacted", DAMAGED.parent / "null-key" / FIRST)
    assert (done.returncode, "--compacted" in done.stderr) == (2, True)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["validate", "report"])
def test_a_partition_without_its_segments_is_no_success(verb: str, tmp_path: Path) -> None:
    """Exit code 0 would claim that a log is sound that is gone. Files of a log directory make no such claim."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    (folder / f"{24:020}.index").write_bytes(b"")
    found = kseg(verb, folder)
    line = f"{folder}: no segment found, but 2 side files of a partition"
    assert (found.returncode, found.stderr.count(line)) == (2, 1)
    assert "orphaned-index" in found.stdout
    assert kseg(verb, folder / "leader-epoch-checkpoint").returncode == 0
    log_dir = tmp_path / "log-dir"
    log_dir.mkdir()
    (log_dir / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    (log_dir / "meta.properties").write_text(f"version=1\nnode.id=1\ncluster.id={'A' * 22}\n")
    assert kseg(verb, log_dir).returncode == 0


#: Commands whose exit code tells of damage -> the partition that they read, under the name that they know.
TRANSACTIONS = SEGMENTS / "4.3.0-v2-none-transactions"
READERS = {
    "validate": (TRANSACTIONS, "orders-0"),
    "dump --deep": (TRANSACTIONS, "orders-0"),
    "stats": (TRANSACTIONS, "orders-0"),
    "transactions": (SEGMENTS / "4.3.0-v2-none", "orders-0"),
    "lag": (SEGMENTS / "4.3.0-v2-none-consumer-offsets", "__consumer_offsets-0"),
    "lag --history kseg-consumer": (SEGMENTS / "4.3.0-v2-none-consumer-offsets", "__consumer_offsets-0"),
    "schemas": (ROOT / "fixtures" / "serialized" / "_schemas-0", "_schemas-0"),
    "diff --by-key {folder}": (TRANSACTIONS, "orders-0"),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", READERS)
def test_a_batch_that_a_broker_may_be_writing_is_not_damage(command: str, tmp_path: Path) -> None:
    """A nightly job on a running broker stays green; in a segment that has a next one the same bytes are damage."""
    source, name = READERS[command]
    folder = Path(shutil.copytree(source, tmp_path / name))
    arguments = command.format(folder=source).split()
    log = max(folder.glob("*.log"))
    content = log.read_bytes()
    assert kseg(*arguments, folder).returncode == 0
    log.write_bytes(content + content[:70])
    done = kseg(*arguments, folder)
    assert done.returncode == 0, done.stderr
    assert "truncated-tail" in done.stdout + done.stderr
    (folder / "00000000000000100000.log").touch()
    assert kseg(*arguments, folder).returncode == 1
