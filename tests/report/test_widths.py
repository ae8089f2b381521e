"""Every command on terminals of 80 to 200 columns: no line is wrapped by the terminal, no number cut, no column lost."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from kseg.cli.main import COMMANDS
from kseg.format.segment.records_chunk import Header
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.report import formats
from kseg.report.tables import width_of
from tests.support import damage
from tests.support.cli import ROOT, SEGMENTS
from tools.docs import sandbox
from tools.docs.terminal import Printed, Terminal

pyte = pytest.importorskip("pyte")
pytest.importorskip("pty", reason="a pseudo-terminal needs POSIX")

pytestmark = pytest.mark.slow

WIDTHS = (80, 100, 120, 200)
#: A terminal on which nothing is wrapped or hidden.
WIDE = 5000
LONG = "/".join(("backups-of-the-payments-domain", "broker-with-a-long-name.example.com", "payments.authorised.v2-117"))
LOG = f"{'0' * 20}.log"
#: Files whose lines belong to a program, and options that only change how rows are chosen.
RUNS = (
    "rules",
    "rules crc-mismatch",
    "rules duplicate-sequence",
    "dump kafka-logs/orders-0",
    "dump --deep kafka-logs/payments-1",
    "dump --deep --full kafka-logs/clicks-2",
    "dump --value-as json kafka-logs/payments-1",
    f"dump {LONG}/{LOG}",
    f"dump --deep {LONG}/{LOG}",
    f"dump --deep --full {LONG}/{LOG}",
    f"dump --deep --format hex {LONG}/{LOG}",
    "dump --deep --format hex kafka-logs/payments-1/00000000000000000077.log",
    "dump --deep --format hex old-logs/orders-0/00000000000000000000.log",
    "dump --columns position,crc,producer_id,max_timestamp kafka-logs/orders-0",
    "dump kafka-logs/orders-0/00000000000000000024.index",
    "dump kafka-logs/orders-0/00000000000000000024.timeindex",
    "dump kafka-logs/payments-1/00000000000000000052.snapshot",
    "dump kafka-logs/payments-1/00000000000000000052.txnindex",
    "dump kafka-logs/orders-0/leader-epoch-checkpoint",
    "dump kafka-logs/meta.properties",
    "dump kafka-logs/replication-offset-checkpoint",
    "dump --format hex kafka-logs/payments-1/00000000000000000052.snapshot",
    "dump --effective kafka-logs/__consumer_offsets-3",
    "dump --deep --decode __consumer_offsets kafka-logs/__consumer_offsets-3",
    "dump --as message captures/message.bin",
    "dump --as requests captures/client.bin",
    "dump --as requests --as responses captures/client.bin captures/broker.bin",
    "dump --as requests captures/producer.bin",
    "dump --shallow --as requests captures/producer.bin",
    "dump --as message --format hex captures/message.bin",
    "dump --as requests --format hex captures/client.bin",
    "explain kafka-logs",
    "explain kafka-logs/payments-1/00000000000000000077.log",
    "explain kafka-logs/payments-1/00000000000000000052.snapshot",
    "explain kafka-logs/meta.properties",
    "explain old-logs/orders-2/00000000000000000000.log",
    f"explain {LONG}/{LOG}",
    "explain --as message captures/message.bin",
    "explain --as requests captures/client.bin",
    "validate kafka-logs",
    "validate -v kafka-logs backup",
    "validate -q backup",
    "validate many",
    f"validate {LONG}",
    "validate old-logs",
    "validate --as requests captures/client.bin",
    "stats kafka-logs",
    "stats -v backup old-logs",
    "stats --deep --as requests captures/producer.bin",
    "stats --deep many",
    f"stats --deep {LONG}",
    "diff backup/broker-1/clicks-2 backup/broker-3/clicks-2",
    "diff kafka-logs/orders-0 backup/broker-1/payments-1",
    "diff -v old-logs/orders-0 old-logs/orders-1",
    "diff backup/broker-1 backup/broker-3",
    "diff backup/broker-1 backup/broker-2 backup/broker-3",
    f"diff {LONG} kafka-logs/orders-0",
    "recovery kafka-logs",
    "recovery -v backup/broker-1/orders-0",
    "recovery --unclean many",
    f"recovery --unclean {LONG}",
    "transactions kafka-logs",
    "transactions -v backup",
    f"transactions {LONG}",
    "lag kafka-logs",
    "lag backup",
    "grep customer kafka-logs",
    f"grep amount {LONG}",
    "sql 'select * from batches limit 5' kafka-logs",
    "sql 'select * from records limit 5' kafka-logs/orders-0",
    "sql --tables",
    "sql --recipes",
    "sql --recipe legacy old-logs",
    "schemas kafka-logs",
    "repair kafka-logs NEW",
    "convert v0-to-v2 old-logs/orders-0 NEW",
    "convert --dry-run v1-to-v2 old-logs NEW",
    # Errors.
    "dump kafka-logs/orders-0/missing.log",
    f"dump {LONG}/missing-{'x' * 60}.log",
    "dump --format parquet kafka-logs/orders-0",
    "dump --offsets 10 kafka-logs/orders-0",
    "dump --columns positon kafka-logs/orders-0",
    "validate --rule crc-mismach=warning kafka-logs",
    "validate --format json kafka-logs",
    "validate --inventory tables kafka-logs",
    "convert v2-to-v5 kafka-logs NEW",
    "repair kafka-logs kafka-logs",
    "valdate kafka-logs",
    "stats",
    "--help",
    *(f"{command} --help" for command in COMMANDS),
)
#: A number between spaces, or in a range of offsets or bytes.
_NUMBER = re.compile(r"(?<![^\s(])-?\d[\d,]*\d(?![^\s),;])|(?<![^\s.])\d+(?=\.\.\d)|(?<=\d\.\.)\d+(?![^\s?])")


TIERED = ROOT / "fixtures" / "tiered" / "reference"
#: For each kind of results with a table: a command, and the columns without which its table is no answer.
ANSWERS = {
    "batches and records": (f"dump {LONG}/{LOG}", "position base_offset last_offset crc_valid"),
    "records that a search found": (f"grep --format table 1 {LONG}", "offset key value"),
    "side files": ("dump kafka-logs/orders-0/00000000000000000024.timeindex", "timestamp offset"),
    "requests, responses and single messages": (
        "dump --as requests captures/client.bin",
        "api_name correlation_id body",
    ),
    "findings": ("validate kafka-logs", "needs attention,consequence,lost bytes,rules,severity,message"),
    "the effective state": ("dump --effective kafka-logs/__consumer_offsets-3", "groupId,topic,partition,offset"),
    "statistics": (f"stats {LONG} kafka-logs", "path bytes damage"),
    "recovery plans": (f"recovery --unclean kafka-logs {LONG}", "folder,consequence,lost,the broker would"),
    "diagnoses": ("doctor kafka-logs", ""),
    "transactions": ("transactions kafka-logs", "hanging in,producer,offsets,blocked offsets,state,first,last"),
    "schemas": ("schemas --used-by shop shop", "subject,version,id,state,used by"),
    "the lists of kseg sql": ("sql --recipes", "recipe,problem,purpose"),
    "the rows of a statement": (
        "sql 'select file, position, \"offset\" from records' kafka-logs",
        "file position offset",
    ),
    "differences": (
        "diff kafka-logs/orders-0 backup/broker-1/payments-1",
        "replica path offsets damaged difference a b",
    ),
    "lags": ("lag kafka-logs", "group partition lag status"),
    "histories of groups": ("lag --history billing slow-group", "partition,lag,oldest unread,status,growth began"),
    "differences of log directories": ("diff backup/broker-1 backup/broker-3", "partition verdict differences"),
    "differences of keys": (
        "diff --by-key kafka-logs/clicks-2 backup/broker-1/payments-1",
        "change,key,offset a,offset b",
    ),
    "differences of metadata": (
        "diff kafka-logs/__cluster_metadata-0 kafka-logs/__cluster_metadata-0",
        "copy,log end,epoch,state",
    ),
    "adopted clusters": (
        "adopt --node 1=backup/broker-1 --node 2=backup/broker-2",
        "topic,partitions,replicas,offsets",
    ),
    "fetched partitions": (f"tier fetch {TIERED}/bucket -o NEW-$$", "partition,offsets,missing offsets"),
    "problems of tiered storage": (
        f"tier check {TIERED.parent}/aiven {TIERED}/logs {TIERED}/logs",
        "problem,partition,offsets,bytes to free",
    ),
    "carved images": ("carve kafka-logs/orders-0/00000000000000000000.log", "group,offsets,batches"),
    "runs of a pipeline": ("pipeline plan night.toml", "partition to lag damage status"),
}


def test_each_kind_of_results_has_answers() -> None:
    """A new kind of results names its answer here."""
    kinds = [kind for kind in vars(formats).values() if isinstance(kind, formats.ResultKind)]
    assert {kind.title for kind in kinds if "table" in kind.writers} == {*ANSWERS}


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_is_never_hidden(kind: str, files: Path, terminal: Terminal) -> None:
    """At 80 and 60 columns, a row becomes a block of lines before one of these columns is hidden."""
    command, names = ANSWERS[kind]
    wanted = names.split("," if "," in names else None)
    for width in (60, 80):
        shown = terminal.run(f"kseg {command}", files, width=width).text
        assert shown, command
        hidden = re.search(r"hidden columns: ([^;]*);", " ".join(shown.split()))
        assert not {*wanted} & {*(hidden[1].split(", ") if hidden else ())}, (width, shown)
        lines = shown.splitlines()
        for name in wanted:
            assert any(re.search(rf"^ (.* )?{name}( |$)", line) for line in lines), (width, name, shown)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the documentation's examples, a partition with a long path and wide contents, and many partitions."""
    home = sandbox.make(tmp_path_factory.mktemp("widths") / "files")
    folder = home / LONG
    folder.mkdir(parents=True)
    (folder / LOG).write_bytes(b"".join(_wide_batches()))
    shutil.copyfile(SEGMENTS.parent / "streams" / "4.3.0-java" / "03.requests", home / "captures" / "producer.bin")
    for number in range(120):
        target = home / "many" / f"orders-{number}"
        target.mkdir(parents=True)
        data = (SEGMENTS / "4.3.0-v2-none" / LOG).read_bytes()
        (target / LOG).write_bytes(damage.flip(data, 70) if number % 2 else data)
    return home


