"""Archives are read as folders: the same rows, findings and exit codes, whatever their members are called."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zstandard

from kseg.format.segment import several_processes
from tests.support import fleet, fuzzing
from tests.support.cli import SEGMENTS, invoke, kseg

LOG = "00000000000000000000.log"
SEGMENT = SEGMENTS / "4.3.0-v2-none" / LOG


@pytest.fixture
def brokers(tmp_path: Path) -> Path:
    """Log directories with damage, below ``logs``."""
    fleet.make(tmp_path / "logs")
    return tmp_path / "logs"


def tar(folder: Path, path: Path, mode: Any = "w", **options: Any) -> Path:
    with tarfile.open(path, mode, **options) as out:
        out.add(folder, folder.name)
    return path


def zstd_tar(folder: Path, path: Path) -> Path:
    plain = tar(folder, path.with_suffix(".plain"))
    path.write_bytes(zstandard.compress(plain.read_bytes()))
    return path


def zipped(folder: Path, path: Path, compression: int) -> Path:
    with zipfile.ZipFile(path, "w", compression) as out:
        for file in sorted(folder.rglob("*")):
            out.write(file, file.relative_to(folder.parent))
    return path


ARCHIVES: dict[str, Callable[[Path, Path], Path]] = {
    "x.tar": tar,
    "gnu.tar": lambda folder, path: tar(folder, path, format=tarfile.GNU_FORMAT),
    "x.tar.gz": lambda folder, path: tar(folder, path, "w:gz"),
    "X.TGZ": lambda folder, path: tar(folder, path, "w:gz"),
    "x.tar.zst": zstd_tar,
    "x.zip": lambda folder, path: zipped(folder, path, zipfile.ZIP_DEFLATED),
    "stored.zip": lambda folder, path: zipped(folder, path, zipfile.ZIP_STORED),
}
COMMANDS = (
    ("validate", "--format", "jsonl"),
    ("validate", "--format", "jsonl", "--jobs", "2"),
    ("stats", "--deep", "--format", "jsonl"),
    ("dump", "--deep", "--format", "jsonl"),
    ("recovery", "--format", "jsonl"),
    ("transactions", "--format", "jsonl", "--state", "committed"),
    ("sql", "--recipe", "codecs", "--format", "jsonl"),
)


def member(name: str, data: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, data


def write_tar(path: Path, *members: tuple[tarfile.TarInfo, bytes], **options: Any) -> Path:
    with tarfile.open(path, "w", **options) as out:
        for info, data in members:
            out.addfile(info, io.BytesIO(data))
    return path


def validate(*arguments: object, stdin: bytes = b"") -> tuple[int, list[dict[str, Any]], str]:
    run = kseg("validate", "--format", "jsonl", *arguments, stdin=stdin)
    return run.returncode, [json.loads(line) for line in run.stdout.splitlines()], run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_has_the_rows_of_its_folder(name: str, brokers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command sees the same files in an archive as on the disk, with the archive's path before their names."""
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 1)
    archive = ARCHIVES[name](brokers, brokers.parent / name)
    for command in COMMANDS:
        paths = [folder / "broker-2" for folder in (brokers, archive / brokers.name)]
        on_disk, in_archive = (invoke(*command, path) for path in paths)
        assert in_archive.exit_code == on_disk.exit_code, in_archive.stderr
        assert in_archive.stdout.replace(str(paths[1]), str(paths[0])) == on_disk.stdout, command
        assert on_disk.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHIVES)
def test_standard_input_can_be_an_archive(name: str, brokers: Path) -> None:
    """As in ``kubectl exec POD -- tar c -C DIR . | kseg validate -``; members have paths below ``-``."""
    archive = ARCHIVES[name](brokers, brokers.parent / name)
    code, rows, _ = validate("-", stdin=archive.read_bytes())
    expected_code, expected, _ = validate(brokers)
    assert code == expected_code == 1
    assert [row.get("rule") for row in rows] == [row.get("rule") for row in expected]
    assert rows[0]["file"] == expected[0]["file"].replace(str(brokers), f"-/{brokers.name}")
    assert validate(archive)[1][-1] == expected[-1]


