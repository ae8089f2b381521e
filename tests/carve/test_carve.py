"""``kseg carve``: what it finds is proved, what it joins is of one partition, and what it writes is byte-equal.

The images are made of segments of a 4.3.0 broker: partitions of two topics with equal offsets, sizes and times.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
import subprocess
from functools import partial
from pathlib import Path

import pytest
from click.testing import Result

from kseg.commands.carve.links import GUESSES
from kseg.format.record import framing
from kseg.format.record.crc import crc32c
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message, build_wrapper
from tests.support.cli import invoke, rows_of
from tests.support.cut_images import BLOCK, CutImage, batches_of, cut, unpack_twins
from tests.support.read_faults import local_faults

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"


def carve(*arguments: object) -> Result:
    return invoke("carve", *arguments)


rows = partial(rows_of, "carve", code=None)


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of the twin partitions."""
    return unpack_twins(tmp_path_factory.mktemp("twins"))


def logs(files: dict[str, bytes]) -> dict[str, bytes]:
    return {name: data for name, data in files.items() if name.endswith(".log")}


def without_producers(data: bytes) -> bytes:
    """Return a segment whose batches have no producer id and no sequence, with their CRCs."""
    out = bytearray(data)
    for at, size, _, _ in batches_of(data):
        out[at + 43 : at + 57] = b"\xff" * 14
        struct.pack_into(">I", out, at + 17, crc32c(out[at + 21 : at + size]))
    return bytes(out)


@pytest.mark.parametrize("lost", [0.0, 0.2, 0.6])
@pytest.mark.parametrize("seed", range(2))
def test_cut_and_shuffled_segments_come_back(tmp_path: Path, twins: dict[str, bytes], seed: int, lost: float) -> None:
    """All whole batches are found and none else, torn ones are joined, and groups have batches of one partition only."""
    files = {name: data for name, data in twins.items() if name.endswith((".log", ".index"))}
    image = cut(files, seed, lost=lost)
    found = image.carve(tmp_path / "image")
    marks = [mark for group in found.groups for run, first in group.parts for mark in run.marks[first:]]
    assert len(marks) == len(set(marks))
    assert image.whole <= set(marks) <= image.whole | image.torn
    assert [len(image.partitions([run])) for run in found.runs] == [1] * len(found.runs)
    assert all(len(image.partitions([run for run, _ in group.parts])) == 1 for group in found.groups)
    if not lost:
        ends = {batches_of(data)[-1][3] for data in logs(files).values()}
        assert image.torn - set(marks) <= ends  # no run begins where the last batch of a segment ends
        assert sum(run.joined for run in found.runs) == len(image.torn & set(marks)) > 20
        assert any(link.kind == "sequence" for group in found.groups for link in group.links)


def test_equal_offsets_are_no_evidence(tmp_path: Path, twins: dict[str, bytes]) -> None:
    """Segments without producers, whose offsets continue, are joined with ``--guess`` only, and twins not even then."""
    plain = {name: without_producers(data) for name, data in logs(twins).items()}
    one = {name: data for name, data in plain.items() if name.startswith("orders-1")}
    alone = cut(one, 1)
    assert len(alone.carve(tmp_path / "image").groups) == len(one)
    assert len(alone.carve(tmp_path / "image", guess=True).groups) < len(one)
    image = cut({name: data for name, data in plain.items() if "-1/" in name}, 1)
    for guess in (False, True):
        found = image.carve(tmp_path / "image", guess=guess)
        assert not [link for group in found.groups for link in group.links if link.kind in GUESSES]


def test_an_index_joins_the_runs_of_a_segment(tmp_path: Path, twins: dict[str, bytes]) -> None:
    """Two runs of one segment, between which batches are lost, are joined by the entries of its carved index."""
    name = "orders-1/00000000000000000309"
    log, index = without_producers(twins[f"{name}.log"]), twins[f"{name}.index"]
    gap = bytes(2 * BLOCK)
    pieces = [log[4 * BLOCK :] + bytes(-len(log) % BLOCK), gap, log[: 2 * BLOCK], gap]
    image = CutImage(b"".join(pieces), dict.fromkeys((mark for *_, mark in batches_of(log)), "orders-1"))
    assert len(image.carve(tmp_path / "image").groups) == 2
    image.data += index + bytes(-len(index) % BLOCK)
    found = image.carve(tmp_path / "image")
    assert [[link.kind for link in group.links] for group in found.groups] == [["index"]]
    assert found.groups[0].missing > 0


