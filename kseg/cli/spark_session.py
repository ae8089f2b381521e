"""``--spark MASTER``: a Spark session for the duration of a command, and the checks before it starts."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from kseg.cli.messages import note, progress_bar
from kseg.cli.outcome import DumpOutcome
from kseg.cli.typed_command import SparkOptions
from kseg.engine import lazy
from kseg.errors import KsegError, UsageError
from kseg.format.storage.file_access import Progress
from kseg.format.storage.naming import is_url
from kseg.format.storage.process_pool import submit_ordered
from kseg.format.storage.segment_files import SegmentFile, total_size
from kseg.format.storage.source import STDIN
from kseg.format.writer.output_rule import check_output_folder
from kseg.spark.jobs import pool, written_files
from kseg.spark.jobs.launch import check_system, is_connect, start

if TYPE_CHECKING:
    from concurrent.futures import Future

    from pyspark import sql

else:
    # These import pyspark, which ``check_system`` and ``start`` must precede.
    sql = lazy("pyspark.sql")

_Result = TypeVar("_Result")
_REACH = 5.0
_CONNECT_PORT = "15002"
_STDERR = 2


@contextmanager
def spark_pool(asked: SparkOptions, files: Sequence[SegmentFile], progress: Progress) -> Iterator[pool.SparkPool]:
    """Yield a pool of executors for one call per file. Raises UsageError."""
    with spark_session(asked, [file.path for file in files]) as spark:
        yield pool.SparkPool(spark, progress, total_size(files) or 0, len(files))


@contextmanager
def spark_session(asked: SparkOptions, paths: Sequence[str], master: str = "") -> Iterator[sql.SparkSession]:
    """Yield a session and stop it at the end, unless it existed before. ``master`` is that without ``--spark``.

    The output of Spark and Java is hidden; KSEG_DEBUG=1 shows it. Raises UsageError for an unsuitable path, Java or
    master.
    """
    master = asked.spark or master
    check_system()
    for path in paths:
        _check_path(path, master)
    _check_master(master)
    _check_python(master)

    if sys.stderr.isatty():
        note(f"starting Spark on {master}")
    try:
        before = sql.SparkSession.getActiveSession()
    except ImportError:
        before = None  # ``start`` raises with the remedy
    with _capture_stderr() as log:
        if log:
            logging.disable(logging.ERROR)  # py4j logs Ctrl-C with a page of text
        try:
            spark = start(master, asked.spark_settings)
        except KsegError:
            raise
        except Exception as error:  # errors of py4j, of pyspark, and those that a failing Java causes
            raise UsageError(f"Spark cannot start on {master}: {_first_cause(error, log)}") from error
    if log and not is_connect(master):
        spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        if before is None:
            spark.stop()
        logging.disable(logging.NOTSET)


def export_segments(
    asked: SparkOptions, files: Sequence[SegmentFile], export: written_files.Export, outcome: DumpOutcome
) -> int:
    """Dump segments with Spark. Returns the exit code."""
    if export.folder in ("", STDIN) or export.format == "table":
        raise UsageError(
            "--spark writes one file per segment: add -o DIR and --format jsonl, csv, text, hex or parquet"
        )
    check_output_folder(export.folder, [file.path for file in files], "-o")
    with progress_bar(total_size(files)) as progress, spark_pool(asked, files, progress) as executors:
        job = replace(export, folder=os.path.abspath(export.folder))
        written_files.begin_export(job)
        submit = partial(executors.submit, written_files.export_segment)
        futures = submit_ordered(executors, submit, (file.path for file in files), repeat(job))
        done = []
        for file, future in zip(files, futures, strict=True):
            report = outcome.begin(file)
            for entry in outcome.attempt(_result(future)):
                written_files.check_same_target(Path(job.folder), entry)
                outcome.rows |= entry.result["rows"] > 0
                for finding in entry.findings:
                    report(finding)
                done.append(entry)
        written_files.finish(job, done)
    return outcome.exit_code()


def _result(future: Future[_Result]) -> Iterator[_Result]:
    yield future.result()


def _check_path(path: str, master: str) -> None:
    if path == STDIN:
        raise UsageError("Spark cannot read standard input: give files, folders or URLs")
    if not master.startswith("local") and not os.path.isabs(path) and not is_url(path):
        raise UsageError(f"{path}: executors have other working folders: give an absolute path")


def _check_master(master: str) -> None:
    """Raise UsageError for a standalone master or a server of Connect that does not answer: Spark would try for minutes."""
    if not master.startswith(("spark://", "sc://")):
        return
    for place in master.partition("://")[2].partition("/")[0].split(","):
        host, colon, port = place.rpartition(":")
        if not colon:
            host, port = place, _CONNECT_PORT
        with suppress(OSError, ValueError), socket.create_connection((host, int(port)), timeout=_REACH):
            return
    raise UsageError(f"{master}: no Spark master answers at this address")


def _check_python(master: str) -> None:
    """Raise UsageError if local tasks would run in a Python without kseg or of another version."""
    python = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if not master.startswith("local") or python == sys.executable:
        return
    own = f"{sys.version_info.major}.{sys.version_info.minor}"
    code = "import kseg, sys; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        raise UsageError(f"PYSPARK_PYTHON is {python}, which cannot be run: {error.strerror or error}") from error
    if done.returncode or done.stdout.strip() != own:
        found = "does not have kseg" if done.returncode else f"is Python {done.stdout.strip() or 'of no version'}"
        raise UsageError(f"PYSPARK_PYTHON is {python}, which {found}: tasks need kseg under Python {own}")


@contextmanager
def _capture_stderr() -> Iterator[IO[bytes] | None]:
    """Redirect stderr of child processes to a temporary file; yield it, or None under KSEG_DEBUG."""
    if os.environ.get("KSEG_DEBUG"):
        yield None
        return
    sys.stderr.flush()
    with tempfile.TemporaryFile() as log:
        kept = os.dup(_STDERR)
        os.dup2(log.fileno(), _STDERR)
        try:
            yield log
        finally:
            os.dup2(kept, _STDERR)
            os.close(kept)


def _first_cause(error: Exception, log: IO[bytes] | None) -> str:
    """Return the innermost Java cause as one line, from the error or from the printed output of Java."""
    printed = ""
    if log:
        log.seek(0)
        printed = log.read().decode(errors="replace")
    for text in (str(error), printed):
        causes = [line.strip() for line in text.splitlines() if "Exception: " in line]
        if causes:
            return causes[-1].rpartition("Exception: ")[2]
    return (str(error).splitlines() or [type(error).__name__])[0]