def test_replicas_in_archives_are_compared(brokers: Path) -> None:
    """A backup in an archive and the log directory of a broker."""
    archive = tar(brokers, brokers.parent / "x.tar.gz", "w:gz")
    run = kseg("diff", "--format", "jsonl", brokers / "broker-1", archive / "logs" / "broker-2")
    expected = kseg("diff", "--format", "jsonl", brokers / "broker-1", brokers / "broker-2")
    assert run.stdout.replace(str(archive / "logs"), str(brokers)) == expected.stdout
    assert run.returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_segments(suffix: str, tmp_path: Path) -> None:
    """A compressed segment is read as a stream, also from standard input."""
    path = tmp_path / (LOG + suffix)
    data = SEGMENT.read_bytes()
    compress = gzip.compress if suffix == ".gz" else zstandard.compress
    path.write_bytes(compress(data))
    runs = [("dump", SEGMENT), ("dump", path), ("dump", "-"), ("validate", "-")]
    found = [kseg(*one, "--deep", "--format", "jsonl", stdin=path.read_bytes()) for one in runs]
    assert [run.returncode for run in found] == [0, 0, 0, 0]
    records = [[{**json.loads(line), "file": ""} for line in run.stdout.splitlines()] for run in found]
    assert records[0] == records[1] == records[2]
    assert validate(path)[1][-1]["bytes"] == len(data)
    path.write_bytes(path.read_bytes()[:-20])
    assert validate(path)[0] in (1, 2)


