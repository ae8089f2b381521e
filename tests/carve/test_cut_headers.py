"""``kseg carve`` of files that are cut in a batch's header: no record gets a wrong offset, no batch is lost silently.

No CRC covers the base offset, so the bytes before the second extent can complete a batch. Each value has the true offset.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import pytest

from kseg.commands.carve.carving import Carving, carve_images
from kseg.commands.carve.image_scan import open_image
from kseg.findings import do_nothing
from kseg.format.record.crc import crc32c
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message
from tests.support.fuzzing import cases
from tests.support.transactional_logs import batch

BLOCK = 512
CUTS = range(1, 61)
BEFORE = ("zeros", "noise", "end of a file", "text", "marker")


def unit(magic: int, first: int, count: int, size: int) -> bytes:
    """Return a batch of ``count`` records with values of ``size`` bytes, or a message of v0 or v1."""
    value = b"%d/" % first + b"v" * size
    if magic < 2:
        return build_message(PlainRecord(first, b"k", value, 1_700_000_000_000 if magic else -1), magic=magic)
    records = [(first + n, b"k", value) for n in range(count)]
    return batch(first, first + count - 1, records)


@dataclass
class CutLog:
    """A file in two extents, of which the second one begins ``cut`` bytes after the start of batch ``torn``.

    ``batches`` are its batches by their bytes.
    """

    batches: list[bytes]
    torn: int
    extents: tuple[bytes, bytes]


def cut_log(dice: random.Random, magic: int, cut: int, *, dense: bool = False) -> CutLog:
    """Return a file with batches before the cut one, and after it none, one or several, with or without gaps of offsets.

    ``dense``: there are several, without gaps.
    """
    while True:
        offset = dice.choice((0, 5, 300, 1043, 70_000, 20_000_000, 17_179_869_184 + 987_654_321))
        gaps, after = not dense and dice.random() < 0.3, 5 if dense else dice.choice((0, 1, 1, 5))
        batches: list[bytes] = []
        size = 0
        while size < BLOCK + 200:
            batches.append(unit(magic, offset, count := dice.choice((1, 3)), dice.randrange(1, 90)))
            size += len(batches[-1])
            offset += (count if magic == 2 else 1) + (gaps and dice.randrange(3))
        # The next one ends ``cut`` bytes before a block.
        room = -(size + cut) % BLOCK
        plain = len(unit(magic, offset, 1, 0))
        if not plain + 70 < room < plain + 400:
            continue
        padded = next((one for n in range(room - plain + 1) if len(one := unit(magic, offset, 1, n)) == room), None)
        if padded is None:
            continue
        batches.append(padded)
        offset += 1
        torn = len(batches)
        for _ in range(after + 1):
            offset += gaps and dice.randrange(3)
            batches.append(unit(magic, offset, count := dice.choice((1, 3)), dice.choice((70, 100, 300, 900))))
            offset += count if magic == 2 else 1
        data = b"".join(batches)
        edge = sum(map(len, batches[:torn])) + cut
        assert edge % BLOCK == 0
        return CutLog(batches, torn, (data[:edge], data[edge:] + bytes(-len(data) % BLOCK)))


def filler(dice: random.Random, kind: str, magic: int, cut: int, unlike: int = 128) -> tuple[bytes, list[bytes]]:
    """Return blocks of another kind, and the batches in them.

    Offsets of another file do not lead to ``unlike`` as their last byte.
    """
    if kind == "zeros":
        return bytes(BLOCK * dice.randrange(1, 4)), []
    if kind == "noise":
        return dice.randbytes(BLOCK), []
    if kind == "text":
        return (b'{"number": 17}\n' * BLOCK)[:BLOCK], []
    if kind == "marker":
        # The end of a record whose value ends with a number.
        return bytes([*dice.randbytes(BLOCK - 9), 0, 0, 0, 0, 0, 0, 0, dice.choice((1, 5, 40)), 0]), []
    # Zeros complete a batch whose offset ends, by chance, with the byte that continues the file before it.
    first = next(n for n in dice.sample((0, 7, 900, 70_001), 4) if unlike not in ((n + 1) & 255, (n + 2) & 255))
    own = unit(magic, first, 1, 40)
    rest = BLOCK - len(own) - cut - len(unit(magic, first + 1, 1, 0))
    last = next(
        (one for n in range(rest + 1) if len(one := unit(magic, first + 1, 1, n)) + len(own) + cut == BLOCK), b""
    )
    return own + last + bytes(-len(own + last) % BLOCK), [own, last] if last else [own]


def carve(path: Path, data: bytes) -> Carving:
    path.write_bytes(data)
    image = open_image(str(path), 0)
    with image.file:
        return carve_images([image], BLOCK, do_nothing)


def found_batches(data: bytes, carving: Carving) -> list[bytes]:
    """Return the batches of groups."""
    found = []
    for group in carving.groups:
        for run, first in group.parts:
            content = b"".join(data[piece.position : piece.end] for piece in run.pieces)
            ends = [*run.starts[1:], run.size]
            found += [content[at:end] for at, end in list(zip(run.starts, ends, strict=True))[first:]]
    return found


def twin(log: CutLog, by: int) -> CutLog:
    """Return a file of v2 with batches of the same sizes, other offsets and other values, cut at the same byte."""
    batches = []
    for one in log.batches:
        covered = one[21:-2] + b"w\0"  # a record ends with the number of its headers
        start = struct.pack(">q", struct.unpack_from(">q", one)[0] + by) + one[8:17]
        batches.append(start + struct.pack(">I", crc32c(covered)) + covered)
    data, edge = b"".join(batches), len(log.extents[0])
    return CutLog(batches, log.torn, (data[:edge], data[edge:] + bytes(-len(data) % BLOCK)))


def places(log: CutLog, data: bytes) -> list[list[tuple[int, int]]]:
    """Return the parts of each batch in an image: (position, end)."""
    first, second = (data.find(extent) for extent in log.extents)
    edge, at, found = len(log.extents[0]), 0, []
    for one in log.batches:
        end = at + len(one)
        parts = [(first + at, first + min(end, edge))] if at < edge else []
        parts += [(second + max(at, edge) - edge, second + end - edge)] if end > edge else []
        found.append(parts)
        at = end
    return found


def faults(dice: random.Random, magic: int, cut: int, kind: str, path: Path) -> list[str]:
    """Return what is wrong in the carving of a random image."""
    log = cut_log(dice, magic, cut)
    between, others = filler(dice, kind, magic, cut, log.batches[log.torn][7])
    end, _ = filler(dice, dice.choice(("zeros", "noise")), magic, cut)
    first, second = log.extents
    data = between + second + end + first + end if dice.random() < 0.7 else first + end + between + second + end
    carving = carve(path, data)
    found = found_batches(data, carving)
    wrong = [f"not in the file: {one[:24].hex()}" for one in found if one not in log.batches and one not in others]
    rows = [(head.position, head.position + (head.size if head.messages else 1)) for _, head in carving.torn]
    for n, (one, parts) in enumerate(zip(log.batches, places(log, data), strict=True)):
        reported = any(begin < stop and at < end for begin, end in rows for at, stop in parts)
        if one not in found and not reported:
            wrong.append(f"batch {n} of {len(log.batches)} is lost, torn is {log.torn}")
        # Messages of v1 can be of a compressed set: ``test_inner_messages``.
        if magic != 1 and one not in found and len(parts) == 1 and -parts[0][0] % BLOCK > 20:
            wrong.append(f"batch {n} of {len(log.batches)} is torn, torn is {log.torn}")
    if carving.is_whole != (not rows):
        wrong.append("exit code")
    return [f"v{magic} cut {cut} after {kind}: {one}" for one in wrong]


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("kind", BEFORE)
def test_a_header_in_two_extents(magic: int, kind: str, tmp_path: Path) -> None:
    """Cut at each byte of the header: a batch is whole at its offset, or torn; whatever is before the second extent."""
    found = [
        fault
        for seed in range(cases(3))
        for cut in CUTS
        for fault in faults(random.Random(f"{seed}/{cut}/{kind}/{magic}"), magic, cut, kind, tmp_path / "image")
    ]
    assert found == []


@pytest.mark.slow
@pytest.mark.fuzz
def test_extents_that_complete_a_batch_of_another_file(tmp_path: Path) -> None:
    """The head of a batch is before the rest of another one of the same size: both are found with their own offsets."""
    for seed in range(cases(3)):
        for cut in CUTS:
            dice = random.Random(f"{seed}/{cut}")
            log = cut_log(dice, 2, cut, dense=True)
            other = twin(log, dice.choice((1, 50, 777_777)))
            one, two = (log, other) if dice.random() < 0.5 else (other, log)
            gap = filler(dice, dice.choice(("zeros", "noise")), 2, cut)[0]
            data = one.extents[0] + two.extents[1] + gap + two.extents[0] + one.extents[1] + gap
            carving = carve(tmp_path / "image", data)
            found = set(found_batches(data, carving))
            assert found <= {*log.batches, *other.batches}, (seed, cut)
            assert len(found) == 2 * len(log.batches) or not carving.is_whole, (seed, cut)


def marked(tag: str, others: int) -> list[bytes]:
    """Return batches of transactions after ``others``; the marker of the second one begins 40 bytes before a block's end."""
    time = 1_700_000_000_000
    found = [build_batch([PlainRecord(n, b"k", b"", time)]) for n in range(others)]
    for number in range(6):
        offset, size = len(found), 30 if number < 2 else 200

        def data(size: int, offset: int = offset, number: int = number) -> bytes:
            record = PlainRecord(offset, b"k", tag.encode() * size, time + number)
            return build_batch([record], producer_id=9, producer_epoch=0, base_sequence=number)

        while number == 1 and (len(data(size)) + sum(map(len, found)) + 40) % BLOCK:
            size += 1
        marker = PlainRecord(offset + 1, b"\0\0\0\1", b"\0\0\0\0\0\0", time + number)
        found += [data(size), build_batch([marker], producer_id=9, producer_epoch=0, control=True)]
    return found


