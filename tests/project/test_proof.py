"""The page of proof has no figure without its test, its day and its command, and the tools that measure work."""

from __future__ import annotations

import random
import re
import shlex
import shutil
from contextlib import suppress
from datetime import date
from pathlib import Path

import pytest

from kseg.extras.serialization.binary_json import decode_cbor
from tests.support.cli import SEGMENTS
from tools.proof import bombs, fuzz, growth, library_fuzz, limits
from tools.proof.figures import FILE, Figure, figures, write_figure

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("row", figures(), ids=lambda row: row.name)
def test_each_row_of_the_page_of_proof_is_complete(row: Figure) -> None:
    """A promise with a test that does not exist, or without a figure, proves nothing."""
    assert all(row), row
    assert re.search("[0-9]", row.figure)
    assert date.fromisoformat(row.date)
    assert (ROOT / row.test).exists()
    words = [word for word in shlex.split(row.command) if not word.startswith("KSEG_")]
    assert words[:2] == ["python", "-m"]
    if words[2].startswith("tools."):
        assert (ROOT / f"{words[2].replace('.', '/')}.py").exists()
    else:
        assert words[2] == "pytest"
        assert row.test in words


def test_a_figure_replaces_that_of_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tools write figures; a name without a row is a mistake of the tool."""
    copy = tmp_path / FILE.name
    copy.write_bytes(FILE.read_bytes())
    monkeypatch.setattr("tools.proof.figures.FILE", copy)
    before = figures()
    write_figure(before[0].name, "1 of 1")
    assert figures()[1:] == before[1:]
    assert figures()[0].figure == "1 of 1"
    with pytest.raises(KeyError):
        write_figure("unknown", "1 of 1")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["many-batches", "one-record-count", "lz4-zeros"])
def test_a_hostile_file_is_small_and_its_check_cheap(name: str, tmp_path: Path) -> None:
    """Files below 1 MB cost at most 300 MB and 10 s of CPU."""
    path = bombs.BOMBS[name][0](tmp_path)
    assert 0 < bombs.sizes(path) < 1.1 * bombs.SIZE
    seconds, peak, code, messages = limits.run(["stats", str(path)], tmp_path)
    assert (code in (0, 1), seconds < limits.MOST_SECONDS, peak < limits.MOST_BYTES) == (True, True, True), messages


def test_a_limit_that_is_exceeded_is_seen() -> None:
    """The tool must report a command that costs too much, and one that a limit of the system has ended."""
    cheap = limits.Cost("bomb", "validate", 1.0, 1 << 20, 1, "")
    assert not cheap.failed
    dear = ({"seconds": 11.0}, {"peak": 301 << 20}, {"code": -9}, {"error": "internal error"})
    assert all(cheap._replace(**changed).failed for changed in dear)


def test_superlinear_growth_is_seen() -> None:
    """Start-up time does not hide it."""
    assert growth.Growth("batches", "validate", 1, (1.1, 1.4, 2.6), (0, 0, 0), (1, 1, 1)).superlinear
    assert growth.Growth("batches", "validate", 1, (4.8, 14.9, 14.9), (0, -9, -9), (1, 1, 1)).superlinear
    assert not growth.Growth("batches", "validate", 1, (1.1, 1.2, 1.4), (0, 0, 0), (1, 1, 1)).superlinear
    assert not growth.Growth("batches", "validate", 1, (0.2, 1.2, 3.2), (0, 0, 0), (1, 1, 1)).superlinear


@pytest.mark.parametrize("target", fuzz.TARGETS)
def test_a_case_of_each_target_runs(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No exception, for the first case of each target."""
    monkeypatch.setenv("KSEG_DEBUG", "1")
    fuzz.run_case(target, 0)


def test_an_exception_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault is reported with its target and its number."""
    monkeypatch.setattr(fuzz, "TARGETS", ("codecs",))
    monkeypatch.setattr("kseg.format.compress.codecs.decompress", lambda *_, **__: 1 / 0)
    executed, failures = fuzz.fuzz(0.01, 7)
    assert executed["codecs"] == len(failures) > 0
    assert failures[0].startswith("codecs 7: ZeroDivisionError")


@pytest.mark.slow
def test_a_case_that_never_ends_is_a_failure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where kseg takes an OSError for a file that it can't read."""

    def endless(_: str, log: Path) -> None:
        with suppress(OSError):
            while log.exists():
                pass

    for name, value in {"TARGETS": ("reader",), "_ENDLESS": 1, "REGRESSIONS": tmp_path, "run_target": endless}.items():
        monkeypatch.setattr(fuzz, name, value)
    executed, failures = fuzz.fuzz(0.01, 7)
    assert (executed, failures) == ({"reader": 1}, ["reader 7: EndlessError: more than 1 s"])
    assert list(tmp_path.glob("reader-7/orders-0/*.log"))


def test_a_guided_search_keeps_what_reaches_new_lines() -> None:
    """The same case again reaches none."""
    pytest.importorskip("coverage")
    guide = fuzz.Guide()
    reached = []
    for number in (0, 0, 1, 2):
        with guide.watch("reader", SEGMENTS / "4.3.0-v2-none-headers"):
            fuzz.run_case("reader", number)
        reached.append(guide.reached())
    assert 0 < reached[0] == reached[1] <= reached[2]
    assert guide.files("reader", random.Random(1)) is not None
    assert guide.files("grep", random.Random(1)) is None


@pytest.mark.parametrize("path", sorted(fuzz.REGRESSIONS.glob("*/*/*.log")), ids=lambda path: path.parts[-3])
def test_what_once_ended_a_command_ends_none(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file of tests/regressions/TARGET-NUMBER/PARTITION gave an internal error once."""
    monkeypatch.setenv("KSEG_DEBUG", "1")
    shutil.copytree(path.parent, tmp_path / path.parent.name)
    fuzz.run_target(path.parts[-3].rpartition("-")[0], tmp_path / path.parent.name / path.name)


@pytest.mark.parametrize("target", library_fuzz.TARGETS)
def test_decoders_of_the_library_take_any_bytes(target: str) -> None:
    """They return a value or raise the error that they name."""
    for number in range(200):
        library_fuzz.TARGETS[target](random.Random(f"{target} {number}"))


def test_a_planted_fault_of_a_decoder_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without failures means nothing if it could not have any."""

    def planted(chance: random.Random) -> None:
        assert chance.random() < 0.9

    monkeypatch.setattr(library_fuzz, "TARGETS", {"planted": planted})
    executed, failures = library_fuzz.fuzz(0.01, 0)
    assert executed["planted"] >= len(failures) > 0


def test_a_case_that_failed_once_does_not_again() -> None:
    """A CBOR value that ends after the tag of a large number was an internal error."""
    library_fuzz.TARGETS["cbor"](random.Random("cbor 244838"))
    for data in (b"\xc2", b"\xa3\xc3", b"\x82\xc2"):
        with pytest.raises(ValueError, match="the value is cut"):
            decode_cbor(data)
