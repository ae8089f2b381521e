"""`kseg doctor --format html`, by its old name `report`: one page for an incident; and the pages of the single commands."""

from __future__ import annotations

import html
import json
import os
import platform
import re
import shutil
from pathlib import Path

import pytest

from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support import damage, fleet
from tests.support.browser import Browser
from tests.support.cli import invoke
from tests.support.fixtures import SEGMENTS
from tests.support.records import NOW
from tools.docs import sandbox

PLAIN = SEGMENTS / "4.3.0-v2-none-headers"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of the documentation: a damaged log directory, and the backup of three brokers."""
    return sandbox.make(tmp_path_factory.mktemp("home"))


def test_an_incident_has_all_four_answers(home: Path, tmp_path: Path) -> None:
    """Whoever writes the post-mortem attaches one file."""
    page = tmp_path / "incident.html"
    done = invoke("report", home / "kafka-logs", "-o", page)
    assert done.exit_code == 1
    assert "incident.html: damaged: " in done.stderr
    text = page.read_text()
    for part in (
        "3 of 5 partitions need attention",
        "If a broker started now: 2 of 5 partitions would lose data",
        "2 transactions hang.",
        "2 hanging, 0 open, 5 aborted, 7 committed",
        "kafka-transactions.sh --bootstrap-server HOST:9092 abort --topic payments",
        "15 segments in 5 partitions",
        "kseg repair PARTITION NEW",
    ):
        assert part in text, part


def test_the_next_steps_are_those_of_the_terminal_in_their_order(home: Path, tmp_path: Path) -> None:
    """Who opens the page does what the command would have said, without another look at the terminal."""
    page, rows = tmp_path / "incident.html", tmp_path / "rows.jsonl"
    invoke("doctor", home / "kafka-logs", "--format", "jsonl", "-o", rows, "--html", page)
    commands = json.loads(rows.read_text().splitlines()[-1])["commands"]
    listed = page.read_text().partition('<section id="next">')[2].partition("</section>")[0]
    places = [listed.index(html.escape(line[3:] if line[0] == "#" else line)) for line in commands]
    assert len(commands) > 3
    assert places == sorted(places)


def test_the_page_has_the_tasks_without_a_command(tmp_path: Path) -> None:
    """A damaged partition that no command repairs is in the next steps, with the reason, as in the terminal."""
    log_dir, page = tmp_path / "logs", tmp_path / "page.html"
    (log_dir / "lost-0").mkdir(parents=True)
    only = build_batch([PlainRecord(0, b"key", b"value", NOW)])
    (log_dir / "lost-0" / f"{0:020}.log").write_bytes(damage.flip(only, len(only) - 1))
    (log_dir / "meta.properties").write_text("version=1\n")
    rows = map(json.loads, invoke("doctor", log_dir, "--format", "jsonl", "--html", page).stdout.splitlines())
    steps = [row for row in rows if row["kind"] == "step"]
    listed = page.read_text().partition('<section id="next">')[2].partition("</section>")[0]
    shown = html.unescape(re.sub("</?code>", "`", listed))
    left = [text for one in steps if one["folder"].endswith("lost-0") for text in one["left"]]
    assert any("`kseg repair` fails" in text for text in left)
    for one in steps:
        assert one["folder"] in shown
        assert all(text in shown for text in one["left"])
        assert all(text in shown for text in one["text"].split("; "))


def test_no_page_has_a_key_or_a_value(home: Path) -> None:
    """A page is mailed and attached to tickets: records stay in the house."""
    partitions = [home / "kafka-logs" / name for name in ("orders-0", "payments-1", "clicks-2")]
    rows = map(json.loads, invoke("dump", "--deep", "--format", "jsonl", *partitions).stdout.splitlines())
    secret = {text for row in rows for text in (row.get("key"), row.get("value")) if text and len(text) > 12}
    assert len(secret) > 5
    for command in ("validate", "doctor", "stats", "recovery", "transactions"):
        page = html.unescape(invoke(command, home / "kafka-logs", "--format", "html").stdout)
        assert not [text for text in secret if text in page], command


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "jsonl", "html"])
def test_a_redacted_report_has_no_names(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    """What is sent to a vendor tells nobody's topics, folders or host, and has the same answer."""
    log_dir = tmp_path / "acme & söhne's" / "broker 7"
    shutil.copytree(home / "kafka-logs", log_dir)
    (log_dir / "customerX").mkdir()
    (log_dir / "clicks-2" / f"{900:020}.log").symlink_to("/nowhere/customerY")
    (log_dir / "clicks-2" / "list of customerZ").touch()
    os.mkfifo(log_dir / "clicks-2" / "pipe of customerZ")
    monkeypatch.chdir(log_dir.parent)
    names = [one.name.rpartition("-")[0] for one in log_dir.iterdir() if "-" in one.name]
    page = tmp_path / "page.html"
    done = invoke("doctor", "--redact", "-v", "broker 7", "--format", form, "--html", page)
    assert "skipped 1 special file" in done.stderr
    for text in (html.unescape(done.stdout), html.unescape(page.read_text()), done.stderr):
        found = text.partition("<style>")[0] + text.rpartition("</style>")[2].rpartition("<script>")[0]
        for name in (
            "acme",
            "hne",
            "broker 7",
            "customer",
            platform.node(),
            *(f"{name}-0" for name in names),
            "topic orders",
        ):
            assert name not in found, name
    whole = invoke("doctor", "-v", "broker 7", "--format", form)
    assert done.exit_code == whole.exit_code == 2  # for the link
    assert done.stdout.count("\n") == whole.stdout.count("\n")


