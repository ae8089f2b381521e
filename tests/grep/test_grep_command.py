"""``kseg grep`` as users run it: arguments, exit codes, formats, and partitions of keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kseg.commands.grep.matches import parse_json_path
from kseg.commands.grep.partitioners import PARTITIONERS
from kseg.errors import UsageError
from kseg.format.record.murmur import murmur2
from kseg.format.writer.records_builder import PlainRecord, build_batch
from tests.support.cli import DAMAGED
from tests.support.cli import kseg_here as kseg

SEGMENT = f"{0:020d}.log"


def partition_of_key(key: bytes, total: int, partitioner: str = "murmur2") -> int:
    number = PARTITIONERS[partitioner](key)
    assert number is not None
    return number % total


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A segment with the keys k0 to k13 twice."""
    path = tmp_path / SEGMENT
    path.write_bytes(build_batch([PlainRecord(n, b"k%d" % (n % 14), b"value %d" % (n % 14)) for n in range(28)]))
    return path


def partitions(
    folder: Path, topic: str, numbers: tuple[int, ...], *, keys: int = 40, total: int, partitioner: str = "murmur2"
) -> Path:
    """Write a topic of ``total`` partitions, of which those in ``numbers`` are in the folder."""
    for number in numbers:
        records = [b"k%d" % n for n in range(keys) if partition_of_key(b"k%d" % n, total, partitioner) == number]
        path = folder / f"{topic}-{number}" / SEGMENT
        path.parent.mkdir(parents=True)
        path.write_bytes(build_batch([PlainRecord(n, key, b"value") for n, key in enumerate(records)]))
    return folder


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("21", -973932308),
        ("foobar", -790332482),
        ("a-little-bit-long-string", -985981536),
        ("a-little-bit-longer-string", -1486304829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        ("abc", 479470107),
    ],
)
def test_keys_are_hashed_as_kafka_does(text: str, hashed: int) -> None:
    """These are the values in Kafka's own ``UtilsTest.testMurmur2``."""
    assert murmur2(text.encode()) == hashed % (1 << 32)


@pytest.mark.slow
def test_the_exit_code_is_that_of_grep(plain: Path) -> None:
    """A script asks with it whether there is a match; damage is reported, but it is not an error of the search."""
    assert kseg("grep", "k7", plain).returncode == 0
    assert kseg("grep", "no such text", plain).returncode == 1
    assert kseg("grep", "k7", plain, "/no/such/file").returncode == 2
    assert kseg("grep", "-q", "k7", plain, "/no/such/file").returncode == 0
    assert kseg("grep", "(", plain).returncode == 2
    damaged = kseg("grep", ".", DAMAGED)
    assert damaged.returncode == 0
    assert "crc-mismatch" in damaged.stderr


def test_a_record_with_a_wrong_crc_is_marked() -> None:
    """The match may be a result of the damage."""
    lines = kseg("grep", "alone", DAMAGED).stdout.splitlines()
    assert [line.endswith(" (wrong CRC)") for line in lines] == [True]
    (row,) = map(json.loads, kseg("grep", "--format", "jsonl", "alone", DAMAGED).stdout.splitlines())
    assert (row["crc_valid"], row["matched"]) == (False, ["key"])


def test_the_text_has_a_line_per_record(plain: Path) -> None:
    """Scripts cut file and offset from it; neighbours have another mark."""
    assert kseg("grep", "--in", "key", "k7", plain).stdout == f"{plain}:7:k7:value 7\n{plain}:21:k7:value 7\n"
    lines = kseg("grep", "-C1", "-m1", "--in", "key", "k7", plain).stdout.splitlines()
    assert [line.removeprefix(str(plain)) for line in lines] == ["-6-k6:value 6", ":7:k7:value 7", "-8-k8:value 8"]