def test_names_of_members_are_data(tmp_path: Path) -> None:
    """No name leads out of the archive, and each skipped member is named."""
    (tmp_path / "orders-9").mkdir()
    shutil.copy(SEGMENT, tmp_path / "orders-9" / LOG)
    data = SEGMENT.read_bytes()
    archive = write_tar(
        tmp_path / "x.tar",
        member(f"../orders-9/{LOG}", b"outside"),
        member(f"orders-1/../../orders-9/{LOG}", b"outside"),
        member(f"{'a/' * 40_000}orders-0/{LOG}", data),
        member(f"{'x' * 40_000}-0/{LOG}", data),
        member(f"/var/orders-0/{LOG}", data),
        member(f"./a/./orders-2//{LOG}", data),
        member(f"orders-3/{LOG}", b"first"),
        member(f"orders-3/{LOG}", data),
        member(f"orders-4/{LOG}", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member(f"orders-5/{LOG}", type=tarfile.LNKTYPE, linkname=f"./orders-3/{LOG}"),
        member(f"orders-6/{LOG}", type=tarfile.LNKTYPE, linkname="/etc/passwd"),
        member(f"orders-7/{LOG}", type=tarfile.CHRTYPE),
        member(f"orders-8/{LOG}", type=tarfile.FIFOTYPE),
        member(f"{'long-name-' * 20}0/{LOG}", data),
        member(f"größe-☃-0/{LOG}", data),
    )
    code, rows, stderr = validate("-v", archive)
    assert code == 0, stderr
    run = kseg("stats", "--format", "jsonl", archive)
    files = [row.get("path") or "" for row in map(json.loads, run.stdout.splitlines())]
    folders = {file.removeprefix(f"{archive}/").rpartition("/")[0] for file in files if file.endswith(".log")}
    long = "long-name-" * 20 + "0"
    assert folders == {"var/orders-0", "a/orders-2", "orders-3", "orders-5", long, "größe-☃-0"}
    for words in ("4 members with unsafe names", "a later member of the same name", "symbolic links", "devices"):
        assert words in stderr, stderr
    assert rows[-1]["files"] == 6


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.0", "1.0", "gnu"])
def test_sparse_members(version: str, tmp_path: Path) -> None:
    """Indexes of active segments are sparse files, and ``tar -S`` stores only their data."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    with (folder / LOG).open("wb") as out:
        out.write(SEGMENT.read_bytes())
        out.truncate(3 << 20)
    archive = tmp_path / "x.tar"
    options = ["--format=gnu"] if version == "gnu" else ["--format=pax", f"--sparse-version={version}"]
    if shutil.which("tar") is None:
        pytest.skip("needs GNU tar")
    subprocess.run(["tar", "-C", tmp_path, *options, "-Scf", archive, "orders-0"], check=True)
    if archive.stat().st_size > 1 << 20:
        pytest.skip("this file system has no sparse files")
    code, rows, _ = validate(archive)
    expected_code, expected, _ = validate(folder)
    assert (code, rows[-1]) == (expected_code, expected[-1])
    assert rows[-1]["bytes"] == 3 << 20


@pytest.mark.slow
def test_an_incomplete_archive_is_not_taken_for_a_whole_one(brokers: Path) -> None:
    """A connection that breaks cuts the stream: the part before is checked, and the exit code says that more is missing."""
    data = tar(brokers, brokers.parent / "x.tar").read_bytes()
    with tarfile.open(brokers.parent / "x.tar") as found:
        at = found.getmembers()[-3].offset
    for cut in (data[:at], data[: at + 700], data[: at + 100] + b"\1" + data[at + 101 :]):
        code, rows, stderr = validate("-", stdin=cut)
        assert (code, "damaged or incomplete" in stderr) == (2, True), stderr
        assert rows[-1]["files"] > 30
    compressed = gzip.compress(data)
    code, rows, stderr = validate("-", stdin=compressed[: len(compressed) // 2])
    assert (code, rows[-1]["files"] > 5) == (2, True), stderr


def cut_within(brokers: Path, name: str, path: Path) -> Path:
    """Write a tar of broker 2 that ends 300 bytes after the beginning of a member, and return its partition folder."""
    whole = tar(brokers / "broker-2", brokers.parent / "x.tar")
    with tarfile.open(whole) as found:
        at = found.getmember(f"broker-2/{name}").offset_data
    data = whole.read_bytes()[: at + 300]
    path.write_bytes(gzip.compress(data)[:-1] if path.suffix == ".gz" else data)
    return path / f"broker-2/{name}"


@pytest.mark.parametrize("name", ["cut.tar", "cut.tar.gz"])
def test_a_half_copied_file_is_a_read_error(name: str, brokers: Path) -> None:
    """A segment of which an archive has only the beginning is not one that a broker truncates: no command calls it damaged,
    and each one fails, also if the segment is named alone. The batches before the end of the archive are read.
    """
    segment = cut_within(brokers, f"orders-0/{'96'.zfill(20)}.log", brokers.parent / name)
    for path in (segment, segment.parent):
        code, rows, stderr = validate(path)
        assert (code, [row.get("rule") for row in rows if row.get("file") == str(segment)]) == (2, ["read-error"])
        assert f"{segment}: byte 300: read error: the archive lacks the rest of this file" in stderr
    for command in (("grep", "-c", "."), ("dump",), ("stats",), ("transactions",)):
        done = invoke(*command, segment)
        assert (done.exit_code, "the archive lacks the rest of this file" in done.stderr) == (2, True), (
            command,
            done.stderr,
        )
    done = invoke("diff", segment, brokers / "broker-1" / "orders-0" / segment.name)
    assert (done.exit_code, done.stdout, "the archive lacks" in done.stderr) == (2, "", True)


@pytest.mark.slow
@pytest.mark.fuzz
def test_an_archive_that_ends_early_adds_no_finding(brokers: Path) -> None:
    """Whatever member an archive ends in: validate finds what it finds in the whole archive, and the read errors. No file is
    reported as missing or lost, since the broker has it. Of a side file that is cut, the part that is there is checked.
    """
    whole = tar(brokers / "broker-2", brokers.parent / "x.tar")
    data, cut = whole.read_bytes(), brokers.parent / "cut.tar"
    with tarfile.open(whole) as found:
        members = found.getmembers()
    cut.write_bytes(data)

    def places() -> set[tuple[str, str, int]]:
        code, rows, _ = validate("-v", cut)
        assert code == (1 if cut.stat().st_size == len(data) else 2)
        found = [row for row in rows if row["kind"] == "finding" and row["rule"] not in ("read-error", "no-indexes")]
        return {(row["file"], row["rule"], row["position"]) for row in found}

    draw, expected = random.Random(1), places()
    for one in draw.sample(members[1:], min(len(members) - 1, fuzzing.cases(12))):
        cut.write_bytes(data[: draw.choice([one.offset, one.offset_data + draw.randrange(one.size + 1)])])
        of_part = set() if one.name.endswith(".log") else {str(cut / one.name)}
        assert {place for place in places() if place[0] not in of_part} <= expected, (one.name, cut.stat().st_size)


def test_the_end_of_a_log_is_unknown_if_the_archive_ends_in_its_folder(brokers: Path) -> None:
    """The archive ends after a whole segment. Later ones can have the markers of open transactions and the records that a
    replica lacks, and a broker loads them: no last stable offset, no plan for a start, no advice to replace a replica.
    """
    cut_within(brokers, f"orders-0/{'96'.zfill(20)}.log", brokers.parent / "cut.tar")
    archive = brokers.parent / "cut.tar"
    with tarfile.open(brokers.parent / "x.tar") as found:
        at = found.getmember(f"broker-2/orders-0/{'96'.zfill(20)}.log").offset
    archive.write_bytes((brokers.parent / "x.tar").read_bytes()[:at])
    folder = archive / "broker-2" / "orders-0"
    for command, *others in (("recovery",), ("diff", brokers / "broker-1" / "orders-0")):
        done = invoke(command, folder, *others)
        assert (done.exit_code, f"{folder}: files can be missing" in done.stderr) == (2, True), done.stderr
        assert not {"lacks", "truncate"} & {*done.stdout.split()}
    plans = invoke("recovery", "--format", "jsonl", archive)
    assert (plans.exit_code, str(folder) in plans.stdout, "clicks-2" in plans.stdout) == (2, False, True)
    done = invoke("transactions", folder)
    assert (done.exit_code, "so the last stable offset is unknown" in done.stdout) == (2, True), done.stdout


def test_no_folder_of_an_archive_in_another_order_is_complete(tmp_path: Path) -> None:
    """Members in the order of their file names: its end cuts each folder, not only the last one."""
    names = ("4.3.0-v2-none-transactions", "4.3.0-v2-none-transactions-v2")
    files = sorted((path for name in names for path in (SEGMENTS / name).iterdir()), key=lambda path: path.name)
    with tarfile.open(tmp_path / "x.tar", "w") as out:
        for path in files:
            out.add(path, f"{'ab'[names.index(path.parent.name)]}-0/{path.name}")
    with tarfile.open(tmp_path / "x.tar") as found:
        of_b = [one for one in found.getmembers() if one.name.startswith("b-0/") and one.name.endswith(".log")]
        at = of_b[0].offset_data + 1
    archive = tmp_path / "cut.tar"
    archive.write_bytes((tmp_path / "x.tar").read_bytes()[:at])
    for command in (("diff", archive / "a-0", SEGMENTS / names[0]), ("transactions", archive / "a-0")):
        done = invoke(*command)
        assert (done.exit_code, "the archive is damaged" in done.stderr) == (2, True), done.stdout
        assert not {"lacks", "hanging,"} & {*done.stdout.replace("0 hanging,", "").split()}


def test_what_is_certain_is_shown_of_a_log_that_an_archive_cuts(tmp_path: Path) -> None:
    """The markers in the archive decide transactions, and what follows them is unknown: the rows before it are there."""
    source = SEGMENTS / "4.3.0-v2-none-transactions"
    archive = tar(source, tmp_path / "x.tar")
    archive.write_bytes(archive.read_bytes()[:-1024].rstrip(b"\0"))
    folder, option = archive / source.name, ("--isolation", "read_committed")
    whole = invoke("dump", "--deep", "--format", "jsonl", *option, source).stdout.splitlines()
    done = invoke("dump", "--deep", "--format", "jsonl", *option, folder)
    assert (done.exit_code, len(done.stdout.splitlines())) == (2, len(whole))
    done = invoke("grep", "-c", ".", *option, folder)
    assert (done.exit_code, done.stdout.count("\n") > 2) == (2, True)
    for few in ("--last", "--limit"):
        done = invoke("dump", "--deep", few, 2, "--format", "jsonl", folder)
        assert (done.exit_code, len(done.stdout.splitlines()), done.stderr.count("damaged")) == (2, 2, 1)
    done = invoke("lag", archive)
    assert (done.exit_code, "damaged or incomplete" in done.stderr) == (2, True), done.stderr


def test_sql_reads_the_files_before_the_end_of_an_archive(brokers: Path) -> None:
    """The rows of all files that the archive has, and an exit code that says that more is missing."""
    folder = cut_within(brokers, f"orders-0/{'96'.zfill(20)}.log", brokers.parent / "cut.tar").parent
    for path in (folder, folder.parent / "clicks-2"):
        done = invoke("sql", "--format", "jsonl", "select count(*) as n from records", path)
        assert (done.exit_code, "damaged or incomplete" in done.stderr) == (2, True), done.stderr
        assert json.loads(done.stdout)["n"] > 10
        done = invoke("sql", "select file from files", path)
        assert (done.exit_code, "damaged or incomplete" in done.stderr) == (2, True), done.stderr


def test_a_damaged_file_of_a_zip_is_a_read_error(tmp_path: Path) -> None:
    """The bytes that a zip cannot decompress are unread: they are not lost, and those of the next file do not follow."""
    for number in range(2):
        (tmp_path / f"orders-{number}").mkdir()
        shutil.copy(SEGMENT, tmp_path / f"orders-{number}" / LOG)
    archive = tmp_path / "x.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for number in range(2):
            out.write(SEGMENT, f"orders-{number}/{LOG}")
    data = bytearray(archive.read_bytes())
    data[200] ^= 1  # the CRC is that of the whole file
    archive.write_bytes(data)
    code, rows, stderr = validate(archive)
    found = [(row["file"], row["rule"]) for row in rows if row["kind"] == "finding" and row["severity"] == "error"]
    assert (code, rows[-1]["verdict"], rows[-1]["lost_bytes"]) == (2, "undetermined", 0), stderr
    assert found == [
        (f"{archive}/orders-0/{LOG}", "read-error"),
        (f"{archive}/(files that the archive lacks)", "read-error"),
    ]
    assert validate(archive / "orders-1" / LOG)[0] == 0
    done = invoke("recovery", archive / "orders-0")
    assert (done.exit_code, "the archive lacks the rest" in done.stderr) == (2, True), done.stderr


@pytest.mark.slow
def test_compressed_archives_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes that expand to many terabytes end with one line."""
    monkeypatch.setattr("kseg.extras.archive_formats.MOST_EXPANDED", 1 << 20)
    zeros = bytes(40 << 20)
    bombs = {
        "a.tar.gz": gzip.compress(write_tar(tmp_path / "a.tar", member(f"orders-0/{LOG}", zeros)).read_bytes()),
        "b.tar.zst": zstandard.compress((tmp_path / "a.tar").read_bytes()),
    }
    for name, data in bombs.items():
        (tmp_path / name).write_bytes(data)
    with zipfile.ZipFile(tmp_path / "c.zip", "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr(f"orders-0/{LOG}", zeros)
    for name in (*bombs, "c.zip"):
        done = invoke("validate", tmp_path / name)
        assert (done.exit_code, "expands to more than" in done.stderr) == (2, True), (name, done.stderr)


def test_many_members_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of an archive is in memory."""
    monkeypatch.setattr("kseg.extras.archive_formats.MOST_MEMORY", 5_000)
    archive = write_tar(tmp_path / "x.tar", *(member(f"orders-0/{number}") for number in range(20)))
    done = invoke("validate", archive)
    assert (done.exit_code, "too many members" in done.stderr) == (2, True)


def test_members_are_limited_by_the_bytes_of_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte of gzip has a hundred thousand members, each a partition: the cost must not follow. A large archive has as
    many members as it likes.
    """
    monkeypatch.setattr("kseg.extras.archive_formats.MOST_MEMBERS", 10)
    plain = write_tar(tmp_path / "x.tar", *(member(f"orders-0/{number}") for number in range(20)))
    done = invoke("stats", plain)
    assert "more than" not in done.stderr
    (tmp_path / "y.tar.gz").write_bytes(gzip.compress(plain.read_bytes()))
    done = invoke("validate", tmp_path / "y.tar.gz")
    assert (done.exit_code, "it has more than 10 members in" in done.stderr) == (2, True)
    assert "unpack it first" in done.stderr


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(fuzzing.cases(40)))
def test_damaged_archives_end_with_a_message(seed: int, tmp_path: Path) -> None:
    """Whatever the bytes are: an exit code, no traceback, and no endless loop."""
    draw = random.Random(seed)
    folder = tmp_path / "orders-0"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number:020}.log").write_bytes(SEGMENT.read_bytes())
    name = draw.choice([*ARCHIVES])
    path = ARCHIVES[name](folder, tmp_path / name)
    data = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(min(len(data), draw.choice([600, len(data)])))
        data[at] = draw.randrange(256)
    if draw.random() < 0.4:
        del data[draw.randrange(len(data)) :]
    path.write_bytes(data)
    done = invoke("validate", path)
    assert done.exit_code in (0, 1, 2), done.exception
    assert "internal error" not in done.stderr


