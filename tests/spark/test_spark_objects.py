"""``--spark`` on objects of a bucket: each command gives the answer of one process, and of the same folder on disk."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from tests.support.cli import SEGMENTS

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("moto", reason="moto is not installed")

from pyspark.sql import SparkSession

from kseg.errors import UsageError
from kseg.spark.options import parse
from kseg.spark.streaming import KsegStreamReader
from tests.support.s3_server import S3Server, s3_server
from tests.support.spark_jobs import FINDINGS, on_spark, run
from tests.support.tiered_objects import OBJECTS, key_file, other_key_file

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> Iterator[S3Server]:
    """The JVM may have been started without the server's address: the Python workers get it with each job."""
    with s3_server() as server:
        names = {name: value for name, value in os.environ.items() if name.startswith("AWS_")}
        spark.sparkContext.environment.update(names)
        yield server
        for name in names:
            del spark.sparkContext.environment[name]


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions with a damaged batch, with damaged side files only, and without damage."""
    folder = tmp_path_factory.mktemp("objects") / "logs"
    for name in ("crc-mismatch", "index-mismatch", "snapshot-crc", "offset-gap"):
        shutil.copytree(FINDINGS / name, folder / f"{name}-0")
    shutil.copytree(SEGMENTS / "4.3.0-v2-none-segments", folder / "orders-0")
    return folder


#: A command with its options; {} is the folder or its URL.
COMMANDS = (
    ("validate", "--format", "jsonl", "{}"),
    ("validate", "--format", "jsonl", "--shallow", "{}/index-mismatch-0"),
    ("validate", "--format", "jsonl", "{}/missing-0/00000000000000000000.log"),
    ("sql", "--format", "csv", 'select count(*) as n, max("offset") as high from records', "{}"),
    ("sql", "--format", "csv", "select file, rule, position from findings order by file, rule", "{}/index-mismatch-0"),
    ("sql", "--format", "csv", "select file, records, verdict from segments order by file", "{}"),
)


def answer(place: str, call: Callable[..., Result], command: Iterable[str], *more: object) -> tuple[int, str, str]:
    """Return the exit code, output and messages of a command; the place is left out."""
    result = call(*(part.replace("{}", place) for part in command), *more)
    output, lines = (
        text.replace(place, "LOGS").replace(
            "FileNotFoundError", "No such file or directory"
        )  # of fsspec, without a text
        for text in (result.stdout, result.stderr)
    )
    return result.exit_code, output, lines


def test_objects_give_the_answers_of_files(server: S3Server, logs: Path) -> None:
    """Findings of segments and side files, rows and exit codes: Spark on objects, one process on objects, and files."""
    url = server.put_folder(logs, "logs")
    answers = [answer(str(logs), run, command) for command in COMMANDS]
    assert {code for code, _, _ in answers} == {0, 1, 2}
    assert "index-mismatch" in answers[0][1]
    assert "snapshot-crc" in answers[0][1]
    for call in (run, on_spark):
        assert [answer(url, call, command) for command in COMMANDS] == answers


def test_segments_converted_from_objects_are_those_of_files(server: S3Server, logs: Path, tmp_path: Path) -> None:
    """``convert`` writes the same of a damaged and a valid segment, wherever it reads and runs."""
    url = server.put_folder(logs, "sources")
    for part in ("crc-mismatch-0", "orders-0"):
        made = []
        for name, place, call in (("disk", str(logs), run), ("objects", url, run), ("spark", url, on_spark)):
            target = tmp_path / name / part / "00000000000000000000.log"
            target.parent.mkdir(parents=True)
            source = f"{place}/{part}/{target.name}"
            code, _, lines = answer(source, call, ("convert", "any-to-v2", "--skip-damaged", "{}"), target)
            made.append((code, lines, target.read_bytes()))
        assert made[1:] == [made[0]] * 2


def test_exported_rows_of_objects_are_those_of_files(server: S3Server, logs: Path, tmp_path: Path) -> None:
    """``dump -o`` on Spark writes the lines of one process, of a damaged and a valid partition on disk and in a bucket."""
    url = server.put_folder(logs, "dumped")
    for part in ("crc-mismatch-0", "orders-0"):
        alone = answer(f"{logs}/{part}", run, ("dump", "--format", "jsonl", "{}"))
        for name, place in (("disk", str(logs)), ("objects", url)):
            target = tmp_path / name / part
            target.mkdir(parents=True)
            code, _, _ = answer(f"{place}/{part}", on_spark, ("dump", "--format", "jsonl", "{}", "-o"), target)
            rows = "".join(path.read_text() for path in sorted(target.glob("topic=*/**/*.jsonl")))
            assert (code, rows.replace(f"{place}/{part}", "LOGS")) == alone[:2]


@pytest.mark.usefixtures("spark")
def test_private_keys_reach_the_tasks(tmp_path: Path) -> None:
    """Encrypted objects on Spark: the key of --kek opens them as without Spark, and another key is an error."""
    validate, count = ("validate", "--format", "jsonl"), ("sql", "--format", "csv", "select count(*) as n from records")
    for key, code in ((key_file(tmp_path), 0), (other_key_file(tmp_path), 2)):
        for command in (validate, count):
            alone, spread = (call(*command, "--kek", key, OBJECTS) for call in (run, on_spark))
            assert (spread.exit_code, spread.stdout) == (alone.exit_code, alone.stdout)
            assert spread.exit_code == code
            assert "PRIVATE KEY" not in spread.stderr
            assert ("cannot decrypt the data key" in spread.stderr) == bool(code)
    with pytest.raises(UsageError, match=re.escape("option kek: /nope.pem: No such file or directory")):
        parse({"path": str(OBJECTS), "kek": "/nope.pem"})
    with pytest.raises(UsageError, match="option kek cannot be streamed"):
        KsegStreamReader(parse({"path": str(OBJECTS), "kek": str(key_file(tmp_path))}))
