"""``kseg explain``: every byte of the first entry of each kind has a field, and every fact has one source."""

from __future__ import annotations

import io
import random
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from kseg.commands.explain import Entry, lesson_of
from kseg.commands.validate.validate import validate_segment
from kseg.errors import KsegError
from kseg.format.record.field_facts import FACTS, FILES, KIPS, VERSIONS
from kseg.format.sidefiles.producer_snapshot import STORED_FIELDS
from kseg.format.sidefiles.registry import SIDE_FILES, recognise
from kseg.format.storage.segment_files import SegmentFile
from kseg.report.explain_report import PAGES, write_lesson
from kseg.report.formats import View
from kseg.results import Settings
from tests.support.cli import DAMAGED, SEGMENTS
from tests.support.cli import kseg_here as kseg
from tests.support.framed_files import FRAMED
from tools.lab import maven

ROOT = SEGMENTS.parents[1]
LOGS = sorted(SEGMENTS.glob("*/*.log"))
SNAPSHOTS = sorted(SEGMENTS.glob("*/*.checkpoint"))
SIDES = sorted(path for path in SEGMENTS.glob("*/*") if recognise(str(path)))
REQUESTS = sorted((ROOT / "fixtures" / "streams").glob("*/*.requests"))
DAMAGE = sorted(
    path for path in DAMAGED.parent.glob("*/*")
    if path.is_file() and (path.suffix == ".log" or recognise(str(path)))
)  # fmt: skip


def named(path: Path) -> str:
    return f"{path.parent.name}/{path.name.lstrip('0')}"


def covered(entry: Entry) -> set[int]:
    """Return the bytes of the file that have a field. Those of decompressed parts are not bytes of the file."""
    own = entry.sections[0].part.data
    return {
        section.part.shift + at
        for section in entry.sections
        if section.part.data is own
        for one in section.part.fields
        for at in range(one.at, one.at + one.size)
    }


@pytest.mark.parametrize("path", [*LOGS, *SNAPSHOTS], ids=named)
def test_fields_cover_the_first_batch_of_each_kind(path: Path) -> None:
    """A reader who follows the bytes of a batch meets no byte without a name; later records are named as such."""
    lesson = lesson_of(SegmentFile(str(path)))
    for entry in lesson.entries:
        assert covered(entry) == set(range(entry.position, entry.end - entry.rest))
        for section in entry.sections:
            assert not any("not decoded" in one.meaning for one in section.part.fields)
            names = {one.name for one in section.part.fields} - {"", "records"}
            if not entry.title.endswith("control batch") or section.group != "record":
                assert names <= FACTS[section.group].keys()
        decompressed = [section for section in entry.sections if section.part.data is not entry.sections[0].part.data]
        for section in decompressed:
            at = [one.at for one in section.part.fields] + [sum(one.size for one in section.part.fields)]
            assert at == sorted(at)
            assert at[0] == 0
    assert lesson.counts.total() or path.stat().st_size == 0 or not any(path.read_bytes())


def test_fields_cover_the_first_entry_of_side_files() -> None:
    """The header and the first entry of binary files, and the first lines of text, have names."""
    for path in SIDES:
        lesson = lesson_of(SegmentFile(str(path)))
        assert lesson.side, path
        known = STORED_FIELDS.get(lesson.side.side.kind)
        for entry in lesson.entries:
            assert covered(entry) == set(range(entry.end)), path
            if known:
                assert entry.end == sum(size for size, _ in (*known.header, *known.entry)), path
                assert {one.name for one in entry.sections[0].part.fields} <= FACTS[lesson.side.side.kind].keys(), path


@pytest.mark.parametrize("name", FRAMED)
def test_fields_cover_the_first_message(name: str, tmp_path: Path) -> None:
    """Also of a tutorial's message, whose header has 18 bytes, and of damaged ones."""
    framing, data = FRAMED[name]
    path = tmp_path / "data"
    path.write_bytes(data)
    for entry in lesson_of(SegmentFile(str(path), framing=framing)).entries:
        assert covered(entry) == set(range(entry.position, entry.end))


@pytest.mark.parametrize("path", REQUESTS, ids=named)
def test_fields_cover_the_first_frame(path: Path) -> None:
    """The size, the header and the body of requests and responses."""
    responses = SegmentFile(str(path.with_suffix(".responses")), framing="responses", requests=str(path))
    for file in (SegmentFile(str(path), framing="requests"), responses):
        first, *others = lesson_of(file).entries
        for entry in (first, *others):
            assert covered(entry) == set(range(entry.position, entry.end))
        assert all(entry.title.endswith("with records") and len(entry.sections) > 2 for entry in others)


