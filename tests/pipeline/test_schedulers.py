"""The example for Airflow does with each exit code what its page says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.cli import ROOT

PAGE = ROOT / "docs" / "how-to" / "load-into-tables.md"


def dag() -> str:
    (code,) = re.findall(r"```python\n(from datetime.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(code)


@pytest.mark.parametrize(("code", "succeeds"), [(0, True), (1, True), (2, False), (3, False)])
def test_the_command_of_the_task_maps_exit_codes(code: int, succeeds: bool, tmp_path: Path) -> None:
    (command,) = re.findall(r'bash_command="(kseg pipeline run.*?)",', dag())
    program = tmp_path / "kseg"
    program.write_text(f"#!/bin/sh\nexit {code}\n")
    program.chmod(0o755)
    done = subprocess.run(["bash", "-c", command], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False)
    assert (done.returncode == 0) == succeeds


def test_airflow_accepts_the_dag(tmp_path: Path) -> None:
    airflow = pytest.importorskip("airflow.sdk", reason="Airflow is not installed")
    names: dict[str, object] = {}
    exec(compile(dag(), str(PAGE), "exec"), names)
    assert isinstance(names["DAG"], type)
    assert airflow.DAG is names["DAG"]
