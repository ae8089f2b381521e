"""One process, several processes and splits print and write the same, with damage at the boundaries of ranges."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import Result

from kseg.cli import grep_run
from kseg.commands.convert.conversion import convert
from kseg.commands.convert.conversion_plan import ConversionPlan
from kseg.commands.convert.transcode import Conversion
from kseg.commands.dump import dump_ranges as dump_jobs
from kseg.commands.validate import validate_ranges
from kseg.commands.validate.folder_checks import check_folders
from kseg.errors import KsegError
from kseg.findings import Finding, Policy, do_nothing
from kseg.format.checks.run_checks import policy_for
from kseg.format.segment import several_processes
from kseg.format.segment.deep_reader import DeepIterator
from kseg.format.segment.segment_reader import SegmentReader
from kseg.format.segment.several_processes import Meter
from kseg.format.sidefiles.registry import find_files
from kseg.format.storage.file_access import Progress
from kseg.format.storage.segment_files import SegmentFile
from kseg.format.storage.source import Source, open_source
from kseg.results import MAX_PER_RULE, FileResult, Settings
from tests.support.cli import invoke
from tests.support.damaged_cases import Case, chunks, damaged, rules_setting, seeds, written
from tests.support.processes import ImmediatePool

pytestmark = [pytest.mark.slow, pytest.mark.fuzz]


@contextmanager
def _pool_of(jobs: int, progress: Progress = do_nothing) -> Iterator[ImmediatePool]:
    yield ImmediatePool(jobs)


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges have megabytes; smaller ones let a small file have several."""
    monkeypatch.setattr(several_processes, "RANGE_SIZE", 3_000)
    monkeypatch.setattr(several_processes, "SEARCH_REACH", 16_000)


def partition(folder: Path, seed: int) -> list[SegmentFile]:
    """Return one to three damaged segments with their indexes."""
    base = 0
    for n in range(Random(seed).choice((1, 2, 3))):
        case = damaged(seed * 10 + n, base)
        written(folder, case)
        base = end_of(case)
    return list(find_files(str(folder), lambda name: None))


def two_partitions(log_dir: Path, random: Random, damaged_share: float, seed: int) -> Path:
    """Return the log dir with two partitions, each of them damaged with the probability ``damaged_share``."""
    for number in range(2):
        folder = log_dir / f"orders-{number}"
        folder.mkdir(parents=True)
        if random.random() < damaged_share:
            partition(folder, seed)
        else:
            written(folder, damaged(seed, acts=0))
    return log_dir


def end_of(case: Case) -> int:
    last = case.base
    source = SegmentReader(_in_memory(case))
    for window in source.windows():
        last = window.batches.last_offset[window.batches.count - 1]
    return last + 1


def _in_memory(case: Case) -> Source:
    return Source(case.name, io.BytesIO(case.sound), len(case.sound))


def validated(files: list[SegmentFile], settings: Settings, jobs: int) -> list[FileResult]:
    pool = ImmediatePool(jobs) if jobs > 1 else None
    return list(check_folders(files, settings, validate_ranges.validate_files(files, settings, jobs, pool=pool)))


def _codes(found: Result) -> tuple[int, ...]:
    """Return the exit codes of a command over damage. A log of zeros is of unknown content."""
    return (2,) if "its content is unknown" in found.output else (0, 1)


@chunks
def test_validate(chunk: int, tmp_path: Path) -> None:
    """Findings, counts and facts are the same with one process and with several, for files and folders."""
    split = []
    for seed in seeds(chunk, 40):
        random = Random(seed)
        files = partition(tmp_path / f"orders-{seed}", seed)
        if random.random() < 0.3:
            files = [SegmentFile(file.path) for file in files if file.path.endswith(".log")]
        deep = random.random() < 0.7
        settings = Settings(
            deep=deep,
            compacted=random.random() < 0.2 and deep,
            verify_crc=random.random() < 0.9,
            policy=Policy.parse(f"{name}={level}" for name, level in rules_setting(random).items()),
            max_per_rule=random.choice((1, 16, 10**6)),
        )
        one = validated(files, settings, 1)
        for jobs in (2, 5):
            assert validated(files, settings, jobs) == one, seed
        split += [
            any(
                len(several_processes.range_starts(file.path, os.path.getsize(file.path), 5)) > 1
                for file in files
                if file.path.endswith(".log")
            )
        ]
    assert 2 * sum(split) > len(split)


@chunks
def test_policy_changes_what_is_shown_and_nothing_else(chunk: int, tmp_path: Path) -> None:
    """A policy changes the severities of findings and no other result."""
    for seed in seeds(chunk, 40):
        random = Random(seed)
        files = partition(tmp_path / f"orders-{seed}", seed)
        plain = Settings(max_per_rule=10**6)
        weighed = replace(
            plain, policy=Policy.parse(f"{name}={level}" for name, level in rules_setting(random).items())
        )
        by_path = {file.path: file for file in files}
        found = validated(files, weighed, random.choice((1, 3)))
        for before, after in zip(validated(files, plain, 1), found, strict=True):
            policy = policy_for(by_path.get(before.file, SegmentFile(before.file)), weighed)
            expected = [replace(verdict, severity=policy.severity(verdict.rule)) for verdict in before.verdicts]
            assert list(after.verdicts) == [verdict for verdict in expected if verdict.severity], seed
            assert (after.found, after.unread, after.summary.lost_bytes) == (
                before.found,
                before.unread,
                before.summary.lost_bytes,
            ), seed