@pytest.mark.parametrize("path", DAMAGE, ids=named)
def test_the_quick_check_of_a_small_file_finds_what_validate_finds(path: Path) -> None:
    """Promise 5: the page of a damaged file names the same findings as the check of the file alone."""
    if path.stat().st_size > 1 << 20:
        return
    file = SegmentFile(str(path))
    found = lesson_of(file).result
    assert found
    assert found.summary.rules == validate_segment(file, Settings()).summary.rules


def test_each_fact_has_one_source() -> None:
    """The page, the documentation and the titles of KIPs read one table, and it has only KIPs that a fact names."""
    facts = [fact for group in FACTS.values() for fact in group.values()]
    texts = " ".join([*(f"{fact.source} {fact.meaning}" for fact in facts), *(f.purpose for f in FILES.values())])
    known = [*(one.kips for one in VERSIONS.values()), *(one.kips for one in FILES.values())]
    texts += " ".join(kip for kips in known for kip in kips)
    assert {*re.findall(r"KIP-\d+", texts)} == {*KIPS}
    assert {*FILES} == {side.kind for side in SIDE_FILES}
    assert all(
        {name for _, name in (*stored.header, *stored.entry)} == {*FACTS[kind]}
        for kind, stored in STORED_FIELDS.items()
    )
    for page in PAGES:
        assert (ROOT / "docs" / page.path).read_text(encoding="utf-8").startswith(f"# {page.title}\n")


@pytest.mark.kafka
def test_the_classes_are_those_of_kafka() -> None:
    """Kafka is the judge: a reader finds the classes that the page names."""
    names = ("clients", "storage", "server-common", "raft", "metadata")
    jars = [maven.libs("4.3.0") / f"kafka-{name}-4.3.0.jar" for name in names]
    classes = {Path(name).stem for jar in jars for name in zipfile.ZipFile(jar).namelist() if name.endswith(".class")}
    named = [*(one.classes for one in VERSIONS.values()), *(one.classes for one in FILES.values())]
    assert {name for names in named for name in names} <= classes


@pytest.mark.slow
def test_bad_input_is_one_clear_line(tmp_path: Path) -> None:
    """An unknown, an empty and a missing file, and a folder without files, are one line and exit code 2."""
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello, world\n" * 40)
    (tmp_path / "folder").mkdir()
    for name in ("empty", "text", "missing", "folder"):
        done = kseg("explain", tmp_path / name)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done
        assert name in done.stderr
    assert kseg("explain", "--as", "requests", tmp_path).returncode == 2


def test_several_files_are_explained_one_after_the_other(tmp_path: Path) -> None:
    """A file that cannot be explained is one line, and the others have their pages; responses find their requests."""
    requests = ROOT / "fixtures" / "streams" / "4.3.0-java" / "06.requests"
    paired = kseg("explain", "--as", "requests", "--as", "responses", requests, requests.with_suffix(".responses"))
    assert paired.returncode == 0
    assert "First response ApiVersions" in paired.stdout
    done = kseg("explain", tmp_path / "missing", LOGS[0])
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert str(LOGS[0]) in done.stdout


def test_empty_files_of_kafka_are_explained(tmp_path: Path) -> None:
    """A new segment and its indexes are empty, and no fault."""
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        path = tmp_path / f"{0:020}{suffix}"
        path.touch()
        done = kseg("explain", path)
        assert (done.returncode, done.stderr) == (0, "")
        assert "0 bytes" in " ".join(done.stdout.split())


def test_damage_is_named_and_sets_the_exit_code() -> None:
    """A person learns the fault, its place, and the command that explains the rule."""
    done = kseg("explain", DAMAGED.parent / "crc-mismatch" / f"{0:020}.log")
    assert done.returncode == 1
    assert "error crc-mismatch at byte 475: CRC mismatch" in done.stdout
    assert "`kseg rules crc-mismatch`" in done.stdout


def _piped(data: bytes, *arguments: str) -> str:
    command = [sys.executable, "-m", "kseg", "explain", *arguments, "-"]
    return subprocess.run(command, input=data, capture_output=True, check=True, timeout=300).stdout.decode()