@pytest.mark.slow
def test_the_context_of_the_last_match_is_whole(plain: Path) -> None:
    """As of ripgrep and GNU grep: also if the next records match, which are then context."""
    for options, shown in (
        (("-m1", "-A2", "value"), [":0:", "-1-", "-2-"]),
        (("-m2", "-A1", "value (1|2|3)$"), [":1:", ":2:", "-3-"]),
        (("-m1", "-C1", "value (1|2)$"), ["-0-", ":1:", "-2-"]),
        (("-m1", "-B1", "value (1|2)$"), ["-0-", ":1:"]),
    ):
        lines = kseg("grep", *options, plain).stdout.splitlines()
        assert [line.removeprefix(str(plain))[:3] for line in lines] == shown
    rows = map(json.loads, kseg("grep", "-m1", "-A1", "--format", "jsonl", "value", plain).stdout.splitlines())
    assert [row["matched"] for row in rows] == [["value"], None]


@pytest.mark.slow
def test_a_line_of_dashes_is_where_records_are_left_out(tmp_path: Path) -> None:
    """Not where compaction left a gap in the offsets. The groups are in several batches."""
    path = tmp_path / SEGMENT
    kept = (0, 3, 7, 8, 20, 21, 30, 44, 45)
    batches = [kept[n : n + 2] for n in range(0, len(kept), 2)]
    path.write_bytes(b"".join(build_batch([PlainRecord(n, b"k", b"value %d" % n) for n in some]) for some in batches))

    def offsets(*arguments: object) -> list[str]:
        lines = kseg("grep", *arguments, path).stdout.splitlines()
        return [
            line if line == "--" else line.removeprefix(str(path))[1:].split("-")[0].split(":")[0] for line in lines
        ]

    assert offsets("-C1", "value (3|30)$") == ["0", "3", "7", "--", "21", "30", "44"]
    assert offsets("-C1", "value (3|21)$") == ["0", "3", "7", "--", "20", "21", "30"]
    assert offsets("-C1", "value (3|20)$") == ["0", "3", "7", "8", "20", "21"]
    assert offsets("-A1", "value (0|8|45)$") == ["0", "3", "--", "8", "20", "--", "45"]
    assert offsets("value (0|8|45)$") == ["0", "8", "45"]


@pytest.mark.parametrize(("key", "hashed"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)])
def test_fnv1a_is_taken_absolute(key: bytes, hashed: int) -> None:
    """The test vectors of FNV, of which Sarama takes the remainder as an int32 and then the absolute value."""
    assert PARTITIONERS["fnv1a"](key) == (1 << 32) - hashed


@pytest.mark.slow
@pytest.mark.parametrize("partitioner", PARTITIONERS)
def test_all_partitions_are_read_for_a_key(tmp_path: Path, partitioner: str) -> None:
    """Nothing in a log says which partitioner its producer had, nor how many partitions there were at that time."""
    folder = partitions(tmp_path, "orders", (0, 1, 2, 3), total=4, partitioner=partitioner)
    (folder / "orders-4").mkdir()  # added later
    (folder / "orders-4" / SEGMENT).write_bytes(build_batch([PlainRecord(0, b"other", b"value")]))
    keys = [f"k{n}" for n in range(40)]
    found = kseg("grep", *(text for key in keys for text in ("--key", key)), "--template", "%k", folder)
    assert (found.returncode, sorted(found.stdout.split()), found.stderr) == (0, sorted(keys), "")
    earlier = [folder / f"orders-{number}" for number in range(4)]
    for key in keys[:3]:
        chosen = kseg("grep", "--key", key, "--partitioner", partitioner, "--partitions", 4, *earlier)
        assert (chosen.returncode, chosen.stdout.endswith(f":{key}:value\n")) == (0, True)


def test_a_partitioner_limits_the_search_to_its_partition(tmp_path: Path) -> None:
    """One of the partitions is read, and a message says so."""
    folder = partitions(tmp_path, "orders", (0, 1, 2, 3), total=4)
    (tmp_path / "orders-2" / SEGMENT).write_bytes(b"not a segment at all")
    number = partition_of_key(b"k1", 4)
    assert number != 2
    found = kseg("grep", "--key", "k1", "--partitioner", "murmur2", folder)
    assert found.stdout.startswith(str(folder / f"orders-{number}" / SEGMENT))
    assert f"orders: reads only partition {number} of 4 (the number of folders here" in found.stderr
    assert found.returncode == 0
    assert kseg("grep", "--key", "k1", folder).returncode == 2


