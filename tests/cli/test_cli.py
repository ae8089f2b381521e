"""The command line as a person or a script uses it: options, exit codes, and the stream of each output."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kseg.cli.main import COMMANDS
from kseg.findings import RULES
from kseg.format.storage.segment_files import find_segments
from tests.support.cli import DAMAGED, MIXED, PLAIN, ROOT, SEGMENTS, kseg

TRANSACTIONS = SEGMENTS / "4.3.0-v2-none-transactions"


def rows(*arguments: object) -> list[dict[str, Any]]:
    return [json.loads(line) for line in kseg("dump", "--format", "jsonl", *arguments).stdout.split("\n") if line]


def test_links_are_followed_once(tmp_path: Path) -> None:
    """A broker follows a linked partition, and so do all commands; a loop of links ends."""
    partition, log_dir = tmp_path / "disk" / "orders-0", tmp_path / "logs"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none", partition)
    log_dir.mkdir()
    (log_dir / "orders-0").symlink_to(partition)
    (log_dir / "itself").symlink_to(log_dir)
    (partition / "up").symlink_to("..")
    assert [file.path for file in find_segments(str(log_dir))] == [str(log_dir / "orders-0" / f"{0:020}.log")]


@pytest.mark.parametrize("link", ["a-link", "z-link"])
def test_a_link_hides_no_folder(link: str, tmp_path: Path) -> None:
    """``current -> snapshot-1`` is common in backups: whichever comes first, the files of the snapshot are read, once."""
    shutil.copytree(SEGMENTS / "4.3.0-v2-none", tmp_path / "snapshot" / "orders-0")
    (tmp_path / link).symlink_to("snapshot")
    (tmp_path / f"{link}-0").symlink_to("snapshot/orders-0")
    expected = [str(tmp_path / "snapshot" / "orders-0" / f"{0:020}.log")]
    assert [file.path for file in find_segments(str(tmp_path))] == expected


def test_a_sound_segment_is_0_and_a_damaged_one_1() -> None:
    """Scripts depend on these exit codes."""
    assert kseg("validate", PLAIN).returncode == 0
    assert kseg("validate", DAMAGED).returncode == 1


def test_kseg_alone_prints_its_help() -> None:
    """The first thing that people type is answered with the list of commands, not with an error."""
    run = kseg()
    assert (run.returncode, run.stdout, run.stderr) == (2, "", kseg("--help").stdout)


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_alone_says_what_it_expects(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that need no argument run; all others name what is missing."""
    monkeypatch.setenv("SHELL", "/bin/bash")
    run = kseg(command, cwd=tmp_path)
    assert "internal error" not in run.stderr
    if command in ("rules", "completion"):
        assert (run.returncode, run.stderr) == (0, "")
        return
    assert run.returncode == 2
    expected = {"validate": f"no PATH: checking the current folder, {tmp_path}", "sql": "no PATH: expected kseg sql"}
    assert expected.get(command, "Error: Missing argument '") in run.stderr
    if command not in expected:
        assert run.stderr.rpartition("\n\n")[2].count("\n") == 1, "the reason is one line"


@pytest.mark.slow
def test_validate_alone_checks_the_current_folder(tmp_path: Path) -> None:
    """An operator stands in a log directory. The skipped files are named, also if nothing else is found."""
    partition = shutil.copytree(DAMAGED, tmp_path / "orders-0", ignore=shutil.ignore_patterns("expect.jsonl", "ORIGIN"))
    (partition / "notes.txt").write_text("x")
    there, given = kseg("validate", cwd=tmp_path), kseg("validate", ".", cwd=tmp_path)
    assert (there.returncode, there.stdout) == (1, given.stdout)
    skipped = "kseg: skipped 1 file (not Kafka files, or not in use): orders-0/notes.txt\n"
    assert there.stderr == f"kseg: no PATH: checking the current folder, {tmp_path}\n{skipped}"
    (tmp_path / "notes").mkdir()
    (partition / "notes.txt").rename(tmp_path / "notes" / "notes.txt")
    nothing = kseg("validate", "notes", cwd=tmp_path)
    assert nothing.returncode == 2
    assert "skipped 1 file (not Kafka files, or not in use): notes/notes.txt\n" in nothing.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("fail_on", "code"), [("error", 0), ("warning", 0), ("info", 1), ("never", 0)])