def _write_secrets(log_dir: Path, cluster: str, topic: str) -> None:
    """Write a log directory whose names and texts have the word SECRET, each where a message can show it."""
    files = {
        "meta.properties": f"version=1\ncluster.id={cluster}\nnode.id=1\n",
        "recovery-point-offset-checkpoint": "0\n1\nSECRETTOPIC 46\n",
        "cleaner-offset-checkpoint": '0\n1\na "b" SECRET-QUOTED and more words that a narrow terminal wraps "c" SECRET\n',
        "replication-offset-checkpoint": "0\n3\nSECRETGONE 0 5\nSECRETGONE 0 5\nSECRETG\u00d6NE 1 5\n",
        "log-start-offset-checkpoint": f"0\n2\n{topic} 0 900\nSECRETG\u00d6NE 1 5\nSECRETG\u00d6NE 1 5\n",
        f"{topic}-0/partition.metadata": "version: 0\ntopic_id: SECRETID\n",
        f"{topic}-1/partition.metadata": "version: 0\nSECRETLINE\n",
        f"{topic}-0/leader-epoch-checkpoint": "0\n1\nSECRETEPOCH\n",
        f"{topic}-2.{'a' * 32}-stray/partition.metadata": "SECRETLINE\n",
        "__cluster_metadata-0/quorum-state": '{"clusterId": "x", "leaderId": "SECRETLEADER", "data_version": 1}',
        "SECRET FOLDER \u00d6/file": "x",
    }
    records = {
        f"{topic}-0": (b"SECRETKEY", b"SECRETVALUE"),
        f"{topic}-1": (b"SECRETKEY", b"SECRETVALUE"),
        f"{topic}-2.{'a' * 32}-stray": (b"SECRETKEY", b"SECRETVALUE"),
        "__consumer_offsets-0": (b"\0\1\0\x0bSECRETGROUP\0\x20SECRET", b"SECRET"),
        "__transaction_state-0": (b"\0\0\0\x08SECRETTX", b"\0\1SECRET"),
    }
    for name, text in files.items():
        (log_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (log_dir / name).write_text(text)
    for folder, (key, value) in records.items():
        (log_dir / folder).mkdir(exist_ok=True)
        batches = b"".join(build_batch([PlainRecord(n, key, value, NOW)], producer_id=7) for n in range(2))
        (log_dir / folder / f"{0:020}.log").write_bytes(batches + b"SECRETTAIL" * 9)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "jsonl", "html"])
