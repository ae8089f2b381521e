"""Compare ``kseg recovery`` with Kafka's own log loader over damaged partitions: ``python -m tools.lab.load_oracle N``."""

from __future__ import annotations

import argparse
import base64
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

from kseg.format.log_loader.partition_files import file_name
from kseg.format.log_loader.plan import PartitionPlan
from kseg.format.log_loader.recovery_plan import BrokerStart, plan_partition
from kseg.format.sidefiles.producer_snapshot import ProducerState, read_snapshot
from tools.lab.load_log import LoadLog
from tools.lab.load_scenes import Case, case

#: Files whose sizes are compared; of others the name is, since Kafka writes more to them than decides anything.
_SIZED = (".log", ".index", ".timeindex", ".txnindex")


#: The producers of a snapshot, sorted: Kafka writes them in the order of a hash map.
Producers = list[ProducerState]

#: A folder that is about to go is loaded, too, before it goes.
DELETED = f"topic-0.{'ab' * 16}-delete"


def disagreements(seeds: Iterable[int]) -> Iterator[tuple[Case, str]]:
    """Load the partition of each seed; yield those of which kseg predicts something else, with the difference."""
    memory = Path("/dev/shm")
    with LoadLog() as kafka, tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as work:
        for seed in seeds:
            made = case(seed)
            folder = Path(work) / f"{seed}" / (DELETED if seed % 20 == 0 else "topic-0")
            made.put(folder)
            predicted = predicted_with_snapshots(folder, made.start)
            loaded = with_snapshots_of(predicted, outcome(kafka.load(folder, made.start)))
            shutil.rmtree(folder.parent)
            if any(loaded.get(key) != value for key, value in predicted.items()):
                yield made, difference(predicted, loaded)


def predicted_with_snapshots(folder: Path, start: BrokerStart) -> dict[str, Any]:
    """Return the plan for a folder as ``outcome`` returns the observation, with the producers in new snapshots."""
    snapshots: dict[str, Producers] = {}
    predicted = prediction(plan_partition(str(folder), start, partial(_add_snapshot, snapshots)))
    return {**predicted, "snapshots": snapshots} if "files" in predicted else predicted


def with_snapshots_of(predicted: Mapping[str, Any], loaded: Mapping[str, Any]) -> dict[str, Any]:
    """Return an observation with the snapshots that are predicted: those of the source are there, too."""
    if "snapshots" not in loaded:
        return dict(loaded)
    return {**loaded, "snapshots": {name: loaded["snapshots"].get(name) for name in predicted.get("snapshots", ())}}


def prediction(plan: PartitionPlan) -> dict[str, Any]:
    """Return a plan as ``outcome`` returns the observation."""
    failures = [step.action for step in plan.steps if step.action in ("refuse", "offline")]
    if failures:
        return {"failure": failures[0]}
    if [step.action for step in plan.steps] == ["delete-folder"]:
        return {"failure": None}
    stray = any(step.action == "mark-stray" for step in plan.steps)
    return {
        "stray": stray,
        "epochs": [list(epoch) for epoch in plan.epochs],
        "files": _files(plan.files),
        **({} if stray else {"log_start": plan.log_start, "log_end": plan.log_end}),
    }


def outcome(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the output of PartitionLife.java, without the fields that are not predicted."""
    if "failure" in answer:
        return answer
    snapshots = {name: base64.b64decode(data) for name, data in answer["snapshots"].items()}
    read = {name: read_snapshot(data) for name, data in snapshots.items()}
    return {
        **answer,
        "files": _files(answer["files"].items()),
        "snapshots": {
            name: sorted(producers, key=attrgetter("producer_id"))
            for name, producers in read.items()
            if producers is not None
        },
    }


def _add_snapshot(snapshots: dict[str, Producers], offset: int, producers: Iterable[ProducerState]) -> None:
    snapshots[file_name(offset, ".snapshot")] = sorted(producers, key=attrgetter("producer_id"))


def _files(files: Iterable[tuple[str, int]]) -> dict[str, int]:
    return {name: size if name.endswith(_SIZED) else 0 for name, size in files if not name.endswith(".deleted")}


def difference(predicted: dict[str, Any], loaded: dict[str, Any]) -> str:
    """Return where the two differ, for a person."""
    if "failure" in predicted or "failure" in loaded:
        was = [str(loaded[key]) for key in ("failure", "error", "at") if key in loaded]
        return f"predicted {predicted.get('failure')}, was {' '.join(was) or 'no failure'}"
    parts = [
        f"{key}: predicted {predicted[key]}, was {loaded[key]}"
        for key in predicted
        if key != "files" and predicted[key] != loaded[key]
    ]
    one, other = predicted["files"], loaded["files"]
    parts += [
        f"{name}: predicted {one.get(name)}, was {other.get(name)}"
        for name in sorted({*one, *other})
        if one.get(name) != other.get(name)
    ]
    return "; ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, nargs="*", help="these instead")
    parser.add_argument("--most", type=int, default=20, help="stop after so many disagreements")
    requested = parser.parse_args()
    began = time.monotonic()
    found = 0
    for made, text in disagreements(requested.seeds or range(requested.first, requested.first + requested.count)):
        found += 1
        print(f"{made.seed} {', '.join(made.done)} {made.start}\n    {text}", flush=True)
        if found == requested.most:
            break
    print(f"{requested.count} partitions, {found} disagreements, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
