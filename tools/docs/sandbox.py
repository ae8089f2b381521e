"""The files of the documentation's examples: those of ``kseg demo``, and the files of the statements about formats."""

from __future__ import annotations

import shutil
from pathlib import Path

from kseg.cli import demo_command

STATEMENTS = Path(__file__).parents[2] / "fixtures" / "statements"


def make(home: Path) -> Path:
    """Write all files below ``home``, and return it."""
    demo_command.write_files(home)
    shutil.copytree(STATEMENTS, home / "statements")
    return home