def test_several_keys_are_searched_at_once(tmp_path: Path) -> None:
    """Each is read from its partition. A null key, and for librdkafka an empty one, can be in all partitions."""
    folder = partitions(tmp_path, "orders", (0, 1, 2, 3), total=4)
    keys = ["k1", next(f"k{n}" for n in range(40) if partition_of_key(b"k%d" % n, 4) != partition_of_key(b"k1", 4))]
    options = ["--partitioner", "murmur2", *(text for key in keys for text in ("--key", key))]
    found = kseg("grep", *options, "--key-hex", b"k1".hex(), "--template", "%k", folder)
    assert sorted(found.stdout.splitlines()) == sorted(keys)
    numbers = sorted(partition_of_key(key.encode(), 4) for key in keys)
    assert f"reads only partitions {numbers[0]}, {numbers[1]} of 4 " in found.stderr
    null = kseg("grep", *options, "--null-key", folder)
    assert (null.returncode, "a null key can be in each partition" in null.stderr) == (2, True)
    assert "reads only" not in kseg("grep", "--key", "", "--partitioner", "crc32", folder).stderr


def test_a_search_without_a_match_names_what_it_has_not_read(tmp_path: Path) -> None:
    """Otherwise "no match" is taken for "there is none": the key can be in the other partitions, or not here at all."""
    folder = partitions(tmp_path, "orders", (0, 1, 2, 3), total=4)
    read = partition_of_key(b"no such key", 4)
    missed = kseg("grep", "--key", "no such key", "--partitioner", "murmur2", folder)
    others = ", ".join(f"orders-{number}" for number in range(4) if number != read)
    assert missed.returncode == 1
    assert f"not read: {others}. Omit --partitioner" in missed.stderr
    quiet = kseg("grep", "-q", "--key", "no such key", "--partitioner", "murmur2", folder).stderr
    assert missed.stderr.replace("kseg: no match in 1 segment\n", "") == quiet
    assert kseg("grep", "--key", "no such key", folder).stderr == "kseg: no match in 4 segments of 4 partitions\n"


@pytest.mark.slow
def test_a_partition_that_is_not_here_is_named(tmp_path: Path) -> None:
    """A broker has some of the partitions: "no match" would say nothing of the key, so the exit code is not 1."""
    folder = partitions(tmp_path, "orders", (1, 4, 5), total=6)
    chosen = ("--partitioner", "murmur2", "--partitions", 6)
    key = next(f"k{n}" for n in range(40) if partition_of_key(b"k%d" % n, 6) == 4)
    for options in ((), chosen, chosen[:2]):
        found = kseg("grep", "--key", key, *options, folder)
        assert found.stdout == f"{folder / 'orders-4' / SEGMENT}:{found.stdout.split(':')[1]}:{key}:value\n"
    elsewhere = next(f"k{n}" for n in range(40) if (partition_of_key(b"k%d" % n, 6)) == 2)
    for path in (folder, folder / "orders-4"):
        missed = kseg("grep", "--key", elsewhere, *chosen, path)
        assert (missed.returncode, "not in the given paths: orders-2" in missed.stderr) == (2, True)
    few = kseg("grep", "--key", elsewhere, *chosen[:2], "--partitions", 4, folder)
    assert (few.returncode, "--partitions 4: orders has a partition 5" in few.stderr) == (2, True)


def test_options_for_partitions_need_each_other(tmp_path: Path) -> None:
    """An option without effect would be taken for one with it."""
    folder = partitions(tmp_path, "orders", (0, 1), total=2)
    for options, words in (
        (("--key", "k1", "--partitions", 2), "--partitions needs --partitioner"),
        (("--partitioner", "crc32", "value"), "--partitioner needs --key"),
    ):
        refused = kseg("grep", *options, folder)
        assert (refused.returncode, words in refused.stderr) == (2, True)


@pytest.mark.slow
def test_keys_in_binary_and_null_keys(tmp_path: Path) -> None:
    """Keys of Kafka's own serializers can be given as numbers."""
    path = tmp_path / SEGMENT
    keys = [(17).to_bytes(8, "big"), (-2).to_bytes(4, "big", signed=True), b"\x00\xff", None, b""]
    path.write_bytes(build_batch([PlainRecord(n, key, b"value" if n else None) for n, key in enumerate(keys)]))
    options = [("--key-int64", 17), ("--key-int32", -2), ("--key-hex", "0x00ff"), ("--null-key",), ("--key", "")]
    for offset, option in enumerate(options):
        rows = [json.loads(line) for line in kseg("grep", *option, "--format", "jsonl", path).stdout.splitlines()]
        assert [row["offset"] for row in rows] == [offset], option
    rows = [json.loads(line) for line in kseg("grep", "--null-value", "--format", "jsonl", path).stdout.splitlines()]
    assert [row["offset"] for row in rows] == [0]


