"""A read error is no damage, in any command, at any read: the exit code is 2, or the answer is that of a read without it."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Iterator
from difflib import unified_diff
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kseg.cli.main import main
from tests.support.damage import flip
from tests.support.fixtures import SEGMENTS
from tests.support.fuzzing import cases
from tests.support.read_faults import local_faults, remote_faults

pytestmark = pytest.mark.slow

#: Commands over a log directory A and its copy B, which are sound. OUT is a new path. Those that write have it.
COMMANDS = {
    "validate": "validate --jobs 1 --format jsonl A",
    "shallow": "validate --shallow --jobs 1 --format jsonl A",
    "dump": "dump --format jsonl A",
    "records": "dump --deep --format jsonl A",
    "committed": "dump --deep --isolation read_committed --format csv A",
    "effective": "dump --effective --format jsonl A/__consumer_offsets-0",
    "grep": "grep --jobs 1 --format jsonl a A",
    "stats": "stats --deep --jobs 1 --format jsonl A",
    "transactions": "transactions --format jsonl A",
    "lag": "lag --format jsonl A",
    "schemas": "schemas --format jsonl A/_schemas-0",
    "diff": "diff --format jsonl A B",
    "diff-by-key": "diff --by-key --format jsonl A/orders-0 B/orders-0",
    "recovery": "recovery --jobs 1 --unclean --format jsonl A",
    "doctor": "doctor A",
    "explain": "explain A/orders-0/00000000000000000024.log",
    "sql": "sql --format jsonl 'select count(*) n from records' A",
    "sql-batches": "sql --format jsonl 'select sum(record_count) n from batches' A",
    "repair": "repair --format jsonl A OUT",
    "convert": "convert any-to-v2 A OUT",
    "convert-skipping": "convert any-to-v2 --skip-damaged A OUT",
    "adopt": "adopt --format jsonl --no-metadata --node 1=A --node 2=B",
}
#: Those that read URLs, too.
REMOTE = ("validate", "dump", "records", "committed", "grep", "stats", "transactions", "explain", "sql", "sql-batches")
#: What no answer about sound logs says, also before the line about the error.
_FALSE = ("damaged:", '"verdict":"damaged"', "mismatch", "truncated-tail", '"verdict":"diverged"', '"kind":"lost"')


#: The age of a transaction grows while the test runs, and each plan of a cluster has new ids.
_RANDOM = re.compile('"age_ms":[0-9]+|"(cluster|topic)_id":"[^"]*"')


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two equal log directories of a broker."""
    made = tmp_path_factory.mktemp("failing")
    names = {
        "orders-0": "4.3.0-v2-none-segments",
        "payments-0": "4.3.0-v2-none-transactions",
        "__consumer_offsets-0": "4.3.0-v2-none-internal-consumer-offsets",
        "_schemas-0": "../serialized/_schemas-0",
    }
    for name, source in names.items():
        for side in ("A", "B"):
            target = made / side / name
            shutil.copytree(SEGMENTS / source, target, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl"))
    for side in ("A", "B"):
        (made / side / "meta.properties").write_text(
            f"version=1\nnode.id={1 + (side == 'B')}\ncluster.id=abcdefghijklmnopqrstuv\n"
        )
    return made


def run(line: str, home: Path, out: Path, *, root: str = "") -> Result:
    words = {"A": root or str(home / "A"), "B": str(home / "B"), "OUT": str(out)}
    arguments = []
    for word in split(line):
        first, slash, rest = word.partition("/")
        name, equals, value = word.partition("=")
        if equals and value in words:
            arguments.append(f"{name}={words[value]}")
        else:
            arguments.append(words[first] + slash + rest if first in words else word)
    shutil.rmtree(out, ignore_errors=True)
    return CliRunner().invoke(main, arguments)


def files_in(out: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(out.rglob("*.log"))}


def split(line: str) -> Iterator[str]:
    for at, part in enumerate(line.split("'")):
        yield from [part] if at % 2 else part.split()


def numbers(name: str, calls: int) -> list[int]:
    """Return the calls to let fail: a sample, with the last ones."""
    most = cases(12)
    return sorted({*random.Random(name).sample(range(calls), min(calls, most)), *range(max(calls - 2, 0), calls)})


def check(name: str, done: Result, whole: Result, what: str) -> None:
    assert done.exception is None or isinstance(done.exception, SystemExit), (what, done.exception)
    if name == "adopt" and done.exit_code == 1:
        assert '"kind":"left_out"' in done.stdout, what  # the folder is not in the new cluster, and its row says why
    elif done.exit_code != 2:
        answers = [[str(one.exit_code), *_RANDOM.sub("", one.stdout).splitlines()] for one in (whole, done)]
        assert not [*unified_diff(answers[0], answers[1], n=0)], what
    if name in ("validate", "shallow"):
        check_counts(done)
    said = done.output
    assert not [text for text in _FALSE if text in said and text not in whole.output], (what, said)


def check_counts(done: Result) -> dict[str, list[str]]:
    """Check that the counts of the summary are those of the rows. Returns the files by rule, and those without a finding."""
    files: dict[str, list[str]] = {}
    errors = 0
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    if not rows or rows[-1]["kind"] != "summary":
        return files  # the path itself could not be read
    for row in rows[:-1]:
        assert "None" not in row["message"], row
        is_unread = row["rule"] == "read-error" and "errno" not in row["facts"]
        files.setdefault("unread" if is_unread else row["rule"], []).append(row["file"])
        errors += row["severity"] == "error" and row["rule"] != "read-error"
    assert rows[-1]["errors"] == errors, done.stdout
    assert rows[-1]["unread"] == len({*files.get("read-error", ()), *files.get("unread", ())}), done.stdout
    return files


@pytest.mark.parametrize("kind", ["EIO", "ETIMEDOUT"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_local_read_error_is_no_damage(name: str, kind: str, home: Path, tmp_path: Path) -> None:
    """One call fails, and all after it: status, listing, open, and each read of 2,500 bytes."""
    out = tmp_path / "out"
    with local_faults(home) as faults:
        whole = run(COMMANDS[name], home, out)
    assert whole.exit_code in (0, 1), whole.output
    complete = files_in(out)
    for number in numbers(name, faults.calls):
        for failing in (range(number, number + 1), range(number, 1 << 30)):
            with local_faults(home, kind, failing):
                done = run(COMMANDS[name], home, out)
            check(name, done, whole, f"{name} {kind} {failing}")
            assert files_in(out).items() <= complete.items(), f"{name} {failing}: a result of a part of the bytes"


@pytest.mark.parametrize("kind", ["EIO", "short", "client"])
@pytest.mark.parametrize("name", REMOTE)
def test_a_read_error_of_an_object_store_is_no_damage(name: str, kind: str, home: Path, tmp_path: Path) -> None:
    """A connection that ends early, an error of the operating system and one of the store's library."""
    with remote_faults(home / "A") as faults:
        whole = run(COMMANDS[name], home, tmp_path / "out", root="faulty:///logs")
    for number in numbers(name, faults.calls):
        for failing in (range(number, number + 1), range(number, 1 << 30)):
            with remote_faults(home / "A", kind, failing):
                done = run(COMMANDS[name], home, tmp_path / "out", root="faulty:///logs")
            check(name, done, whole, f"{name} {kind} {failing}")


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".snapshot"])
def test_a_side_file_that_cannot_be_read_hides_no_damage_of_its_log(suffix: str, tmp_path: Path) -> None:
    """All requests for it from one on fail. The damage of the segment is found, and the exit code is 2."""
    folder = tmp_path / "orders-0"
    shutil.copytree(
        SEGMENTS / "4.3.0-v2-none-segments", folder, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl")
    )
    log = folder / f"{48:020}.log"
    log.write_bytes(flip(log.read_bytes(), 500))
    codes = []
    for first in range(3):
        with remote_faults(tmp_path, "EIO", range(first, 1 << 30), log.with_suffix(suffix).name) as faults:
            done = run("validate --jobs 1 --format jsonl A", tmp_path, tmp_path / "out", root="faulty:///logs")
        assert '"rule":"crc-mismatch"' in done.stdout
        assert '"lost_bytes":357' in done.stdout
        codes.append(done.exit_code)
        if first >= faults.calls:
            break
    assert 2 in codes


def test_a_partition_that_cannot_be_read_hides_no_damage_of_others(tmp_path: Path) -> None:
    """Each call on its files fails: the damage of the partitions before and after it is found, and it is undetermined."""
    source = SEGMENTS / "4.3.0-v2-none-segments"
    for number in range(3):
        folder = tmp_path / "A" / f"orders-{number}"
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl"))
        if number != 1:
            log = folder / f"{48:020}.log"
            log.write_bytes(flip(log.read_bytes(), 500))
    failing = tmp_path / "A" / "orders-1"
    with local_faults(failing) as faults:
        whole = run(COMMANDS["validate"], tmp_path, tmp_path / "out")
    for number in numbers("validate", faults.calls):
        with local_faults(failing, "EIO", range(number, number + 1)):
            done = run(COMMANDS["validate"], tmp_path, tmp_path / "out")
        assert done.stdout.count('"rule":"crc-mismatch"') == 2, number
        assert done.exit_code == 2 or done.stdout == whole.stdout, number


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot"])
def test_only_the_error_of_a_disk_is_a_finding(suffix: str, tmp_path: Path) -> None:
    """A broker meets the error of its disk, in a log as in a side file, at each of its reads. It knows neither the errors of
    an object store nor the rights of kseg: the file is unread, with the reason, in all formats."""
    folder = tmp_path / "orders-0"
    shutil.copytree(
        SEGMENTS / "4.3.0-v2-none-segments", folder, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl")
    )
    failing = str(folder / f"{48:020}{suffix}")
    for kind in ("EIO", "EACCES"):
        kinds = set()
        with local_faults(Path(failing)) as faults:
            run("validate --jobs 1 --format jsonl A", tmp_path, tmp_path / "out", root=str(folder))
        for first in range(faults.calls):
            with local_faults(Path(failing), kind, range(first, 1 << 30)):
                done = run("validate --jobs 1 --format jsonl A", tmp_path, tmp_path / "out", root=str(folder))
            kinds |= {name for name, files in check_counts(done).items() if failing in files}
        assert kinds == {"read-error"} if kind == "EIO" else kinds <= {"unread"}, (kind, kinds)
    for kind in ("EIO", "client"):
        with remote_faults(tmp_path, kind, range(1 << 30), Path(failing).name):
            outputs = {
                name: run(f"validate --jobs 1 --format {name} A", tmp_path, tmp_path / "out", root="faulty:///logs")
                for name in ("jsonl", "csv", "table", "github", "junit", "sarif", "markdown", "html")
            }
        assert list(check_counts(outputs["jsonl"])) == ["unread"]
        for name, done in outputs.items():
            assert done.exit_code == 2
            assert name in ("jsonl", "csv", "sarif", "html") or "K107" not in done.output, name
            assert "Check the disk" not in done.output or name == "sarif", name


def test_what_was_not_read_is_not_called_missing_or_intact(home: Path, tmp_path: Path) -> None:
    """Offsets of an unread segment are no gap, and nothing is said about the bytes of segments that were not read."""
    logs = sorted((home / "A" / "orders-0").glob("*.log"))
    said = ""
    for first in range(6):  # the plan fails, or the first read, or a later one
        with local_faults(logs[1], "EIO", range(first, 1 << 30)):
            gaps = run("sql --recipe gaps --format jsonl A/orders-0", home, tmp_path / "out")
        assert (gaps.exit_code, gaps.stdout) == (2, "")
        said += gaps.stderr
    assert "gaps: none in what could be read" in said
    with local_faults(logs[1], "EIO", range(1 << 30)):
        counted = run("stats --jobs 1 A/orders-0", home, tmp_path / "out")
    last = f"no lost bytes in {len(logs) - 1} segments that were read; 1 file unreadable"
    assert (counted.exit_code, counted.stdout.splitlines()[-1]) == (2, last)
    with local_faults(home / "A" / "orders-0", "EIO", range(1 << 30)):
        nothing = run("stats --jobs 1 A/orders-0", home, tmp_path / "out")
    assert (nothing.exit_code, nothing.stdout.splitlines()[-1:]) == (2, ["nothing was read"])
    logs[1].rename(tmp_path / "kept")
    try:
        gaps = run("sql --recipe gaps --format jsonl A/orders-0", home, tmp_path / "out")
    finally:
        (tmp_path / "kept").rename(logs[1])
    assert gaps.stdout.count("\n") == 1


@pytest.mark.parametrize("kind", ["EIO", "EACCES"])
@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("leader-epoch-checkpoint", "repair A/orders-0 OUT"),
        ("leader-epoch-checkpoint", "repair A/orders-0 --dry-run"),
        ("leader-epoch-checkpoint", "convert any-to-v2 A/orders-0 OUT"),
        ("leader-epoch-checkpoint", "convert any-to-v2 --compression gzip A/orders-0 OUT"),
        ("partition.metadata", "repair A/orders-0 OUT"),
        ("partition.metadata", "convert any-to-v2 A/orders-0 OUT"),
        ("../log-start-offset-checkpoint", "repair A OUT"),
        ("../log-start-offset-checkpoint", "lag A"),
        ("../replication-offset-checkpoint", "lag A"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_not_taken_for_damaged_or_missing(
    name: str, line: str, kind: str, home: Path, tmp_path: Path
) -> None:
    """Its entries may be all that is known of an epoch without batches, or of deleted records: the exit code is 2."""
    shutil.copytree(home / "A", tmp_path / "A")
    shutil.copytree(home / "A" / "orders-0", tmp_path / "A" / "plain-0")  # groups have committed offsets of it
    path = (tmp_path / "A" / "orders-0" / name).resolve()
    if name != "partition.metadata":
        path.write_text("0\n1\nplain 0 5\n" if "offset" in name else "0\n1\n9 999\n")
    out = tmp_path / "out"
    assert run(line, tmp_path, out).exit_code == 0
    with local_faults(path, kind, range(1, 1 << 30)):
        done = run(line, tmp_path, out)
    assert done.exit_code == 2, done.output
    assert str(path) in done.output
    assert not out.exists()