#: The parts of two files in each order. Where ``b2`` follows ``a1``, it completes the marker, with a gap of offsets.
ORDERS = [order for order in permutations(("a1", "b1", "a2", "b2")) if "a1-b2" not in "-".join(order)]


@pytest.mark.parametrize("order", ORDERS, ids="-".join)
@pytest.mark.parametrize("gap", [0, BLOCK], ids=["dense", "sparse"])
def test_a_marker_that_two_partitions_have_joins_halves_by_their_offsets(
    order: tuple[str, ...], gap: int, tmp_path: Path
) -> None:
    """The marker of a transaction is the same in its partitions: its CRC is valid with either rest, and is no proof."""
    files = {"a": marked("a", 0), "b": marked("b", 3)}
    parts: dict[str, bytes] = {}
    for name, batches in files.items():
        data = b"".join(batches)
        edge = sum(map(len, batches[: len(batches) - 9])) + 40
        assert edge % BLOCK == 0
        parts |= {f"{name}1": data[:edge], f"{name}2": data[edge:] + bytes(-len(data) % BLOCK)}
    image = b"".join(parts[one] + bytes(gap) for one in order)
    carving = carve(tmp_path / "image", image)
    for group in carving.groups:
        found = [image[piece.position : piece.end] for run, _ in group.parts for piece in run.pieces]
        tags = {tag for tag in files if tag.encode() * 20 in b"".join(found)}
        assert len(tags) == 1, (order, [link.why for link in group.links])
        assert group.missing == 0
        assert all(link.strength != "proof" for link in group.links)


def test_a_torn_marker_is_no_proof(tmp_path: Path) -> None:
    """Two partitions with equal offsets can have each other's half: a link says so, and one by a sequence is a proof."""
    for number, strength in ((1, "strong"), (2, "proof")):
        batches = marked("a", 0)
        data = b"".join(batches)
        edge = sum(map(len, batches[:3])) + 40 + BLOCK * (number - 1)
        image = data[:edge] + bytes(BLOCK) + data[edge:] + bytes(-len(data) % BLOCK)
        links = [link for group in carve(tmp_path / "image", image).groups for link in group.links]
        (link,) = [link for link in links if link.kind == "torn batch"]
        assert link.strength == strength
        assert ("a batch of another partition can be equal" in link.why) is (strength == "strong")