def _wide_batches() -> Iterator[bytes]:
    contents = (
        (None, None, ()),
        ("顧客-一二三四五".encode(), "注文が確定しました。".encode() * 30, (Header("trace", "トレース".encode()),)),
        ("🧾🚚-顧客".encode(), b'{"amount":12345678901234567,"currency":"EUR"}' * 40, ()),
        (bytes(range(200)), b"\xff" * 3000, (Header("a" * 90, b"b" * 300),)),
        ((2**62).to_bytes(8, "big"), b"plain words " * 30, ()),
    )
    for n, (key, value, headers) in enumerate(contents):
        offset, time = 9_000_000_000_000_000_000 + n, 1_700_000_000_000 + n
        record = PlainRecord(offset, key, value, time, headers)
        built = build_batch(
            [record], base_offset=offset, producer_id=2**62 + n, producer_epoch=32000, base_sequence=2**31 - 9
        )
        yield damage.flip(built, 80) if n == 1 else built


@pytest.fixture(scope="module")
def terminal() -> Iterator[Terminal]:
    with Terminal() as terminal:
        yield terminal


@pytest.mark.parametrize("command", RUNS)
def test_a_command_fits_terminals(command: str, files: Path, terminal: Terminal) -> None:
    """The terminal breaks no line, except within a word; a number is shown whole; a column is shown or named as hidden."""

    def run(width: int) -> Printed:
        shutil.rmtree(files / "NEW", ignore_errors=True)
        return terminal.run(f"kseg {command}", files, width=width)

    wide = run(WIDE).text
    numbers, names = set(_NUMBER.findall(wide)), set(_names(wide))
    assert wide
    for width in WIDTHS:
        printed = run(width)
        lines = printed.text.splitlines()
        too_long = [line for line in lines if width_of(line) > width and " " in line.strip()]
        assert not too_long, width
        seen = {number for line in lines for number in _NUMBER.findall(line)} - numbers
        assert not [number for number in seen if not re.search(rf"(?<!\d){number}(?!\d)", wide)], width
        flat = " ".join(printed.text.split())
        assert not [name for name in names if name not in flat], width
        assert _on_screen(printed.styled, width) == [part for line in lines for part in _broken(line, width)], width


