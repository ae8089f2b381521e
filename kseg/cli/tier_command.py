"""``kseg tier``: options, exit codes. 1: something is missing or wrong. 2: the work could not be done."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import click

from kseg.cli import common
from kseg.cli.messages import FAILED, FOUND, fail_after, note, progress_bar
from kseg.cli.typed_command import DetailOptions, command
from kseg.cli.validate_command import files_of
from kseg.commands.tier.fetch import write_partitions
from kseg.commands.tier.fetch_plan import NO_BATCH, plan_fetch
from kseg.commands.tier.reconcile import check_bucket
from kseg.commands.validate.folder_checks import check_folders
from kseg.commands.validate.validate_ranges import validate_files
from kseg.errors import KsegError, UsageError
from kseg.findings import do_nothing
from kseg.format.storage.naming import is_url
from kseg.report.formats import TIER_CHECK, TIER_FETCH, destination
from kseg.results import Settings
from kseg.text import count_of, shell_word


@dataclass(frozen=True, kw_only=True)
class TierOptions(DetailOptions):
    action: str
    paths: tuple[str, ...]
    only: tuple[str, ...]
    skip_damaged: bool


@command(
    TierOptions,
    results=TIER_CHECK,
    arguments=(
        click.Argument(["action"], type=common.Choice(["fetch", "check"])),
        click.Argument(["paths"], metavar="PATH...", nargs=-1, required=True, type=common.InputPath()),
    ),
    examples=(
        "kseg tier fetch s3://tier/prefix --partition orders-0 -o fetched",
        "kseg tier fetch --kek kek.pem tier -o fetched",
        "kseg tier check s3://tier/prefix broker1/kafka-logs broker2/kafka-logs",
    ),
)
def tier(asked: TierOptions) -> int:
    """Bring partitions back from tiered storage, or check its objects.

    fetch BUCKET -o DIR writes partitions as folders that a broker loads, all or nothing.

    check BUCKET METADATA [LOGDIR]... compares the objects with the metadata of the cluster: METADATA is a log directory,
    or a folder of several, with all partitions of __remote_log_metadata, and with __cluster_metadata for the topics. With
    log directories it finds offsets that neither they nor the bucket have. It deletes nothing.

    Exit codes: 0 all is there, 1 something is missing or wrong, 2 the work could not be done.
    """
    common.check_outputs(*asked.paths)
    if asked.action == "fetch":
        return _fetch(asked)
    return _check(asked)


def _fetch(asked: TierOptions) -> int:
    if len(asked.paths) != 1:
        raise UsageError(f"fetch: expected one BUCKET, got {len(asked.paths)} paths")
    if asked.output is None or is_url(asked.output):
        raise UsageError("fetch: give a new local folder with -o DIR")
    target = common.new_folder(asked.output)
    plans = plan_fetch(asked.paths[0], asked.only)
    unreadable = next((part.path for one in plans for part in one.left_out if part.why == NO_BATCH), None)
    if unreadable and not asked.skip_damaged:
        raise KsegError(f"{unreadable}: {NO_BATCH}: --skip-damaged leaves it out")
    with progress_bar(sum(one.size for one in plans)) as progress:
        damaged = write_partitions(plans, target, progress, skip_damaged=asked.skip_damaged)
    with destination(None) as out:
        asked.write(TIER_FETCH, out, plans, str(target))
    for one in plans:
        for part in one.left_out:
            note(f"left out: {part.path}: {part.why}")
    if places := _damage_in(target):
        note(
            f"damaged in the bucket: `kseg validate {shell_word(str(target))}` lists {count_of(places, 'damaged place')}"
        )
    return FOUND if damaged or places or any(one.is_incomplete for one in plans) else 0


def _damage_in(folder: Path) -> int:
    """Return the number of errors of what was written: the storage keeps what it got, whatever became of it.

    An incomplete batch at the end, which a broker may be writing elsewhere, is one, too: nobody writes here.
    """
    files, unread = files_of((str(folder),))
    settings = Settings(deep=False)
    results = check_folders(files, settings, validate_files(files, settings, 1, do_nothing))
    return sum(one.summary.errors or bool(one.summary.lost_bytes) for one in results) + len(unread)


def _check(asked: TierOptions) -> int:
    if len(asked.paths) < 2:
        raise UsageError("check: expected BUCKET and METADATA, a log directory with __remote_log_metadata")
    given = {"-o": asked.output is not None, "--partition": asked.only, "--skip-damaged": asked.skip_damaged}
    for name in (name for name, value in given.items() if value):
        raise UsageError(f"check has no {name}: it checks the whole bucket, and writes nothing")
    bucket, metadata, *log_dirs = asked.paths
    found = check_bucket(bucket, metadata, log_dirs, time.time() * 1000)
    with destination(None) as out:
        asked.write(TIER_CHECK, out, found)
    for line in found.faults:
        fail_after(line)
    return FAILED if found.faults else FOUND if found.problems else 0
