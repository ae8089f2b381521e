"""``kseg repair`` of a log directory keeps deleted records deleted, where the files prove the log start."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.cli import invoke
from tests.support.fixtures import SEGMENTS

NAME = "log-start-offset-checkpoint"


def make_log_dir(tmp_path: Path, text: str | None, epochs: str = "0\n1\n0 0\n") -> Path:
    """Return a log directory whose partition has batches of eight records, of leader epoch 0, from offset 0."""
    log_dir = tmp_path / "logs"
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", log_dir / "orders-0")
    (log_dir / "orders-0" / "leader-epoch-checkpoint").write_text(epochs)
    shutil.copyfile(SEGMENTS / "4.3.0-v2-none-log-dir" / "meta.properties", log_dir / "meta.properties")
    if text is not None:
        (log_dir / NAME).write_text(text)
    return log_dir


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "epochs", "line", "said"),
    [
        pytest.param("0\n1\norders 0 12\n", "0\n1\n0 0\n", "orders 0 12", f"12 (from {NAME})", id="kept"),
        pytest.param("0\n2\norders 0 12\nx\n", "0\n1\n0 0\n", "orders 0 12", f"12 (from {NAME})", id="readable-line"),
        pytest.param(None, "0\n1\n0 12\n", "orders 0 12", "12 (proved by the leader epochs)", id="proved"),
        pytest.param("junk", "0\n1\n0 12\n", "orders 0 12", "12 (proved by the leader epochs)", id="damaged"),
        # A follower that lost its epochs begins a new checkpoint with the next batch: 8 could hide records.
        pytest.param(None, "0\n1\n0 8\n", None, "nothing proves that of 1 partition", id="at-a-batch"),
        pytest.param(None, "0\n1\n9 12\n", None, "nothing proves that of 1 partition", id="other-epoch"),
        pytest.param(None, "0\n1\n0 0\n", None, "nothing proves that of 1 partition", id="from-the-first"),
        pytest.param("0\n0\n", "0\n1\n0 0\n", None, None, id="none-deleted"),
        pytest.param("0\n1\norders 0 9999\n", "0\n1\n0 0\n", None, "9999 is not kept", id="after-the-end"),
    ],
)
def test_a_log_start_is_kept_where_it_is_known(
    text: str | None, epochs: str, line: str | None, said: str | None, tmp_path: Path
) -> None:
    """It comes from the checkpoint or a leader epoch that starts inside a batch; a guess could hide records."""
    log_dir, target = make_log_dir(tmp_path, text, epochs), tmp_path / "new"
    done = invoke("repair", log_dir, target)
    assert done.exit_code == 0, done.output
    stderr = " ".join(done.stderr.split())
    assert (said in stderr) if said else ("log start" not in stderr)
    assert (target / NAME).exists() is (line is not None)
    if line:
        assert (target / NAME).read_text() == f"0\n1\n{line}\n"
        assert NAME not in stderr.partition("not copied:")[2].partition("kseg:")[0]
        assert invoke("validate", target).exit_code == 0
        done = invoke("recovery", "--format", "jsonl", target)
        assert done.exit_code == 0, done.output
        assert '"log_start":12,' in done.stdout


def test_log_starts_of_other_partitions_stay(tmp_path: Path) -> None:
    """Without --force a checkpoint of the target is not touched; with it, other partitions keep their lines."""
    log_dir, target = make_log_dir(tmp_path, "0\n1\norders 0 12\n"), tmp_path / "new"
    target.mkdir()
    (target / NAME).write_text("0\n2\norders 0 1\nother 3 7\n")
    refused = invoke("repair", log_dir, target)
    assert refused.exit_code == 2
    assert (target / NAME).read_text() == "0\n2\norders 0 1\nother 3 7\n"
    assert invoke("repair", "--force", log_dir, target).exit_code == 0
    assert (target / NAME).read_text() == "0\n2\norders 0 12\nother 3 7\n"
