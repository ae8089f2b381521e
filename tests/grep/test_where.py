"""``--where`` and ``--header`` of ``kseg grep`` and ``kseg dump``, compared with rows that plain Python has filtered."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from kseg.format.segment.records_chunk import Header
from kseg.format.writer.records_builder import PlainRecord, build_batch, build_message
from tests.support import searched_logs
from tests.support.cli import DAMAGED, invoke
from tests.support.cli import kseg_here as kseg
from tests.support.conditions import Place, random_condition
from tests.support.fuzzing import cases

pytest.importorskip("duckdb", reason="duckdb is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

SEGMENT = f"{0:020d}.log"


def written(folder: Path, random: Random) -> list[Place]:
    """Write a topic of three partitions, some with two segments, and return its records."""
    places = []
    for partition in range(3):
        offset, parts = 0, [bytearray(), bytearray()]
        starts = [0, 0]
        for n in range(random.choice((2, 6))):
            kind = random.choice(("v2", "v2", "v2", "v1", "v0"))
            records = [searched_logs.random_record(random, offset + i, kind) for i in range(random.choice((1, 8)))]
            records = records if kind == "v2" else records[:1]
            at = int(n >= 3)
            starts[at] = starts[at] if parts[at] else offset
            codec = random.choice(("none", "gzip", "snappy", "lz4", "zstd"))
            parts[at] += (
                build_batch(records, base_offset=offset, compression=codec)
                if kind == "v2"
                else build_message(records[0], magic=int(kind[1]))
            )
            places += [Place("t", partition, record) for record in records]
            offset += len(records)
        home = folder / f"t-{partition}"
        home.mkdir(parents=True)
        for start, data in zip(starts, parts, strict=True):
            if data:
                (home / f"{start:020d}.log").write_bytes(data)
    return places


def found(command: str, condition: str, folder: Path, *more: str) -> list[tuple[int, int]]:
    """Return partition and offset of the records that a command shows."""
    arguments = [command, "--where", condition, str(folder), "--format", "jsonl", "--jobs", "1", *more]
    done = invoke(*[one for one in arguments if command == "grep" or one not in ("--jobs", "1")])
    assert done.exit_code in (0, 1), done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return sorted((int(Path(row["file"]).parent.name.rpartition("-")[2]), row["offset"]) for row in rows)


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("part", range(4))
def test_a_condition_finds_what_plain_python_finds(tmp_path: Path, part: int) -> None:
    """For all kinds of fields, of JSON and other values, with the rules of SQL for null."""
    total = 0
    for seed in range(part, cases(12), 4):
        random = Random(seed)
        folder = tmp_path / str(seed)
        places = written(folder, random)
        for _ in range(8):
            condition = random_condition(random)
            wanted = sorted((place.partition, place.record.offset) for place in places if condition.answer(place))
            for command in ("grep", "dump"):
                assert found(command, condition.sql, folder) == wanted, (seed, command, condition.sql)
            total += len(wanted)
    assert total


def one(folder: Path, *values: bytes | None, key: bytes | None = b"k", headers: tuple[Header, ...] = ()) -> Path:
    """Write a partition with one record per value."""
    home = folder / "t-0"
    home.mkdir(parents=True)
    records = [PlainRecord(n, key, value, 1_700_000_000_000 + n, headers) for n, value in enumerate(values)]
    (home / SEGMENT).write_bytes(build_batch(records))
    return folder


@pytest.mark.parametrize(
    ("condition", "offsets"),
    [
        ("value.a > 100", [1, 4, 6]),  # a text is not a number, and NaN is none
        ("value.a > '100'", [1, 2, 4, 6, 7]),
        ("value.a = 9007199254740993", [6]),  # not 9007199254740992
        ("value.a = 9007199254740992", []),
        ("value.a is null", [0, 3, 5, 8, 9]),
        ("value['a.b'][0]['c\"d'] = 'x'", [8]),
        ("value.a + 1 = 102", [1]),
        ("round(value.a) = 101", [1]),
        ("coalesce(value.a, 200) = 200", [0, 2, 3, 5, 7, 8, 9]),
        ("try_cast(value.a as int) = 150", [2]),
        ("value is null", [9]),
        ("value is not null and not (value.a > 0)", []),
    ],
)
def test_types_of_json(tmp_path: Path, condition: str, offsets: list[int]) -> None:
    values = [
        b"{}", b'{"a":101}', b'{"a":"150"}', b'{"a":null}', b'{"a":1e400}', b"not JSON", b'{"a":9007199254740993}',
        b'{"a":NaN}', b'{"a.b":[{"c\\"d":"x"}]}', None,
    ]  # fmt: skip
    folder = one(tmp_path, *values)
    assert [offset for _, offset in found("grep", condition, folder)] == offsets


def test_json_of_any_depth_is_read(tmp_path: Path) -> None:
    deep = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
    folder = one(tmp_path, deep, b'{"b":1}', b"[" * 100_000)
    assert found("grep", "value.b = 1 or value.a.a.a is not null", folder) == [(0, 0), (0, 1)]


def test_the_last_header_of_a_name_counts_and_each_one_with_the_option(tmp_path: Path) -> None:
    """Kafka's ``Headers.lastHeader`` returns the last one, too."""
    folder = one(tmp_path, b"x", headers=(Header("source", b"app"), Header("source", b"web")))
    assert found("grep", "headers['source'] = 'web'", folder) == [(0, 0)]
    assert found("grep", "headers.source = 'app'", folder) == []
    for value, code in (("app", 0), ("web", 0), ("we", 1)):
        assert kseg("grep", "--header", f"source={value}", folder).returncode == code
    assert (
        kseg("grep", "--header", "source=web", "--header", "source=app", "--where", "key = 'k'", folder).returncode == 0
    )
    assert kseg("grep", "--header", "source=web", "--header", "other=app", folder).returncode == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("valu.total > 100", "unknown field 'valu': did you mean value?"),
        ("offset = 1; drop table records", 'syntax error at or near ";"'),
        ("offset > 3 and", "the condition is incomplete"),
        ("true) union select 1 from (select 1", "got a statement"),
        ("exists(select 1 from read_text('/etc/passwd'))", "is not a function of one record"),
        ("offset in (select 1)", "a subquery is not part of a condition"),
        ("row_number() over () = 1", "a window function is not part of a condition"),
        ("count(*) > 1", "is not a function of one record"),
        ("random() < 0.5", "random() can return another value at each call"),
        ("offset.x = 1", "offset has no fields"),
        ("value->>'a' = 'x'", "write value.name"),
        ("offset = 'abc'", "Could not convert string 'abc'"),
        ("value.a::int = 1", "try_cast"),
        ("headers['a']['b'] = 'x'", "expected one name"),
        (" ", "the condition is empty"),
        ("nothing(key) = 1", "nothing does not exist"),
    ],
)
def test_a_wrong_condition_is_one_line(tmp_path: Path, condition: str, message: str) -> None:
    folder = one(tmp_path, b'{"a":"text"}')
    for command in ("grep", "dump"):
        done = kseg(command, "--where", condition, folder)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in done.stderr
        assert done.stderr.startswith("kseg: --where: ")
        assert done.stderr.count("\n") == 1