def test_a_damaged_batch_joins_its_neighbours(tmp_path: Path, twins: dict[str, bytes]) -> None:
    """A batch with a wrong CRC whose size and offsets fit exactly between two runs; it is reported, and not written.

    Where a block ends in it, the second run can be an extent of a twin: that needs a common producer.
    """
    log = twins["orders-0/00000000000000000000.log"]
    plain = without_producers(log)
    inner, crossing = (
        next(batch for batch in batches_of(log)[1:] if (batch[0] // BLOCK == (batch[0] + batch[1]) // BLOCK) is within)
        for within in (True, False)
    )
    for data, (at, size, base, _), is_joined in ((plain, inner, True), (plain, crossing, False), (log, crossing, True)):
        damaged = bytearray(data)
        damaged[at + size - 1] ^= 1
        (tmp_path / "image").write_bytes(damaged)
        found = rows(tmp_path / "image")
        assert [row["evidence"] for row in found if row["kind"] == "link"] == ["damaged batch"] * is_joined
        assert [(row["position"], row["first_offset"]) for row in found if row["kind"] == "torn"] == [(at, base)]
        groups = [row["batches"] for row in found if row["kind"] == "group"]
        assert (len(groups), sum(groups)) == (2 - is_joined, len(batches_of(log)) - 1)


def test_copies_are_counted_and_written_once(tmp_path: Path, twins: dict[str, bytes]) -> None:
    """A second copy of an extent is a row, not a second group; two disks with parts of one partition complete each other."""
    log = twins["orders-2/00000000000000000000.log"]
    cut_at = batches_of(log)[8][0]
    (tmp_path / "one").write_bytes(log[: batches_of(log)[12][0]] + bytes(BLOCK))
    (tmp_path / "two").write_bytes(bytes(BLOCK) + log[cut_at:])
    (tmp_path / "three").write_bytes(log[cut_at : batches_of(log)[10][0]])
    found = rows(tmp_path / "one", tmp_path / "two", tmp_path / "three", "-o", tmp_path / "new")
    assert [(row["batches"], row["copies"], row["links"]) for row in found if row["kind"] == "group"] == [
        (len(batches_of(log)), 1, ["same batches"])
    ]
    assert [row["image"] for row in found if row["kind"] == "copy"] == [str(tmp_path / "three")]
    assert b"".join(path.read_bytes() for path in sorted((tmp_path / "new" / "group-001").iterdir())) == log


def test_groups_are_valid_and_byte_equal(tmp_path: Path, twins: dict[str, bytes]) -> None:
    """Each group is a partition that ``validate`` accepts. The evidence has each link. The image stays as it is."""
    image = cut(logs(twins), 5)
    (tmp_path / "image").write_bytes(image.data)
    done = carve(tmp_path / "image", "-o", tmp_path / "new")
    assert done.exit_code == (1 if "torn or damaged" in done.stdout else 0), done.output
    assert (tmp_path / "image").read_bytes() == image.data
    whole = b"".join(logs(twins).values())
    groups = sorted((tmp_path / "new").glob("group-*"))
    assert len(groups) >= 6
    for group in groups:
        for path in group.iterdir():
            data = path.read_bytes()
            assert data in whole
            assert batches_of(data)[0][2] == int(path.stem)
        assert invoke("validate", group).exit_code == 0
    evidence = [json.loads(line) for line in (tmp_path / "new" / "evidence.jsonl").read_text().splitlines()]
    assert {row["strength"] for row in evidence if row["kind"] == "link" and row["group"]} <= {"proof", "strong"}
    assert all(
        row["strength"] != "proof" or row["evidence"] == "torn batch" for row in evidence if row["kind"] == "link"
    )
    assert carve(tmp_path / "image", "-o", tmp_path / "new").exit_code == 2


def test_old_versions_are_found(tmp_path: Path) -> None:
    """v0 and v1 batches, too; a segment that begins with a compressed message set has the offset of its first message."""
    names = ("0.8.2.2-v0-gzip", "0.10.2.2-v1-gzip", "0.10.2.2-v1-none")
    data = {name: next((SEGMENTS / name).glob("**/*.log")).read_bytes() for name in names}
    blocks = [random.Random(name).randbytes(BLOCK) + one + bytes(-len(one) % BLOCK) for name, one in data.items()]
    (tmp_path / "image").write_bytes(b"".join(blocks))
    found = rows(tmp_path / "image", "-o", tmp_path / "new")
    assert sorted(row["versions"] for row in found if row["kind"] == "group") == [[0], [1], [1]]
    written = {path.read_bytes(): path.name for path in (tmp_path / "new").glob("group-*/*")}
    assert written == dict.fromkeys(data.values(), "00000000000000000000.log")


def test_random_bytes_have_no_batch(tmp_path: Path) -> None:
    """Noise, zeros, small numbers, headers with wrong CRCs and cut batches: nothing without a valid CRC is a batch."""
    batch = build_batch([PlainRecord(7, b"k", b"v" * 500, timestamp=1)])
    for seed in range(40):
        chance = random.Random(seed)
        pieces = []
        for _ in range(chance.randrange(1, 30)):
            wrong = bytearray(batch)
            wrong[chance.randrange(17, len(wrong))] ^= 1 << chance.randrange(8)
            small = struct.pack(">64I", *(chance.choice((0, 0, 1, 2, 9, 600)) for _ in range(64)))
            cuts = chance.randrange(1, len(batch))
            noise = chance.randbytes(chance.randrange(900))
            pieces.append(
                chance.choice((noise, bytes(chance.randrange(900)), small, bytes(wrong), batch[:cuts], batch[cuts:]))
            )
        # A piece that ends with the start of a batch can meet the rest of it.
        pieces = [piece + b"\xee" for piece in pieces]
        (tmp_path / "image").write_bytes(b"".join(pieces))
        assert not [row for row in rows(tmp_path / "image") if row["kind"] == "group"], seed


def test_batches_are_found_at_any_place(tmp_path: Path) -> None:
    """A batch that the window's end cuts at any byte, and batches larger than the window."""
    batch = build_batch([PlainRecord(7, b"k", b"v" * 500, timestamp=1)])
    large = build_batch([PlainRecord(8, b"k", random.Random(1).randbytes(3 << 20), timestamp=1)])
    window = 2 * 1024 * 1024
    for before in (
        0,
        1,
        window - 1,
        window - 16,
        window - 17,
        window - 60,
        window - 61,
        window - 62,
        window - len(batch),
    ):
        (tmp_path / "image").write_bytes(b"\xee" * before + batch + large)
        (group,) = (row for row in rows(tmp_path / "image") if row["kind"] == "group")
        assert (group["batches"], group["size"]) == (2, len(batch) + len(large)), before


@pytest.mark.parametrize("seed", range(3))
def test_the_test_of_many_positions_equals_that_of_one(seed: int) -> None:
    """``find_signature`` skips no position at which a batch can begin."""
    chance = random.Random(seed)
    for _ in range(20):
        data = bytearray(chance.choice((0, 0, 0, 1, 2, 49, 60, 200)) for _ in range(chance.randrange(400)))
        for at in range(len(data)):
            if framing.plausible(data, at, len(data), 1000) and not data[at] | data[at + 1]:
                assert framing.find_signature(data, at, len(data), 1000) == at
        found = framing.find_signature(data, 0, len(data), 1000)
        assert found == len(data) or framing.plausible(data, found, len(data), 1000)
        assert not [
            at for at in range(found) if framing.plausible(data, at, len(data), 1000) and not data[at] | data[at + 1]
        ]


@pytest.mark.skipif(not (shutil.which("mke2fs") and shutil.which("debugfs")), reason="e2fsprogs are not installed")
def test_deleted_files_of_ext4(tmp_path: Path, twins: dict[str, bytes]) -> None:
    """All batches of deleted files are found in a file system, and the names of the folders that are left."""
    for name, data in twins.items():
        path = tmp_path / "root" / "kafka-logs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    image = tmp_path / "image"
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-b", "4096", "-d", tmp_path / "root", image, "16M"], check=True)
    (tmp_path / "commands").write_text(
        "".join(f"rm kafka-logs/{name}\n" for name in twins if name.startswith("orders"))
    )
    subprocess.run(["debugfs", "-w", "-f", tmp_path / "commands", image], check=True, capture_output=True)
    found = rows(image)
    assert sum(row["batches"] for row in found if row["kind"] == "group") == sum(
        len(batches_of(data)) for data in logs(twins).values()
    )
    assert [row["links"] for row in found if row["kind"] == "group"] == [["sequence"]] * 6
    names = {row["name"] for row in found if row["kind"] == "name" and row["what"] == "folder"}
    assert names == {name.partition("/")[0] for name in twins}


def test_holes_and_bad_inputs(tmp_path: Path) -> None:
    """Holes are skipped, what cannot be read at any position is refused in one line."""
    with (tmp_path / "sparse").open("wb") as file:
        file.write(build_batch([PlainRecord(7, b"k", b"v", timestamp=1)]))
        file.truncate(1 << 40)
    done = carve(tmp_path / "sparse")
    assert done.exit_code == 0
    assert "1 batch in 1 group, in 1,099,511,627,776 bytes" in " ".join(done.stdout.split())
    for path in (tmp_path, "-", "s3://bucket/image", tmp_path / "none"):
        done = carve(path)
        assert (done.exit_code, done.stdout) == (2, "")


def test_a_read_error_is_named(tmp_path: Path, twins: dict[str, bytes]) -> None:
    """Whichever read of an image fails, the exit code is not 0, and what is found before it is kept."""
    folder = tmp_path / "disk"
    folder.mkdir()
    (folder / "image").write_bytes(twins["orders-0/00000000000000000000.log"][:20_000])
    with local_faults(folder) as counted:
        whole = rows(folder / "image")
    assert counted.calls > 5
    for number in range(counted.calls):
        with local_faults(folder, "EIO", range(number, 1000)):
            done = carve(folder / "image", "--format", "jsonl")
        assert done.exit_code in (1, 2), (number, done.output)
        found = [json.loads(line) for line in done.stdout.splitlines()]
        if found:
            assert found[-1]["read_errors"]
            assert found[-1]["batches"] <= whole[-1]["batches"]
        else:
            assert done.stderr.startswith("kseg: ")


def test_a_damaged_offset_makes_no_huge_group(tmp_path: Path) -> None:
    """No CRC covers an offset: one that no file can have beside its neighbours is a run of its own, and gaps are counted."""
    batches = [
        bytearray(build_batch([PlainRecord(n, None, b"v" * 50, 1_700_000_000_000)], base_offset=n)) for n in range(20)
    ]
    batches[9][2] ^= 2
    (tmp_path / "image").write_bytes(b"".join(batches))
    groups = carve(tmp_path / "image", "--format", "jsonl").stdout.splitlines()
    found = [(row["first_offset"], row["last_offset"]) for row in map(json.loads, groups) if row["kind"] == "group"]
    assert sorted(found) == [(0, 8), (10, 19), (9 + (2 << 40), 9 + (2 << 40))]
    del batches[9], batches[4]
    (tmp_path / "image").write_bytes(b"".join(batches))
    (group, _) = map(json.loads, carve(tmp_path / "image", "--format", "jsonl").stdout.splitlines())
    assert (group["first_offset"], group["last_offset"], group["missing_offsets"]) == (0, 19, 2)


_SETS = [(magic, codec) for magic in (0, 1) for codec in (None, "gzip")] + [(2, None)]


@pytest.mark.parametrize("gap", [0, 4])
@pytest.mark.parametrize(("magic", "codec"), _SETS)
def test_a_torn_batch_is_joined_before_any_batch(tmp_path: Path, magic: int, codec: str | None, gap: int) -> None:
    """Its CRC proves both parts: a gap of offsets, which the cleaner leaves, or a set without its first offset is no reason.

    Uncompressed v1 messages after the cut can be of a set, so no run begins where the batch ends.
    """
    dice = random.Random(5)
    records = [PlainRecord(5 + n, b"k", dice.randbytes(1200), timestamp=1) for n in range(10)]
    following = [PlainRecord(15 + gap + n, b"k", b"v", timestamp=1 if magic else -1) for n in range(3)]
    if magic == 2:
        after = build_batch(following)
    elif codec:
        after = build_wrapper(following, magic=magic, compression=codec)
    else:
        after = b"".join(build_message(one, magic=magic) for one in following)
    log = build_batch([PlainRecord(0, b"k", b"v" * 100, timestamp=1)]) + build_batch(records) + after
    for edge in (BLOCK, 2 * BLOCK):
        data = log + bytes(-len(log) % BLOCK)
        (tmp_path / "image").write_bytes(data[:edge] + dice.randbytes(2 * BLOCK) + data[edge:])
        found = rows(tmp_path / "image")
        is_joined = (magic, codec) != (1, None)
        assert (found[-1]["torn_joined"], found[-1]["torn_left"]) == ((1, 0) if is_joined else (0, 2)), edge
        if is_joined:
            assert sum(row["size"] for row in found if row["kind"] == "group") == len(log)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("large", ["key", "value"])
@pytest.mark.parametrize("is_torn", [True, False], ids=["torn", "damaged"])
def test_a_torn_message_is_reported(tmp_path: Path, magic: int, large: str, *, is_torn: bool) -> None:
    """Also if the length of its value is in the other extent, after a long key, or is damaged."""
    dice = random.Random(3)
    content = {"key": b"k", "value": b"v", large: dice.randbytes(6000)}
    small, torn = (
        build_message(PlainRecord(n, key, value, timestamp=1 if magic else -1), magic=magic)
        for n, (key, value) in enumerate(((b"k", b"a" * 50), (content["key"], content["value"])))
    )
    last = build_wrapper([PlainRecord(2, b"k", b"z", timestamp=1 if magic else -1)], magic=magic, compression="gzip")
    data = bytearray(small + torn + last)
    data[len(small) + len(torn) - len(content["value"]) - 1] ^= 0 if is_torn else 1
    data += bytes(-len(data) % BLOCK)
    (tmp_path / "image").write_bytes(data[:BLOCK] + dice.randbytes(2 * BLOCK * is_torn) + data[BLOCK:])
    done = carve("--format", "jsonl", tmp_path / "image")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    places = [(row["position"], row["size"]) for row in found if row["kind"] == "torn"]
    assert (done.exit_code, places) == (1, [(len(small), len(torn))])