def test_fail_on_draws_the_line(fail_on: str, code: int) -> None:
    """--fail-on decides which severities cause exit code 1."""
    note = ROOT / "fixtures" / "findings" / "last-offset-mismatch"
    assert kseg("validate", "--fail-on", fail_on, note).returncode == code


@pytest.mark.slow
def test_a_rule_can_be_weighed_otherwise() -> None:
    """--rule changes the severity of a finding, and with it the exit code."""
    assert kseg("validate", "--rule", "crc-mismatch=ignore", DAMAGED).returncode == 0
    assert kseg("validate", "--rule", "K201=warning", DAMAGED).returncode == 0
    assert kseg("validate", "--rule", "crc-missmatch=info", DAMAGED).stderr.count("did you mean crc-mismatch") == 1
    assert kseg("validate", "--rule", "crc-missmatch=info", DAMAGED).returncode == 2


@pytest.mark.slow
def test_settings_come_from_a_file_and_the_command_line_wins(tmp_path: Path) -> None:
    """An explicit option overrides settings file."""
    (tmp_path / "kseg.toml").write_text('fail-on = "never"\n[rule]\nzero-tail = "ignore"\n')
    assert kseg("validate", DAMAGED, cwd=tmp_path).returncode == 0
    assert kseg("validate", "--fail-on", "error", DAMAGED, cwd=tmp_path).returncode == 1
    (tmp_path / "kseg.toml").write_text('fail-onn = "never"\n')
    assert kseg("validate", DAMAGED, cwd=tmp_path).returncode == 2
    for setting, option in (
        ("verbose = true", "-q"),
        ("quiet = true", "-v"),
        ('columns = "rule"', "--format=jsonl"),
        ("compacted = true", "--shallow"),
        ('spark = "local[1]"\nspark-conf = ["spark.x=1"]', "--limit=5"),
    ):
        (tmp_path / "kseg.toml").write_text(setting)
        alone = kseg("validate", option, DAMAGED).stdout
        assert kseg("validate", option, DAMAGED, cwd=tmp_path).stdout == alone, setting


def test_json_lines_end_with_a_summary() -> None:
    """Consumers read the verdict from the last line."""
    lines = [json.loads(line) for line in kseg("validate", "--format", "jsonl", DAMAGED).stdout.splitlines()]
    assert {line["kind"] for line in lines[:-1]} == {"finding"}
    assert "crc-mismatch" in {line["rule"] for line in lines[:-1]}
    assert set(lines[0]) == {
        "kind", "rule", "code", "severity", "file", "position", "end", "offset", "last_offset", "message", "facts",
    }  # fmt: skip
    assert {"files", "batches", "records", "bytes", "errors", "warnings", "infos", "lost_bytes", "verdict"} <= set(
        lines[-1]
    )
    assert lines[-1]["kind"] == "summary"
    assert lines[-1]["verdict"] == "damaged"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table", "jsonl", "junit", "sarif", "github", "html"])
def test_a_report_file_is_complete(tmp_path: Path, name: str) -> None:
    """A reader of the file never gets half of a report."""
    target = tmp_path / "report"
    run = kseg("validate", "--format", name, "-o", target, DAMAGED)
    assert (run.returncode, run.stdout) == (1, "")
    assert "crc-mismatch" in target.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_offsets_are_half_open() -> None:
    """--offsets A:B excludes B, so that adjacent ranges don't overlap."""
    assert [row["offset"] for row in rows("--deep", "--offsets", "3:6", PLAIN)] == [3, 4, 5]
    assert [row["offset"] for row in rows("--deep", "--offsets", "42:", PLAIN)] == [42, 43]
    assert [row["base_offset"] for row in rows("--offsets", ":13", PLAIN)] == [0, 12]


def test_times_are_iso_or_milliseconds() -> None:
    """Both notations of a time select the same rows."""
    stamps = [row["timestamp"] for row in rows("--deep", PLAIN)]
    middle = 1700000060000
    assert 0 < sum(stamp >= middle for stamp in stamps) < len(stamps)
    since = [row["timestamp"] for row in rows("--deep", "--since", "2023-11-14T22:14:20Z", PLAIN)]
    assert since == [stamp for stamp in stamps if stamp >= middle]
    until = [row["timestamp"] for row in rows("--deep", "--until", str(middle), PLAIN)]
    assert until == [stamp for stamp in stamps if stamp < middle]


def test_limit_counts_rows_over_all_files() -> None:
    """--limit applies to the whole output, not to each file."""
    assert len(rows("--limit", "3", MIXED, PLAIN)) == 3
    assert len(rows("--deep", "--limit", "7", MIXED, PLAIN)) == 7
    assert rows("--limit", "0", PLAIN) == []