def test_wrong_sizes_of_members_do_not_loop(tmp_path: Path) -> None:
    """A negative size leads backwards, and a huge one is more than the archive has."""
    for size in (-1024, -512, 1 << 40):
        info, data = member(f"orders-0/{LOG}", SEGMENT.read_bytes())
        plain = bytearray(write_tar(tmp_path / "x.tar", (info, data)).read_bytes())
        info.size = size
        plain[:512] = info.tobuf(tarfile.GNU_FORMAT)
        (tmp_path / "x.tar").write_bytes(plain)
        assert validate(tmp_path / "x.tar")[0] == 2


def test_nothing_is_left_in_the_temporary_folder(brokers: Path, tmp_path: Path) -> None:
    """Temporary files are unnamed: they end with the process, also if it is killed."""
    archive = tar(brokers, brokers.parent / "x.tar.gz", "w:gz")
    home = tmp_path / "tmp"
    home.mkdir()
    subprocess.run(
        [sys.executable, "-m", "kseg", "validate", str(archive)],
        env={**os.environ, "TMPDIR": str(home)}, check=False, capture_output=True,
    )  # fmt: skip
    assert not list(home.iterdir())


def test_commands_that_write_reject_archives(brokers: Path, tmp_path: Path) -> None:
    """They read their source twice and check that it did not change."""
    archive = tar(brokers, brokers.parent / "x.tar")
    for command in (("repair",), ("convert", "any-to-v2")):
        run = kseg(*command, archive / "logs" / "broker-1" / "orders-0", tmp_path / "out")
        assert (run.returncode, "unpack it first" in run.stderr) == (2, True), run.stderr
    run = kseg("validate", archive / "nowhere")
    assert (run.returncode, "the archive has no such file" in run.stderr) == (2, True)