@pytest.mark.slow
def test_values_at_a_json_path(tmp_path: Path) -> None:
    """A path selects the texts that are searched; alone, it finds the records that have it."""
    path = tmp_path / SEGMENT
    values = [
        b'{"order":{"id":17}}',
        b'{"order":{"id":"17"}}',
        b'{"order":{"no":1}}',
        b"no json",
        b'{"order":{"\\u0069d":18}}',
    ]
    path.write_bytes(build_batch([PlainRecord(n, None, value) for n, value in enumerate(values)]))

    def offsets(*arguments: object) -> list[int]:
        found = kseg("grep", *arguments, "--format", "jsonl", path)
        assert found.returncode in (0, 1), found.stderr
        return [json.loads(line)["offset"] for line in found.stdout.splitlines()]

    assert offsets("--json-path", "$.order.id") == [0, 1, 4]
    assert offsets("--json-path", "$.order.id=17") == [0, 1]
    assert offsets("--json-path", "$.order.id", "-e", "8$") == [4]
    assert offsets("-v", "--json-path", "$..id") == [2, 3]
    only = kseg("grep", "--only-matching", "--json-path", "$.order.id", path).stdout.splitlines()
    assert [line.rpartition(":")[2] for line in only] == ["17", "17", "18"]


@pytest.mark.slow
def test_several_json_paths_must_all_be_there(tmp_path: Path) -> None:
    """A second path does not replace the first. A pattern is searched in the values of all of them."""
    path = tmp_path / SEGMENT
    values = [b'{"a":1,"b":2,"c":"x"}', b'{"a":1,"b":3}', b'{"b":2,"c":"1"}', b'{"a":1,"b":"2","c":1}']
    path.write_bytes(build_batch([PlainRecord(n, b'{"k":%d}' % n, value) for n, value in enumerate(values)]))

    def offsets(*arguments: object) -> list[int]:
        run = kseg("grep", *arguments, "--template", "%o", path)
        count = kseg("grep", "-c", *arguments, path).stdout.rpartition(":")[2].strip()
        found = list(map(int, run.stdout.split()))
        assert len(found) == int(count or 0)
        return found

    assert offsets("--json-path", "$.a=1", "--json-path", "$.b=2") == [0, 3]
    assert offsets("--json-path", "$.b=2", "--json-path", "$.a=1") == [0, 3]
    assert offsets("--json-path", "$.a", "--json-path", "$.c", "-e", "x") == [0]
    assert offsets("-v", "--json-path", "$.a=1", "--json-path", "$.b=2") == [1, 2]
    assert offsets("--in", "key,value", "--json-path", "$.a=1", "--json-path", "$.k=1") == [1]
    assert offsets("--json-path", "$.a=1", "--json-path", "$.b=2", "--json-path", "$.c=1") == [3]


def test_json_that_cannot_be_read_is_counted(tmp_path: Path) -> None:
    """A search that misses valid JSON without a word would be taken for "there is none"."""
    path = tmp_path / SEGMENT
    deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    values = [b'{"a":1}', deep, b'{"a":%s}' % (b"9" * 5000), b'{"a":', b'{"a":2}']
    path.write_bytes(build_batch([PlainRecord(n, deep, value) for n, value in enumerate(values)]))
    found = kseg("grep", "--json-path", "$.a", "--template", "%o", path)
    assert found.stdout == "0\n4\n"
    assert "cannot read the JSON of 2 records, the first at offset 1" in found.stderr
    assert len(found.stderr.splitlines()) == 1
    both = kseg("grep", "-c", "--in", "key,value", "--json-path", "$.a", path)
    assert (both.stdout, "of 5 records, the first at offset 0" in both.stderr) == (f"{path}:2\n", True)