def test_a_key_is_found_by_its_text() -> None:
    """--key selects the records with exactly this key, so that it needs no --deep."""
    found = rows("--key", "schlüssel-☃", PLAIN)
    assert {row["key"] for row in found} == {"schlüssel-☃"}
    assert rows("--deep", "--key", "schlüssel-☃", PLAIN) == found
    assert kseg("dump", "--shallow", "--key", "x", PLAIN).returncode == 2


def test_several_keys_are_found_in_the_order_of_the_file() -> None:
    """--key can be repeated: a record has one of the keys. An earlier key is not replaced by a later one."""
    every = rows("--deep", PLAIN)
    keys = sorted({row["key"] for row in every if row["key"] and "key_encoding" not in row})[:2]
    assert len(keys) == 2
    wanted = [row for row in every if row["key"] in keys and "key_encoding" not in row]
    for order in (keys, keys[::-1], [*keys, keys[0]]):
        assert rows("--deep", *(text for key in order for text in ("--key", key)), PLAIN) == wanted


def test_control_records_can_be_asked_for_and_left_out() -> None:
    """--control and --no-control split the rows in two."""
    every = rows("--deep", TRANSACTIONS)
    control = rows("--deep", "--control", TRANSACTIONS)
    data = rows("--deep", "--no-control", TRANSACTIONS)
    assert control
    assert all(row["control"]["type"] in ("COMMIT", "ABORT") for row in control)
    assert len(control) + len(data) == len(every)
    assert all(row["control"] is None for row in data)


def test_bytes_that_are_no_text_say_how_they_are_written() -> None:
    """A reader needs the encoding to decode such a value."""
    every = rows("--deep", PLAIN)
    encoded = [row for row in every if "value_encoding" in row or "key_encoding" in row]
    assert encoded
    assert all(row.get("value_encoding", "base64") == "base64" for row in encoded)
    as_hex = rows("--deep", "--bytes", "hex", PLAIN)
    for plain, written in zip(every, as_hex, strict=True):
        if plain["key"] is not None and "key_encoding" not in plain:
            assert bytes.fromhex(written["key"]).decode() == plain["key"]


def test_a_bad_crc_shows_when_shallow_and_hides_records_when_deep() -> None:
    """Records with a wrong CRC are not shown as data."""
    shallow = kseg("dump", "--format", "jsonl", DAMAGED)
    assert shallow.returncode == 1
    assert "crc-mismatch" in shallow.stderr
    assert [json.loads(line)["crc_valid"] for line in shallow.stdout.splitlines()].count(False) == 1
    checked = kseg("dump", "--deep", "--format", "jsonl", DAMAGED)
    unchecked = kseg("dump", "--deep", "--no-crc", "--format", "jsonl", DAMAGED)
    assert len(checked.stdout.splitlines()) < len(unchecked.stdout.splitlines())
    assert unchecked.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["table", "jsonl", "csv", "text", "hex"])
@pytest.mark.parametrize("depth", ["--shallow", "--deep"])
def test_every_format_shows_every_segment_kind(name: str, depth: str) -> None:
    """No combination of format and record version fails."""
    run = kseg("dump", depth, "--format", name, MIXED, TRANSACTIONS)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout


def test_standard_input_reads_as_a_file_does() -> None:
    """A pipe gives the same rows as the file."""
    piped = [
        json.loads(line)
        for line in kseg("dump", "--format", "jsonl", "-", stdin=MIXED.read_bytes()).stdout.splitlines()
    ]
    assert [{**row, "file": None} for row in piped] == [{**row, "file": None} for row in rows(MIXED)]
    assert kseg("validate", "-", stdin=PLAIN.read_bytes()).returncode == 0


@pytest.mark.slow
def test_contents_of_a_key_cannot_control_a_terminal(tmp_path: Path) -> None:
    """A value with escape sequences, bidi marks and C1 controls is printed as text in every format."""
    from kseg.format.writer.records_builder import PlainRecord, build_batch

    evil = "\x1b]0;owned\x07 \x9b31m \u202e [red]x[/red]".encode()
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(build_batch([PlainRecord(offset=0, timestamp=1700000000000, key=evil, value=evil)], base_offset=0))
    for name in ("table", "jsonl", "hex"):
        shown = kseg("dump", "--deep", "--format", name, path).stdout
        assert not set("\x1b\x07\x9b\u202e") & set(shown), name
    assert "[red]x[/red]" in kseg("dump", "--deep", path).stdout