@pytest.mark.parametrize(
    "headers",
    [
        {"GNU.sparse.map": "0,100,50,100", "GNU.sparse.size": "4000"},
        {"GNU.sparse.map": "0,-5,5,5", "GNU.sparse.size": "4000"},
        {"GNU.sparse.map": "0,10", "GNU.sparse.size": str(1 << 60)},
        {"GNU.sparse.map": "0,10,x,1", "GNU.sparse.size": "40"},
        {"mtime": "nan"},
        {"mtime": "1e400"},
        {"size": "-512"},
        {"path": f"orders-0/\0{LOG}"},
    ],
)
def test_wrong_extended_headers(headers: dict[str, str], tmp_path: Path) -> None:
    """Each field of an extended header can be anything."""
    info, data = member(f"orders-0/{LOG}", SEGMENT.read_bytes())
    info.pax_headers = headers
    other = member(f"orders-1/{LOG}", SEGMENT.read_bytes())
    archive = write_tar(tmp_path / "x.tar", (info, data), other, format=tarfile.PAX_FORMAT)
    done = invoke("validate", archive)
    assert done.exit_code in (0, 1, 2)
    assert "internal error" not in done.stderr


def test_an_archive_without_members_is_not_called_damaged(tmp_path: Path) -> None:
    """A zip archive without members has only the record of its end, and a JSON row says that the path was not read."""
    zipfile.ZipFile(tmp_path / "empty.zip", "w").close()
    tarfile.open(tmp_path / "empty.tar", "w").close()
    for name in ("empty.zip", "empty.tar"):
        done = invoke("validate", "--format", "jsonl", tmp_path / name)
        row, summary = map(json.loads, done.stdout.splitlines())
        why = "no segment found (a .log file named by 20 digits), and no side file"
        assert (row["kind"], row["rule"], row["facts"]) == ("finding", "read-error", {"why": why})
        assert (summary["unread"], summary["errors"], done.exit_code) == (1, 0, 2)


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    """Let no file of this process become larger, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_temporary_folder_is_no_damage(tmp_path: Path) -> None:
    """An unpacked archive that does not fit would seem cut: its last segments damaged or lost."""
    shutil.copytree(SEGMENT.parent, tmp_path / "orders-0")
    packed = tar(tmp_path / "orders-0", tmp_path / "x.tar.gz", "w:gz")
    with limited_files(8_192):
        done = invoke("validate", "--format", "jsonl", packed)
        compared = invoke("diff", "--by-key", tmp_path / "orders-0", tmp_path / "orders-0")
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (done.exit_code, summary["errors"], summary["files"]) == (2, 0, 0)
    assert f"temporary folder {tempfile.gettempdir()}: File too large" in done.stderr
    assert compared.exit_code == 0  # its entries are smaller
    with limited_files(10):
        compared = invoke("diff", "--by-key", tmp_path / "orders-0", tmp_path / "orders-0")
    assert compared.exit_code == 2
    assert f"temporary folder {tempfile.gettempdir()}: File too large" in compared.stderr