def test_a_condition_combines_with_patterns_limits_and_decoded_values(tmp_path: Path) -> None:
    folder = one(tmp_path, *(json.dumps({"n": n, "word": "even" if n % 2 == 0 else "odd"}).encode() for n in range(20)))
    more = kseg("grep", "-e", "even", "--where", "value.n between 4 and 9", "-c", folder).stdout
    assert more == f"{folder}/t-0/{SEGMENT}:3\n"
    assert found("grep", "value.n > 15", folder, "-v", "-e", "even") == [(0, 17), (0, 19)]
    assert found("grep", "value.n > 3", folder, "--limit", "2") == [(0, 4), (0, 5)]
    assert found("dump", "value.n > 3", folder, "--limit", "2") == [(0, 4), (0, 5)]
    assert found("dump", "value.n > 3", folder, "--last", "2") == [(0, 18), (0, 19)]
    assert found("grep", "value.n = 7 and value_kind = 'json'", folder, "--value-as", "json") == [(0, 7)]
    assert kseg("dump", "--shallow", "--where", "value.n > 3", folder).returncode == 2


def test_half_of_a_surrogate_pair_ends_no_search(tmp_path: Path) -> None:
    """JavaScript writes such texts. Its record is found by other fields, and the other records are found."""
    folder = one(tmp_path, b'{"a":1}', b'{"a":2,"note":"\\ud83d","\\ude00":3}', b'{"a":3}')
    for options in ((), ("--value-as", "json")):
        assert found("grep", "value.a = 3", folder, *options) == [(0, 2)]
    assert found("grep", "value.a = 2", folder, "--value-as", "json") == [(0, 1)]
    rows = kseg(
        "sql", "--value-as", "json", "--format", "jsonl", "select value_decoded ->> 'note' as note from records", folder
    )
    assert [json.loads(row)["note"] for row in rows.stdout.splitlines()] == [None, "\ufffd", None]


@pytest.mark.slow
def test_only_the_partitions_of_a_condition_are_read(tmp_path: Path) -> None:
    """An unreadable file of another partition is not opened."""
    for number in range(300):
        home = tmp_path / f"t-{number}"
        home.mkdir()
        data = build_batch([PlainRecord(n, b"k%d" % n, b"value", 1_700_000_000_000 + n) for n in range(3)])
        (home / SEGMENT).write_bytes(data if number % 2 else b"not a segment")
    assert found("grep", "partition in (7, 9) and key = 'k2'", tmp_path) == [(7, 2), (9, 2)]
    for condition, lines, warned in (("partition in (7, 9)", 2, False), ("partition % 2 = 1", 150, True)):
        done = kseg("grep", "-c", "--where", f"{condition} and key = 'k2'", tmp_path)
        assert (len(done.stdout.splitlines()), bool(done.stderr)) == (lines, warned)


def test_a_record_with_a_wrong_crc_is_found_and_marked() -> None:
    (row,) = map(json.loads, kseg("grep", "--format", "jsonl", "--where", "key = 'alone'", DAMAGED).stdout.splitlines())
    assert (row["crc_valid"], row["matched"]) == (False, [])