def _names(text: str) -> Iterator[str]:
    """Yield the names of the columns of tables."""
    lines = text.splitlines()
    for head, line in pairwise(lines):
        if line.strip() and set(line.strip()) == {"─"}:
            yield from re.split(r"\s{2,}", head.strip())


def _broken(line: str, width: int) -> list[str]:
    """Return a line as a terminal breaks it: a word that is longer than a line, such as a path, is not broken by kseg."""
    parts = [""]
    for character in line:
        if width_of(parts[-1]) + width_of(character) > width:
            parts.append("")
        parts[-1] += character
    return [part.rstrip() for part in parts if part.strip()]


def _on_screen(styled: str, width: int) -> list[str]:
    """Return the lines that a terminal shows."""
    screen = pyte.Screen(width, 2 * styled.count("\n") + 50)
    pyte.Stream(screen).feed(styled.replace("\n", "\r\n"))
    return [line.rstrip() for line in screen.display if line.strip()]


@pytest.mark.parametrize("depth", ["--shallow", "--deep"])
@pytest.mark.parametrize("width", WIDTHS)
def test_frames_with_records_keep_api_and_correlation_id(
    depth: str, width: int, files: Path, terminal: Terminal
) -> None:
    """Both say which frame a row belongs to. A page with records is a table at 80 columns, too."""
    lines = terminal.run(f"kseg dump {depth} --as requests captures/producer.bin", files, width=width).text.splitlines()
    heading = next(line for line in lines if "correlation_id" in line).split()
    assert {"kind", "api_name", "correlation_id", "offset" if depth == "--deep" else "body"} <= {*heading}
    assert any(re.match(r" request +(91 .*)?Produce .*\b6\b", line) for line in lines)
