"""No command overwrites its inputs, or a file that the user did not ask to replace, under any name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.cli import SEGMENTS, invoke
from tests.support.repairing import FIRST, SOUND, digests

STEM = FIRST.removesuffix(".log")
TRANSACTIONS = SEGMENTS / "4.3.0-v2-none-transactions"
ABORTED = "00000000000000000017"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Make a log dir with a partition folder that is a link, and a partition with a segment that is a link."""
    real = tmp_path / "real" / "orders-0"
    real.mkdir(parents=True)
    shutil.copy(SOUND, real / FIRST)
    (real / f"{STEM}.index").write_bytes(b"")
    (tmp_path / "ld").mkdir()
    (tmp_path / "ld" / "orders-0").symlink_to(real)
    (tmp_path / "links-0").mkdir()
    (tmp_path / "links-0" / FIRST).symlink_to(real / FIRST)
    return tmp_path


@pytest.mark.parametrize("verb", [["repair"], ["convert", "any-to-v2"]], ids=["repair", "convert"])
@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("links-0", "real/orders-0"),
        ("links-0", "real"),
        ("ld", "real"),
        ("ld", "real/orders-0"),
        (f"real/orders-0/{FIRST}", f"real/orders-0/{STEM}"),
        (f"links-0/{FIRST}", f"real/orders-0/{STEM}"),
    ],
)
def test_a_source_that_links_lead_to_is_not_replaced(verb: list[str], source: str, target: str, log_dir: Path) -> None:
    """--force allows a command to replace DST, but never the only original."""
    before = digests(log_dir)
    done = invoke(*verb, log_dir / source, log_dir / target, "--force")
    assert (done.exit_code, digests(log_dir)) == (2, before)
    assert "source" in done.stderr


@pytest.mark.parametrize("name", [f"{FIRST}.orig", f"{STEM}-notes.txt", f"{STEM}.index.bak"])
def test_what_only_begins_as_a_segment_s_name_is_not_removed(name: str, tmp_path: Path) -> None:
    """A foreign file with a similar name is kept."""
    target = tmp_path / "dst-0"
    target.mkdir()
    (target / name).write_bytes(b"mine")
    done = invoke("repair", SOUND.parent, target, "--force")
    assert (done.exit_code, (target / name).read_bytes()) == (2, b"mine")
    assert name in done.stderr


def test_new_indexes_leave_that_of_aborted_transactions(tmp_path: Path) -> None:
    """The transaction index of a single segment can't be computed for certain, so the existing one is kept."""
    own = tmp_path / f"{ABORTED}.txnindex"
    for suffix in (".log", ".txnindex"):
        shutil.copy(TRANSACTIONS / f"{ABORTED}{suffix}", tmp_path)
    before = own.read_bytes()
    assert before
    assert (
        invoke(
            "repair", TRANSACTIONS / own.with_suffix(".log").name, own.with_suffix(".log"), "--indexes-only", "--force"
        ).exit_code
        == 0
    )
    assert own.read_bytes() == before


def test_building_indexes_does_not_replace_segments(tmp_path: Path) -> None:
    """Only index files are written."""
    target = tmp_path / "dst-0"
    shutil.copytree(TRANSACTIONS, target)
    (target / "ORIGIN").unlink(missing_ok=True)
    for path in target.iterdir():
        if not path.name.startswith(STEM):
            path.unlink()
    before = digests(tmp_path)
    assert invoke("repair", TRANSACTIONS, target, "--indexes-only", "--force").exit_code == 2
    assert digests(tmp_path) == before


def test_a_single_segment_keeps_its_transaction_index(tmp_path: Path) -> None:
    """Without the transaction index a read_committed consumer would get aborted records."""
    source, target, copy = (
        TRANSACTIONS / f"{ABORTED}.log",
        tmp_path / f"{ABORTED}.log",
        tmp_path / f"{ABORTED}.txnindex",
    )
    copy.write_bytes(b"of another log")
    assert invoke("convert", "any-to-v2", source, target).exit_code == 2
    done = invoke("convert", "any-to-v2", source, target, "--force")
    assert done.exit_code == 0, done.output
    assert copy.read_bytes() == source.with_suffix(".txnindex").read_bytes()
    done = invoke("convert", "v2-to-v1", "--lossy", source, target, "--force")
    assert not copy.exists()
    assert f"not copied: {copy.name}" in done.stderr
