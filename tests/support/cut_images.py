"""Images of disks: the segments of a broker, cut into extents, in random order between noise and zeros."""

from __future__ import annotations

import random
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import unpack_from

from kseg.commands.carve.carving import Carving, carve_images
from kseg.commands.carve.image_scan import open_image
from kseg.commands.carve.runs import CarvedRun
from kseg.findings import do_nothing

TWINS = Path(__file__).parents[2] / "fixtures" / "carve" / "twins.tar.xz"
BLOCK = 4096


def unpack_twins(folder: Path) -> dict[str, bytes]:
    """Return the files of the twin partitions by ``topic-partition/name``."""
    with tarfile.open(TWINS) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
        archive.extractall(folder)
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def batches_of(data: bytes) -> list[tuple[int, int, int, int]]:
    """Return (position, size, base offset, mark) of the v2 batches of a segment; the mark is that of ``CarvedRun.marks``."""
    found, at = [], 0
    while at < len(data):
        base, size = unpack_from(">qi", data, at)
        (crc,) = unpack_from(">I", data, at + 17)
        found.append((at, size + 12, base, hash((base, crc, size + 12))))
        at += size + 12
    return found


@dataclass
class CutImage:
    """``data`` is the image. ``whole``, ``torn`` and ``gone`` are marks of batches in one extent, and in two."""

    data: bytes
    partition_of: dict[int, str]
    whole: set[int] = field(default_factory=set)
    torn: set[int] = field(default_factory=set)

    def carve(self, path: Path, *, guess: bool = False) -> Carving:
        path.write_bytes(self.data)
        image = open_image(str(path), 0)
        with image.file:
            return carve_images([image], BLOCK, do_nothing, guess=guess)

    def partitions(self, runs: Sequence[CarvedRun]) -> set[str]:
        """Return the partitions that the batches of runs are of."""
        return {self.partition_of.get(mark, "none") for run in runs for mark in run.marks}


def cut(files: dict[str, bytes], seed: int, *, lost: float = 0.0) -> CutImage:
    """Return an image of files by ``partition/name``: each in extents of 1 to 12 blocks, of which some are ``lost``."""
    chance = random.Random(seed)
    pieces: list[bytes] = []
    image = CutImage(b"", {})
    for name, data in files.items():
        edges, gone = [0], []
        while edges[-1] < len(data):
            edges.append(edges[-1] + BLOCK * chance.randrange(1, 13))
            gone.append(chance.random() < lost)
        for begin, end, is_gone in zip(edges, edges[1:], gone, strict=False):
            if not is_gone:
                piece = data[begin:end]
                rest = -len(piece) % BLOCK
                pieces.append(piece + (bytes(rest) if chance.random() < 0.7 else chance.randbytes(rest)))
        for at, size, _, mark in batches_of(data) if name.endswith(".log") else ():
            image.partition_of[mark] = name.partition("/")[0]
            parts = {n for n in range(len(gone)) if edges[n] < at + size and at < edges[n + 1]}
            if not any(gone[n] for n in parts):
                if len(parts) == 1:
                    image.whole.add(mark)
                elif len(parts) == 2:
                    image.torn.add(mark)
    pieces += [chance.randbytes(BLOCK * chance.randrange(1, 9)) for _ in range(8)]
    pieces += [bytes(BLOCK * chance.randrange(1, 40)) for _ in range(8)]
    chance.shuffle(pieces)
    image.data = b"".join(pieces)
    return image