# --- convert ---


Converted = tuple[list[tuple[str, bytes]], list[tuple[str, Finding]], list[Conversion] | str]


def converted(source: Path, target: Path, plan: ConversionPlan, jobs: int) -> Converted:
    """Return the written files, the findings, and the summaries or the error."""
    findings: list[tuple[str, Finding]] = []
    reported: Counter[tuple[str, str]] = Counter()

    def report(path: str, finding: Finding) -> None:
        reported[path, finding.rule] += 1
        if reported[path, finding.rule] <= MAX_PER_RULE:  # no more are shown
            findings.append((path, finding))

    summaries: list[Conversion] | str
    try:
        summaries = convert(str(source), str(target), plan, report, jobs=jobs).segments
        for summary in summaries:
            summary.target = ""
    except KsegError as error:
        summaries = str(error).replace(str(target), "DST")
    folder = target if target.is_dir() else target.parent
    return [(path.name, path.read_bytes()) for path in sorted(folder.iterdir())], findings, summaries


@chunks
def test_convert(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The written bytes, indexes, findings and counts are the same, or the error; no record of the source is missing."""
    monkeypatch.setattr("kseg.format.storage.process_pool.process_pool", _pool_of)
    done = 0
    for seed in seeds(chunk, 40):
        random = Random(seed)
        folder = tmp_path / f"orders-{seed}"
        if random.random() < 0.3:
            partition(folder, seed)
            source = folder
        else:
            source = written(folder, damaged(seed))
        plan = ConversionPlan.of(
            random.choice(("any-to-v2", "any-to-v2", "v2-to-v1", "v1-to-v2")),
            compression=random.choice(("keep", "gzip", "none")),
            skip_damaged=random.random() < 0.7,
            lossy=True,
        )
        for jobs in (1, 2, 5):
            (tmp_path / f"{seed}-{jobs}").mkdir()
        one, two, five = (
            converted(source, tmp_path / f"{seed}-{jobs}" / source.name, plan, jobs) for jobs in (1, 2, 5)
        )
        assert two == one, seed
        assert five == one, seed
        if isinstance(one[2], str):
            assert one[0] == []
            continue
        done += 1
        for summary in one[2] if plan.target == 2 else ():
            name = Path(summary.source).name
            target = tmp_path / f"{seed}-2" / (f"orders-{seed}/{name}" if source == folder else name)
            assert records_in(target) == summary.records, seed
            if not summary.skipped and not summary.lost_bytes:
                assert records_in(Path(summary.source)) == summary.records, seed
    assert done


# --- dump ---


_DUMPS = (
    ("jsonl", ()), ("jsonl", ("--bytes", "base64")), ("jsonl", ("--no-crc",)), ("jsonl", ("--key", "k1", "--key", "k2")),
    ("jsonl", ("--offsets", "100:")), ("text", ("--offsets", "50:300")), ("jsonl", ("--control",)),
    ("jsonl", ("--value-as", "hex")), ("text", ()), ("csv", ()), ("csv", ("--columns", "offset,value")),
    ("table", ("--template", "%o %k %v %h")),
)  # fmt: skip


@chunks
def test_dump(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """stdout, stderr, the exit code and a written file are the same, whatever the ranges and the room for their output."""
    sizes = {"SMALLEST_RANGE": 500, "LARGEST_RANGE": 20_000, "FIRST_RANGE": 2_000, "WANTED_OUTPUT": 8_000}
    for name, size in sizes.items():
        monkeypatch.setattr(dump_jobs, name, size)
    monkeypatch.setattr(several_processes, "BEGIN_ALONE", False)
    monkeypatch.setattr("kseg.cli.dump_command._FEW_BYTES", 0)
    monkeypatch.setattr("kseg.format.storage.process_pool.process_pool", _pool_of)
    parts: Counter[str] = Counter()
    shown = dump_jobs.ParallelDump.show

    def counted(self: dump_jobs.ParallelDump, of_file: Any, show: Callable[[Any, memoryview], None]) -> Any:
        number = 0

        def noted(output: Any, lines: memoryview) -> None:
            nonlocal number
            parts["range" if number else "begin"] += 1
            number += 1
            show(output, lines)

        rest = shown(self, of_file, noted)
        parts["rest"] += rest is not None
        return rest

    monkeypatch.setattr(dump_jobs.ParallelDump, "show", counted)
    for seed in seeds(chunk, 40):
        random = Random(seed)
        for name in ("MIN_OUTPUT", "MAX_OUTPUT"):
            monkeypatch.setattr(dump_jobs, name, random.choice((20_000, 200_000, 2_000_000)))
        log_dir = two_partitions(tmp_path / str(seed), random, 0.5, seed)
        name, options = random.choice(_DUMPS)
        output = ["-o", str(tmp_path / "out")] if random.random() < 0.2 else []
        results = []
        for jobs in ("1", "3"):
            command = ["dump", "--deep", "--format", name, *options, *output, "--jobs", jobs, str(log_dir)]
            found = invoke(*command)
            assert found.exit_code in _codes(found), (seed, found.output, found.exception)
            results.append((found.exit_code, found.stdout, found.stderr, output and (tmp_path / "out").read_bytes()))
        assert results[0] == results[1], (seed, name, options)
    assert min(parts["rest"], parts["range"], parts["begin"]) > 0, parts


# --- grep ---

_GREPS = (
    (), ("-c",), ("-l",), ("-m", "3"), ("-m", "2", "-c"), ("-C", "2"), ("-A", "1", "-m", "2"), ("--only-matching",), ("-v",),
    ("--format", "jsonl"), ("--format", "csv"), ("--format", "table"), ("--template", "%o %k"), ("--offsets", "20:60"),
    ("-q",), ("--no-crc",), ("--value-as", "hex"), ("--json-path", "$.a"),
)  # fmt: skip


@chunks
def test_grep(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """stdout, stderr and the exit code, for rare and frequent matches, which decide which process searches."""
    monkeypatch.setattr("kseg.format.storage.process_pool.process_pool", _pool_of)
    monkeypatch.setattr(grep_run, "_NEAR", 100)
    monkeypatch.setattr(several_processes, "BEGIN_ALONE", False)
    ends: Counter[str] = Counter()
    search_range = grep_run.search_range

    def counted(part: Any) -> grep_run.FoundInRange:
        found = search_range(part)
        ends["found" if found.joined and found.places else "nothing" if found.joined else "rest"] += 1
        return found

    monkeypatch.setattr(grep_run, "search_range", counted)
    for seed in seeds(chunk, 40):
        random = Random(seed)
        monkeypatch.setattr(grep_run, "_MEASURED", random.choice((0, 1 << 20)))
        log_dir = two_partitions(tmp_path / str(seed), random, 0.4, seed)
        options = random.choice(_GREPS)
        pattern = (
            () if "--json-path" in options else (random.choice(("1", "7", r"[0-9]{2}", "a", "zz", ".", r"\d7\d")),)
        )
        results = []
        for jobs in ("1", "3"):
            command = ["grep", *options, "--jobs", jobs, *pattern, str(log_dir)]
            found = invoke(*command)
            assert found.exception is None or isinstance(found.exception, SystemExit), (seed, found.exception)
            # How much is read after the last match that is shown depends on the ranges.
            stops = {"-m", "-l", "-q"}.intersection(options)
            results.append((found.exit_code, found.stdout, "" if stops else found.stderr))
        assert results[0] == results[1], (seed, options, pattern)
    assert ends["found"] + ends["nothing"], ends


def records_in(path: Path) -> int:
    """Return the records that a reader gets."""
    count = 0
    with SegmentReader(open_source(path)) as reader:
        opener = DeepIterator()
        for window in reader.windows():
            count += sum(chunk.records.count for chunk in opener.chunks(window))
    return count


# --- commands ---


@chunks
def test_commands(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """stdout, stderr and the exit code of the commands with --jobs, over a log dir."""
    monkeypatch.setattr("kseg.format.storage.process_pool.process_pool", _pool_of)
    monkeypatch.setattr("kseg.format.segment.several_processes.RANGE_SIZE", 1000)
    starts = Random(chunk)

    def take_over(meter: Meter, position: int) -> None:
        """Let other processes continue anywhere, not only where it saves time."""
        if meter.jobs > 1 and starts.random() < 0.2:
            raise several_processes._EnoughMeasured(meter.jobs)

    monkeypatch.setattr(Meter, "_update", take_over)
    codes = set()
    for seed in seeds(chunk, 16):
        random = Random(seed)
        log_dir = tmp_path / str(seed)
        for number in range(2):
            (log_dir / f"orders-{number}").mkdir(parents=True)
            partition(log_dir / f"orders-{number}", 2 * seed + number)
        rules = [f"--rule={name}={level}" for name, level in rules_setting(random).items()]
        for arguments in (
            ["validate", "--fail-on", random.choice(("error", "warning", "info")), *rules],
            ["stats", random.choice(("--deep", "--shallow"))],
            ["recovery"],
        ):
            command = [*arguments, "--format", "jsonl", str(log_dir)]
            one, three = (invoke(*command, "--jobs", jobs) for jobs in ("1", "3"))
            assert one.exit_code in _codes(one), (seed, one.output, one.exception)
            assert (three.exit_code, three.stdout, three.stderr) == (one.exit_code, one.stdout, one.stderr), seed
            codes.add(one.exit_code)
    assert 1 in codes
