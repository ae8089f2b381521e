"""``kseg demo``: write the example files of the documentation."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click

from kseg.cli import common
from kseg.cli.typed_command import command
from kseg.errors import UsageError
from kseg.extras import demo as files
from kseg.format.storage.atomic_write import publish, scratch_folder, sync_folder, writing
from kseg.report.formats import destination
from kseg.report.tables import print_text
from kseg.text import count_of, escape_controls


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The command line of ``kseg demo``."""

    folder: str


@command(
    DemoOptions,
    arguments=(click.Argument(["folder"], metavar="FOLDER", type=common.OutputFolder()),),
    examples=("kseg demo first", "kseg demo /tmp/kseg-files", "kseg demo ~/kseg-demo"),
)
def demo(asked: DemoOptions) -> None:
    """Write the example files of the documentation to a new folder.

    They are log directories of real brokers: valid, damaged, old, with transactions, offsets and schemas.
    """
    common.check_outputs()
    target = Path(asked.folder).absolute()
    if os.path.lexists(target):
        raise UsageError(f"{asked.folder} exists: give a new folder")
    with writing(target), scratch_folder(target) as folder:
        count = files.write(folder)
        folder.chmod(0o755)
        sync_folder(folder)
        publish([(folder, target)], replace=False)
    with destination(None) as out:
        for name, (content, line) in files.FOLDERS.items():
            print_text(out, f"{name:13} {content}", indent=14)
            print_text(out, f"{'':13} {line}", indent=14)
        print_text(out, f"{escape_controls(asked.folder)}: {count_of(count, 'file')}; the commands are for this folder")
