"""Run commands with and without Spark."""

from __future__ import annotations

from click.testing import CliRunner, Result

from kseg.cli.main import main
from tests.support.cli import ROOT

FINDINGS = ROOT / "fixtures" / "findings"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def on_spark(*arguments: object) -> Result:
    return run(*arguments, "--spark", "local[2]")