def test_objects_are_compared_as_json(tmp_path: Path) -> None:
    """Spaces and the order of members are no difference; a list with the object is another value."""
    path = tmp_path / SEGMENT
    values = [b'{"b":{"c":1,"d":[2]}}', b'{"b": {"d": [2], "c": 1}}', b'{"b":[{"c":1,"d":[2]}]}']
    path.write_bytes(build_batch([PlainRecord(n, None, value) for n, value in enumerate(values)]))
    for wanted, offsets in (('$.b={"c":1,"d":[2]}', "0\n1\n"), ('$.b[*]={"d":[2], "c":1}', "2\n")):
        assert kseg("grep", "--json-path", wanted, "--template", "%o", path).stdout == offsets


def test_decoded_values_are_searched(tmp_path: Path) -> None:
    """With a deserializer the text of a number is found, not its bytes; what cannot be decoded is searched as it is."""
    path = tmp_path / SEGMENT
    values = [(42).to_bytes(4, "big"), (7).to_bytes(4, "big"), b"42 as text"]
    path.write_bytes(build_batch([PlainRecord(n, None, value) for n, value in enumerate(values)]))
    found = kseg("grep", "--value-as", "int32", "^42", path)
    assert found.stdout == f"{path}:0:null:42\n{path}:2:null:42 as text\n"
    rows = map(json.loads, kseg("grep", "--value-as", "int32", "--format", "jsonl", "^42$", path).stdout.splitlines())
    assert [(row["offset"], row["value_decoded"], row["matched"]) for row in rows] == [(0, 42, ["value"])]
    assert kseg("grep", "--value-as", "int32", "--json-path", "$=7", path).stdout == f"{path}:1:null:7\n"


@pytest.mark.parametrize("text", ["order", "$order", "$.", "$[x]", "$.a b", "$['a"])
def test_a_path_that_is_not_one_is_refused(text: str) -> None:
    """The message has the part that cannot be read."""
    with pytest.raises(UsageError, match="--json-path"):
        parse_json_path(text)


@pytest.mark.slow
def test_counts_files_and_matching_texts(plain: Path) -> None:
    """The short forms of the output are those of grep."""
    assert kseg("grep", "-c", "k7", plain).stdout == f"{plain}:2\n"
    assert kseg("grep", "-l", "k7", plain).stdout == f"{plain}\n"
    lines = kseg("grep", "--only-matching", "--in", "value", r"\d+$", "--offsets", "3:5", plain).stdout.splitlines()
    assert lines == [f"{plain}:3:value:3", f"{plain}:4:value:4"]
    for option in ("-c", "-l", "--only-matching"):
        refused = kseg("grep", option, "--format", "csv", "k7", plain)
        assert (refused.returncode, refused.stdout) == (2, "")


def test_options_that_need_a_pattern_say_so(plain: Path) -> None:
    """A key alone has nothing to invert."""
    for option in (("-v",), ("-x",), ("--only-matching",), ("--in", "key")):
        refused = kseg("grep", *option, "--key", "k7", plain)
        assert refused.returncode == 2
        assert "needs a pattern" in refused.stderr


def test_other_formats_have_the_columns_of_dump_and_the_matching_fields(plain: Path) -> None:
    """Rows of both commands can be read by the same program."""
    (dumped, *_) = map(
        json.loads, kseg("dump", "--deep", "--format", "jsonl", "--key", "k7", plain).stdout.splitlines()
    )
    (row, *_) = map(json.loads, kseg("grep", "--format", "jsonl", "--in", "key", "k7", plain).stdout.splitlines())
    assert row == {**dumped, "crc_valid": True, "matched": ["key"]}
    header, line, *_ = kseg("grep", "--format", "csv", "k7", plain).stdout.splitlines()
    assert header.endswith(",crc_valid,matched")
    assert line.split(",")[3] == "7"
    assert kseg("grep", "--template", "%o=%k", "k7", plain).stdout == "7=k7\n21=k7\n"


def test_a_neighbour_has_no_matching_fields(plain: Path) -> None:
    """In JSON Lines it differs from a match by that."""
    rows = [
        json.loads(line) for line in kseg("grep", "-B1", "-m1", "--format", "jsonl", "k7", plain).stdout.splitlines()
    ]
    assert [(row["offset"], row["matched"]) for row in rows] == [(6, None), (7, ["key"])]