@pytest.mark.slow
def test_standard_input_is_explained_like_the_file() -> None:
    """A segment, requests and an archive can come from a pipe."""
    for path, arguments in ((LOGS[0], ()), (REQUESTS[0], ("--as", "requests"))):
        from_file = kseg("explain", *arguments, path).stdout.partition("\nUnusual")[0].splitlines()
        piped = _piped(path.read_bytes(), *arguments)
        assert piped.partition("\nUnusual")[0].splitlines()[-20:] == from_file[-20:]
        assert piped.startswith("-: ")
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(LOGS[0], f"orders-0/{LOGS[0].name}")
    assert "1 x log segment" in _piped(archive.getvalue())


def test_a_reader_that_exits_early_is_no_error() -> None:
    """`kseg explain FILE | head` prints what head shows, and nothing else."""
    command = [sys.executable, "-u", "-m", "kseg", "explain", str(LOGS[-1])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(300) == 0


def test_a_folder_lists_its_kinds() -> None:
    """A person with a log directory learns which of its files to look at."""
    shown = " ".join(kseg("explain", SEGMENTS / "4.3.0-v2-none-transactions").stdout.split())
    for kind in (
        "log segment: the batches",
        "offset index: finds",
        "transaction index: lists",
        "producer snapshot: has",
    ):
        assert f" x {kind}" in shown


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("path", [path for path in LOGS if "v2" in path.parent.name.split("-")[1]], ids=named)
def test_the_page_of_a_v2_segment_takes_one_or_two_screens(
    path: Path, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page is read, not scrolled. Lines end between words in each width; `test_widths` looks at real terminals."""
    monkeypatch.setenv("COLUMNS", str(columns))
    out = io.StringIO()
    lesson = lesson_of(SegmentFile(str(path)))
    write_lesson(lesson, out, View(terminal=True))
    lines = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue()).splitlines()
    assert all(len(line) <= columns or " " not in line.strip() for line in lines)
    assert len(lines) <= 100 or {0, 1} & {*lesson.counts}


@pytest.mark.parametrize("columns", [1, 20, 37, 38])
def test_a_terminal_of_any_width_gets_the_page(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Promise 2, no traceback: next to the bytes there is room for words, also where the terminal then breaks the lines."""
    monkeypatch.setenv("COLUMNS", str(columns))
    out = io.StringIO()
    write_lesson(lesson_of(SegmentFile(str(LOGS[0]))), out, View(terminal=True))
    assert "magic" in out.getvalue()


def test_output_goes_to_a_file_and_not_over_an_input(tmp_path: Path) -> None:
    """Promise 1: the option -o of this command follows the rule of all outputs."""
    log = tmp_path / LOGS[0].name
    shutil.copyfile(LOGS[0], log)
    assert kseg("explain", log, "-o", log).returncode == 2
    assert kseg("explain", log, "-o", tmp_path.parent / f"{tmp_path.name}.txt").returncode == 0
    assert log.read_bytes() == LOGS[0].read_bytes()


#: A file, and the kind that it is read as.
SOUND = [
    *((SEGMENTS / name / f"{0:020}.log", None) for name in ("2.8.2-v0v1v2-mixed", "4.3.0-v2-none-transactions")),
    (SEGMENTS / "4.3.0-v2-none-transactions" / f"{17:020}.snapshot", None),
    (SEGMENTS / "4.3.0-v2-none-transactions" / f"{17:020}.index", None),
    (SEGMENTS / "4.3.0-v2-none-kraft-metadata" / "quorum-state", None),
    (REQUESTS[-1], "requests"),
    (ROOT / "fixtures" / "framed" / "message-several" / "data", "message"),
    (ROOT / "fixtures" / "framed" / "several" / "data", "wide-crc"),
    (SEGMENTS / "4.3.0-v2-lz4" / f"{0:020}.log", "message-set"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "framing"), SOUND, ids=lambda given: named(given) if isinstance(given, Path) else given
)
def test_damage_is_explained_or_one_error(path: Path, framing: str | None, tmp_path: Path) -> None:
    """Promise 2: no byte is trusted. Damage at random places is a page or an error of kseg, and never a traceback."""
    data, chance, target = path.read_bytes(), random.Random(path.name), tmp_path / path.name
    for _ in range(60):
        damaged = bytearray(data)
        for _ in range(chance.choice((1, 1, 3))):
            damaged[chance.randrange(min(len(damaged), 400))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        target.write_bytes(damaged[: chance.choice((len(damaged), chance.randrange(len(damaged))))])
        try:
            lesson = lesson_of(SegmentFile(str(target), framing=framing))
        except KsegError:
            continue
        out = io.StringIO()
        write_lesson(lesson, out, View())
        assert [line for line in out.getvalue().splitlines() if len(line) > 80 and " " in line.strip()] == []
