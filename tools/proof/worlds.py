"""``python -m tools.proof.worlds STEPS [SEED]``: lives of partitions by Kafka's own classes, which kseg reads and predicts.

A world is 200 steps from a seed (tools.proof.world); STEPS are those of as many worlds as needed, from SEED on. Where kseg
and Kafka differ, the world is shrunk, and the command is printed that repeats it: ``--world SEED --only NUMBERS``. With
``--keep FOLDER`` its files are kept. ``--write`` keeps the figure for the page of proof.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.lab.load_log import LoadLog
from tools.proof.figures import write_figure
from tools.proof.world import Step, World, steps_of
from tools.proof.world_checks import check_replica

#: The steps of a world, and after how many of them the replicas are compared.
WORLD_STEPS, CHECK_EVERY = 200, 10
#: The tries that a failing world is shrunk with.
_TRIES = 200


class Failure(NamedTuple):
    """What was wrong after the first ``steps`` steps of a world: a disagreement, or an exception."""

    message: str
    steps: int

    @property
    def kind(self) -> str:
        """The message without numbers and file names."""
        return re.sub(r"[0-9]+|\S*/\S*", "", self.message)[:90]


def run_world(
    seed: int, steps: Sequence[Step], kafka: LoadLog, every: int = CHECK_EVERY, keep: Path | None = None
) -> Failure | None:
    """Run a world, which is compared after each ``every`` steps. Return the failure, None without one."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        world = World(seed, kafka, Path(folder))
        try:
            world.run(steps, every, check_replica)
        except Exception as error:  # every exception is a fault of kseg, or of this simulator
            if keep:
                shutil.copytree(folder, keep, dirs_exist_ok=True)
            return Failure(f"{type(error).__name__}: {error}".replace(folder, ""), world.steps)
    return None


def shrunk(steps: Sequence[Step], fails: Callable[[Sequence[Step]], bool], tries: int = _TRIES) -> list[Step]:
    """Return fewer steps that fail, too: by delta debugging, with halves, quarters and so on left out."""
    left, size = list(steps), len(steps) // 2
    while size and tries:
        at, before = 0, len(left)
        while at < len(left) and tries:
            fewer = left[:at] + left[at + size :]
            tries -= 1
            if fails(fewer):
                left = fewer
            else:
                at += size
        size = size // 2 if size > 1 or len(left) == before else 1
    return left


def shrink_world(seed: int, steps: Sequence[Step], kafka: LoadLog, failure: Failure) -> list[Step]:
    """Return the steps of a world that end with the same kind of failure, when compared after the last one only."""

    def fails(fewer: Sequence[Step]) -> bool:
        again = run_world(seed, fewer, kafka, every=len(fewer))
        return again is not None and again.kind == failure.kind

    steps = steps[: failure.steps]
    return shrunk(steps, fails) if fails(steps) else list(steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", type=int, nargs="?", default=2_000)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--world", type=int, help="run this world only")
    parser.add_argument("--only", help="the numbers of its steps, such as 3,17")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--no-shrink", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    with LoadLog() as kafka:
        if asked.world is not None:
            numbers = [int(number) for number in (asked.only or "").split(",") if number]
            steps = [one for one in steps_of(asked.world, WORLD_STEPS) if not numbers or one.number in numbers]
            failure = run_world(asked.world, steps, kafka, len(steps) if numbers else CHECK_EVERY, asked.keep)
            print(" ".join(f"{step.number}:{step.kind}" for step in steps))
            print(failure.message if failure else "no disagreement")
            sys.exit(failure is not None)
        failed = run_worlds(asked.steps, asked.seed, kafka, shrink=not asked.no_shrink, write=asked.write)
    sys.exit(bool(failed))


def run_worlds(steps: int, seed: int, kafka: LoadLog, *, shrink: bool = True, write: bool = False) -> int:
    """Run worlds until they have had as many steps. Return how many failed."""
    began, failed, done = time.monotonic(), 0, 0
    known: set[str] = set()
    worlds = range(seed, seed + -(-steps // WORLD_STEPS))
    for number in worlds:
        failure = run_world(number, world := steps_of(number, WORLD_STEPS), kafka)
        done += failure.steps if failure else len(world)
        if failure:
            failed += 1
            small = [] if failure.kind in known or not shrink else shrink_world(number, world, kafka, failure)
            known.add(failure.kind)
            only = " --only " + ",".join(str(step.number) for step in small) if small else ""
            print(f"{failure.message[:400]}\n    python -m tools.proof.worlds --world {number}{only}", flush=True)
    seconds = time.monotonic() - began
    figure = (
        f"{done:,} steps in {len(worlds):,} worlds from seed {seed}, {done / seconds:,.0f} a second:"
        f" {failed} worlds in which kseg and Kafka 4.3 differ"
    )
    print(figure)
    if write:
        write_figure("worlds", figure)
    return failed


if __name__ == "__main__":
    main()
