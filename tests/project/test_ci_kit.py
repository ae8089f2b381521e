"""The GitHub action, the GitLab template and the pre-commit hook run kseg as they say."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.cli import DAMAGED, PLAIN, ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

NAME = PLAIN.name


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with a valid and a damaged partition, and kseg on its PATH."""
    for folder, source in (("orders 0", PLAIN), ("clicks-0", DAMAGED / NAME)):
        (tmp_path / folder).mkdir()
        shutil.copy(source, tmp_path / folder / NAME)
    kseg = tmp_path / "bin" / "kseg"
    kseg.parent.mkdir()
    kseg.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kseg "$@"\n')
    kseg.chmod(0o755)
    return tmp_path


def run(script: str, workspace: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{workspace / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **variables}
    command = ["bash", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=workspace, env=environment, capture_output=True, text=True, check=False)


def action(workspace: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the last step of the action with its inputs, as GitHub does."""
    read: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    values = {name: str(about.get("default", "")) for name, about in read["inputs"].items()}
    values.update({name.replace("_", "-"): value for name, value in inputs.items()})
    step = read["runs"]["steps"][-1]
    given = {
        name: re.sub(r"\${{ inputs\.([a-z-]+) }}", lambda match: values[match[1]], text)
        for name, text in step["env"].items()
    }
    return run(step["run"], workspace, GITHUB_STEP_SUMMARY=str(workspace / "summary.md"), **given)


def test_the_action_annotates_and_fails(workspace: Path) -> None:
    """Damage fails the job, with an annotation, a summary and a SARIF file."""
    done = action(workspace, paths="orders 0\nclicks-0\n", sarif="kseg.sarif")
    assert done.returncode == 1, done.stderr
    assert "::error file=clicks-0" in done.stdout
    assert "crc-mismatch" in (workspace / "summary.md").read_text()
    assert '"K201"' in (workspace / "kseg.sarif").read_text()


def test_the_action_passes_valid_segments_and_options(workspace: Path) -> None:
    """A path with a space is one path, and options come one per line."""
    assert action(workspace, paths="orders 0", options="--shallow").returncode == 0
    assert action(workspace, paths="clicks-0", fail_on="never").returncode == 0


def test_no_input_becomes_a_command(workspace: Path) -> None:
    """An input with shell syntax is a path that doesn't exist."""
    done = action(workspace, paths="$(touch forged); `touch forged`; --version")
    assert done.returncode == 2
    assert not (workspace / "forged").exists()


def test_the_gitlab_job_writes_its_reports(workspace: Path) -> None:
    """The files that the job keeps exist also when it fails."""
    job: dict[str, Any] = yaml.safe_load((ROOT / "packaging" / "ci" / "gitlab.yml").read_text())["kseg-validate"]
    *install, script = job["script"]
    assert "pip install" in install[0]
    done = run(script, workspace, KSEG_PATHS="clicks-0", KSEG_OPTIONS="--deep")
    assert done.returncode == 1, done.stderr
    assert (workspace / job["artifacts"]["reports"]["junit"]).read_text().count("<testcase") == 1
    assert (workspace / job["artifacts"]["paths"][0]).exists()


def test_the_hook_gets_the_files_of_a_log() -> None:
    """The pattern selects what kseg reads, and nothing else."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "kseg validate"
    for name in ("a/orders-0/00000000000000000000.log", "00000000000000000012.timeindex"):
        assert re.search(hook["files"], name)
    for name in ("a/server.log", "00000000000000000012.log.py", "x00000000000000000012.log"):
        assert not re.search(hook["files"], name)