def test_a_redacted_report_has_no_text_of_a_file(tmp_path: Path, form: str) -> None:
    """Names are also in lines of files that are malformed, and in checkpoints whose folders are gone."""
    log_dirs = [tmp_path / "d1", tmp_path / "d2"]
    for log_dir, cluster, topic in zip(log_dirs, ("SECRET-c1", "SECRET c2"), ("SECRETTOPIC", "SECRET.T"), strict=True):
        _write_secrets(log_dir, cluster, topic)
    page = tmp_path / "page.html"
    whole = invoke("doctor", "-v", *log_dirs, "--format", form)
    done = invoke("doctor", "--redact", "-v", *log_dirs, "--format", form, "--html", page)
    assert done.exit_code == whole.exit_code
    assert whole.stdout.count("SECRET") > 10
    for text in (done.stdout, page.read_text()):
        assert re.findall(".{0,90}SECRET.{0,20}", html.unescape(text)) == []
        assert "2s/.*/$(tail -n +3 /path-" in html.unescape(text)


@pytest.mark.slow
def test_names_in_an_archive_and_in_failures_are_redacted(tmp_path: Path) -> None:
    """The folders of an archive, and why nothing was written."""
    _write_secrets(tmp_path / "SECRET", "c1", "SECRETTOPIC")
    archive = shutil.make_archive(str(tmp_path / "SECRETS"), "tar", tmp_path, "SECRET")
    done = invoke("doctor", "--redact", "-v", archive)
    assert (done.exit_code, "next steps" in done.stdout) == (2, False)  # a folder has no segment
    assert "SECRET" not in done.output
    (tmp_path / "SECRETFULL").symlink_to("/dev/full")
    done = invoke("doctor", "--redact", archive, "-o", tmp_path / "SECRETFULL")
    assert done.exit_code == 2
    assert re.search(r"kseg: /path-\w+: No space left on device", done.stderr)
    assert "SECRET" not in done.stderr


def test_a_redacted_page_works(home: Path, tmp_path: Path, browser: Browser) -> None:
    """Topics may have names of the page's own code; the same topic has the same hash everywhere."""
    for name in ("div", "files", "a"):
        shutil.copytree(home / "kafka-logs" / "orders-0", tmp_path / "log" / f"{name}-0")
    page = tmp_path / "page.html"
    invoke("doctor", "--redact", tmp_path / "log", "--html", page)
    text = page.read_text()
    assert len(set(re.findall("topic-[0-9a-f]{8}-0", text))) == 3
    browser.open(page)
    assert not browser.errors


