"""``kseg carve``: options, exit codes. 1: nothing found, or not all whole. 2: an image cannot be read."""

from __future__ import annotations

import io
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import click

from kseg.cli import common
from kseg.cli.messages import FOUND, progress_bar
from kseg.cli.typed_command import DetailOptions, command
from kseg.commands.carve.carving import Carving, carve_images, write_groups
from kseg.commands.carve.image_scan import open_image
from kseg.report.carve_report import evidence_rows
from kseg.report.formats import CARVING, destination
from kseg.report.row_formats import write_jsonl


@dataclass(frozen=True, kw_only=True)
class CarveOptions(DetailOptions):
    images: tuple[str, ...]
    guess: bool
    block_size: int


@command(
    CarveOptions,
    results=CARVING,
    arguments=(click.Argument(["images"], metavar="PATH...", nargs=-1, required=True, type=common.InputPath()),),
    examples=(
        "kseg carve disk.img",
        "kseg carve disk.img -o carved",
        "kseg carve /dev/sdb1 --block-size 1024 -o carved",
    ),
)
def carve(asked: CarveOptions) -> int:
    """Find record batches in images of disks, in block devices and in any files.

    A batch is found by its structure and its CRC: its file can be deleted, without a name, or overwritten in part. Batches
    of one partition become one group, where a proof joins them. Without -o, kseg only lists the groups. -o writes a folder
    of segments for each group, and evidence.jsonl, which has the reason of each link.

    Exit codes: 0 batches were found and all are whole, 1 none was found, some are torn, or the image has a read error, 2
    failure.
    """
    target = None if asked.output is None else common.new_folder(asked.output)
    common.check_outputs()
    with ExitStack() as stack:
        paths: dict[str, str] = {}
        for path in asked.images:
            paths.setdefault(os.path.realpath(path), path)
        images = []
        for number, path in enumerate(paths.values()):
            images.append(open_image(path, number))
            stack.enter_context(images[-1].file)
        with progress_bar(sum(image.size for image in images)) as progress:
            carving = carve_images(images, asked.block_size, progress, guess=asked.guess)
        if target is not None:
            _write(carving, target)
    with destination(None) as out:
        asked.write(CARVING, out, carving, str(target) if target else None)
    return 0 if carving.is_whole else FOUND


def _write(carving: Carving, target: Path) -> None:
    def write_evidence(out: IO[bytes]) -> None:
        text = io.TextIOWrapper(out, "utf-8", newline="\n")
        write_jsonl(evidence_rows(carving), text)
        text.flush()
        text.detach()

    with progress_bar(sum(group.size for group in carving.groups)) as progress:
        write_groups(carving, target, write_evidence, progress)