def test_a_result_stays_when_there_is_no_new_one(tmp_path: Path) -> None:
    """A failed run keeps the output of an earlier one."""
    (tmp_path / "rows.csv").write_text("mine")
    assert kseg("dump", "--format", "csv", "-o", tmp_path / "rows.csv", tmp_path / "absent").returncode == 2
    assert (tmp_path / "rows.csv").read_text() == "mine"


def test_converting_by_force_leaves_what_is_not_a_partitions(tmp_path: Path) -> None:
    """--force does not replace a folder with foreign files."""
    (tmp_path / "precious.txt").write_text("mine")
    assert kseg("convert", "--force", "any-to-v2", SEGMENTS / "2.8.2-v1-none", tmp_path).returncode == 2
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_csv_distinguishes_null_and_empty() -> None:
    """A null key and an empty key are different records."""
    lines = kseg("dump", "--deep", "--limit", "3", "--format", "csv", PLAIN).stdout.splitlines()
    assert [line.split(",")[7] for line in lines[1:]] == ["", '""', "key-2"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("vaildate", DAMAGED), "unknown command 'vaildate': did you mean validate?"),
        (("validate", "--format", "json", DAMAGED), "did you mean jsonl?"),
        (("validate", "--rule", "crc-mismach=info", DAMAGED), "did you mean crc-mismatch"),
        (("validate", "--rule", "crc-mismatch=eror", DAMAGED), "did you mean error?"),
        (("validate", "--rul", "x", DAMAGED), "Did you mean '--rule'?"),
        (("rules", "crc-mismach"), "did you mean crc-mismatch"),
        (("dump", "--as", "request", DAMAGED), "did you mean requests?"),
        (("dump", "--decode", "__consumer_offset", DAMAGED), "did you mean __consumer_offsets?"),
        (("convert", "v0-v2", DAMAGED, "out"), "did you mean v0-to-v2"),
        (("audit", "gaps", DAMAGED), "use kseg sql --recipe NAME"),
        (("sql", "--recipe", "duplicate", DAMAGED), "did you mean duplicates?"),
    ],
)
def test_wrong_names_get_a_suggestion(arguments: tuple[object, ...], hint: str) -> None:
    """A misspelled name is the commonest wrong argument."""
    done = kseg(*arguments)
    assert done.returncode == 2
    assert hint in done.stderr


def test_a_misspelled_setting_gets_a_suggestion(tmp_path: Path) -> None:
    """The names in kseg.toml have dashes, as the options."""
    (tmp_path / "kseg.toml").write_text("max-rat = 3\n")
    done = kseg("validate", DAMAGED, cwd=tmp_path)
    assert (done.returncode, "did you mean max-rate?" in done.stderr) == (2, True)


def test_rules_as_rows() -> None:
    """Another program can show cause, consequence, remedy and example of each rule."""
    rows = [json.loads(line) for line in kseg("rules", "--format", "jsonl").stdout.splitlines()]
    assert [row["rule"] for row in rows] == list(RULES)
    (row,) = map(json.loads, kseg("rules", "K201", "--format", "jsonl").stdout.splitlines())
    assert row["broker"] == RULES["crc-mismatch"].broker
    assert row["remedy"] == RULES["crc-mismatch"].remedy
    assert "kseg validate" in row["example"]["command"]


@pytest.mark.slow
def test_rules_are_listed_and_explained() -> None:
    """The list of rules is complete."""
    listed = kseg("rules").stdout.splitlines()[2:-1]
    assert [line.split()[1] for line in listed] == list(RULES)
    assert kseg("rules", "K201").stdout == kseg("rules", "crc-mismatch").stdout
    assert kseg("rules", "no-such").returncode == 2
    # Format specifiers in a message's braces are not for people; the words around them are.
    assert "CRC mismatch: stored {stored}, computed {computed}\n" in kseg("rules", "crc-mismatch").stdout
    assert "the last batch is incomplete: {why}" in kseg("rules", "truncated-tail").stdout


def test_completion_without_a_login_shell_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers and cron have no SHELL."""
    monkeypatch.delenv("SHELL", raising=False)
    done = kseg("completion")
    assert (done.returncode, done.stderr) == (
        2,
        "kseg: the environment has no variable SHELL: give one of bash, zsh, fish\n",
    )