def test_300_partitions_are_folded(browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a phone nobody scrolls through 300 valid partitions: it was 192,000 pixels."""
    monkeypatch.chdir(tmp_path)
    fleet.make_many(tmp_path / "broker", 300, 30)
    page = tmp_path / "page.html"
    invoke("doctor", "broker", "--format", "html", "-o", page)
    browser.open(page, width=390)
    assert browser.value("document.documentElement.scrollHeight") < 30_000
    assert browser.value("document.documentElement.scrollWidth") <= 390
    assert browser.value("document.querySelector('#damaged td').textContent").endswith("orders-0")
    assert browser.errors == []


def test_the_parts_agree_with_their_commands(home: Path, tmp_path: Path) -> None:
    """A number of the page is that of the command."""
    page = invoke("report", home / "kafka-logs").stdout
    *_, recovery = invoke("recovery", home / "kafka-logs").stdout.splitlines()
    *_, transactions = invoke("transactions", home / "kafka-logs").stdout.splitlines()
    assert recovery.split(";")[0] in page
    assert transactions.split(";")[0] in page


def test_the_page_of_stats_says_that_data_is_damaged(home: Path) -> None:
    """The exit code is 1, so the page must not look as if nothing happened. Its plot has the numbers of its table."""
    page = invoke("stats", home / "kafka-logs", "--format", "html").stdout
    assert '<header class="damaged">' in page
    assert "573 damaged bytes cannot be read." in page
    assert "573 bytes in 2 segments cannot be read: <code>kseg validate</code> says why" in page
    by_partition = page.partition("Bytes by partition")[2].partition("</figure>")[0]
    assert "5.0 KiB" in by_partition  # 5,094 bytes, without 357 damaged ones
    assert "5.3 KiB" not in by_partition
    assert '<header class="info">' in invoke("stats", PLAIN, "--format", "html").stdout


def test_the_plot_of_timestamps_ends_at_the_last_one(home: Path) -> None:
    """Its last column may end in the future, where no record is."""
    page = invoke("validate", home / "kafka-logs", "--format", "html").stdout
    assert "Bytes by timestamp: 47 columns from 2023-11-14T22:13:20Z to 2026-11-21T19:40:45Z" in page


def test_ended_transactions_have_no_column_for_their_age(home: Path) -> None:
    """An empty column looks like missing data."""
    page = invoke("transactions", home / "kafka-logs", "--format", "html").stdout
    assert page.count(">Age</th>") == 1  # that of the hanging ones


def test_each_broker_of_a_backup_starts_alone(home: Path) -> None:
    """Replicas on different brokers are not the same partition in two log directories, which no broker accepts."""
    page = invoke("report", home / "backup").stdout
    assert "has the same partition" not in page
    assert "of 9 partitions would lose data" in page


def test_valid_files_are_a_page_with_exit_code_0(tmp_path: Path) -> None:
    """A page without findings says so."""
    done = invoke("report", PLAIN)
    assert done.exit_code == 0
    assert "No damage found" in done.stdout
    alone = invoke("report", next(PLAIN.glob("*.log")))
    assert alone.exit_code == 0
    assert "If a broker started now" not in alone.stdout, "a file is not a log directory"


@pytest.mark.parametrize("arguments", [["nothing"], ["--rule", "x=error", "."], ["--jobs", "0", "."]])
def test_what_cannot_be_done_is_one_line(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong arguments are explained."""
    monkeypatch.chdir(tmp_path)
    done = invoke("report", *arguments)
    assert done.exit_code == 2
    assert "Traceback" not in done.output
    assert done.stderr.strip()


def test_hostile_names_stay_text_in_all_parts(tmp_path: Path, browser: Browser) -> None:
    """A folder can have any name; each part of the page shows it."""
    hostile = tmp_path / "<script>document.title='x'<img src=y onerror=alert(1)>'&\"`$(id)`-0"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-transactions", hostile)
    (log,) = sorted(hostile.glob("*.log"))[-1:]
    log.write_bytes(log.read_bytes()[:-40])
    page = tmp_path / "page.html"
    assert invoke("report", hostile, "-o", page).exit_code == 1
    browser.open(page)
    assert browser.errors == []
    assert browser.value("document.title") == "kseg doctor: undetermined"
    assert browser.value("document.querySelectorAll('img').length") == 0
    for name in ("recovery", "transactions", "stats", "segments", "findings"):
        assert hostile.name.replace("`", "") in browser.value(f"document.getElementById('{name}').textContent").replace(
            "`", ""
        )


def test_a_page_is_not_written_into_its_input(home: Path) -> None:
    """Inputs are never changed."""
    before = sorted(os.listdir(home / "kafka-logs"))
    assert invoke("report", home / "kafka-logs", "-o", home / "kafka-logs" / "x.html").exit_code == 2
    assert sorted(os.listdir(home / "kafka-logs")) == before


@pytest.mark.parametrize("command", ["doctor", "validate", "stats", "recovery", "transactions"])
@pytest.mark.parametrize("width", [320, 1280])
def test_every_page_opens_without_errors(
    command: str, width: int, home: Path, tmp_path: Path, browser: Browser
) -> None:
    """The script of the validation does not need its data, and no page is wider than the window."""
    page = tmp_path / "page.html"
    assert invoke(command, home / "kafka-logs", "--format", "html", "-o", page).exit_code in (0, 1)
    browser.open(page, width=width)
    assert browser.errors == []
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert f"kseg {command}" in browser.value("document.querySelector('.facts').textContent")


def test_the_links_of_an_incident_lead_to_its_parts(home: Path, tmp_path: Path, browser: Browser) -> None:
    """A long page needs a way to each part."""
    page = tmp_path / "page.html"
    invoke("report", home / "kafka-logs", "-o", page)
    browser.open(page)
    for name in browser.value("[...document.querySelectorAll('nav a')].map(link => link.hash)"):
        browser.value("scrollTo({top: 0, behavior: 'instant'})")
        browser.value("document.documentElement.style.scrollBehavior = 'auto'")
        browser.click(f"nav a[href='{name}']")
        assert 0 <= browser.value(f"document.querySelector('{name}').getBoundingClientRect().top") < 900, name
