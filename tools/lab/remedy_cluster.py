"""Carry out the remedy of damaged replicas on three brokers: the broker fetches the partition from the leader.

python -m tools.lab.remedy_cluster
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from kseg.cli.main import main as kseg
from kseg.findings import RULES, Severity
from kseg.remedies import FETCH
from tests.support.damage import cut, entries
from tools.lab import maven
from tools.lab import remedy_model as model
from tools.lab.cluster import KraftCluster, wait_until
from tools.lab.kafka_requests import active_producers, leaders_of
from tools.lab.oracle import VERSION
from tools.lab.remedy_cases import TABLE, Case, Ground, in_log
from tools.lab.remedy_lab import placeholders, rows, run, validate
from tools.lab.remedy_model import CASES, ModelWriter, Place
from tools.lab.remedy_record import CLUSTER, write

#: The broker with the damaged replicas, another that leads, and the controller, which lives on.
DAMAGED, OTHER, CONTROLLER = 2, 3, 1
ALL = {CONTROLLER, DAMAGED, OTHER}
#: The kill is first: files are compared after the clean stop that follows.
STOPS = ("kill", "clean")


def _without_a_batch(data: bytes) -> bytes:
    gone = entries(data)[3]
    return cut(data, gone.at, gone.end)


def _no_segment(ground: Ground) -> None:
    ground.log(1).unlink()


def table() -> list[Case]:
    """Return the damages of rules for which another replica helps; none of them changes a file outside the partition."""
    several = [
        *TABLE,
        Case("missing-batches", in_log(_without_a_batch)),
        Case("segment-gap", _no_segment),
        Case("orphaned-index", _no_segment),
    ]
    # After a kill a broker may delete lines of checkpoints.
    cases = [case for case in several if FETCH in RULES[case.rule].actions and case.stops == ("clean", "kill")]
    by_rule = {case.rule: replace(case, action=FETCH.case, lost=()) for case in reversed(cases)}
    return list(reversed(by_rule.values()))


def outcomes(work: Path) -> dict[tuple[str, str, str], list[str]]:
    """Return the faults that were left, by rule, role of the damaged replica, and kind of stop."""
    cases = table()
    numbers = range(2 * len(cases))
    leaders_first = [(DAMAGED, OTHER, CONTROLLER), (OTHER, DAMAGED, CONTROLLER)] * len(cases)
    faults: dict[tuple[str, str, str], list[str]] = {}
    with KraftCluster(VERSION, work, {**model.BROKER, "min.insync.replicas": "2"}) as cluster:
        cluster.create_topic(CASES, leaders_first, model.TOPIC_CONFIG)
        writer = ModelWriter(cluster.bootstrap, CASES, numbers)
        writer.first_epoch()
        writer.second_epoch()
        for stop in STOPS:
            found: dict[int, list[str]] = {number: [] for number in numbers}
            broker = cluster.brokers[DAMAGED]
            broker.kill() if stop == "kill" else broker.stop()
            _compare_files(cluster, faults, cases, STOPS[0] if stop == STOPS[1] else "")
            wait_until(lambda: _leaders(cluster) <= ALL - {DAMAGED}, "other leaders")
            writer.one_more()
            expected = _seen(cluster, OTHER, numbers)
            _carry_out(cluster, cases, found)
            broker.start()
            wait_until(lambda: all(isr == ALL for _, isr in _states(cluster).values()), "all replicas in sync")
            _lead(cluster, dict.fromkeys(numbers, (DAMAGED, OTHER, CONTROLLER)))
            seen = _seen(cluster, DAMAGED, numbers)
            for number in numbers:
                found[number] += [name for name in expected if expected[name][number] != seen[name][number]]
            _lead(cluster, dict(enumerate(leaders_first)))
            faults.update({(*_name(cases, number), stop): found[number] for number in numbers})
        cluster.stop()
        _compare_files(cluster, faults, cases, STOPS[-1])
    return faults


def _name(cases: Sequence[Case], number: int) -> tuple[str, str]:
    return cases[number // 2].rule, "follower" if number % 2 else "leader"


def _ground(cluster: KraftCluster, number: int) -> Ground:
    broker = cluster.brokers[DAMAGED]
    return Ground(broker.folder, Place(broker.log_dir.name, number, number))


def _states(cluster: KraftCluster) -> Mapping[int, tuple[int, set[int]]]:
    return leaders_of(cluster.brokers[CONTROLLER].port, CASES)


def _leaders(cluster: KraftCluster) -> set[int]:
    return {leader for leader, _ in _states(cluster).values()}


def _lead(cluster: KraftCluster, replicas: Mapping[int, Sequence[int]]) -> None:
    """Make the first of the replicas leaders."""
    cluster.reassign({(CASES, number): nodes for number, nodes in replicas.items()})
    cluster.elect((CASES, number) for number in replicas)
    wait_until(
        lambda: all(_states(cluster)[number][0] == nodes[0] for number, nodes in replicas.items()), "chosen leaders"
    )


def _seen(cluster: KraftCluster, broker: int, numbers: Sequence[int]) -> dict[str, dict[int, Any]]:
    """Return what clients see of partitions: records, offsets, and producers as their leaders know them."""
    asked = cluster.brokers[broker]
    producers: dict[int, Any] = {}
    for node in ALL:
        if cluster.brokers[node].is_running():
            producers |= active_producers(cluster.brokers[node].port, CASES, numbers)
    names = ("producerEpoch", "lastSequence", "currentTxnStartOffset")
    return {
        "read_uncommitted": model.read(asked, CASES, numbers, "read_uncommitted"),
        "read_committed": model.read(asked, CASES, numbers, "read_committed"),
        "offsets": model.watermarks(asked, CASES, numbers),
        "producers": {
            number: {producer: [row[name] for name in names] for producer, row in producers[number].items()}
            for number in numbers
        },
    }


def _carry_out(cluster: KraftCluster, cases: Sequence[Case], found: Mapping[int, list[str]]) -> None:
    """Damage the replicas of the stopped broker, and carry out the commands that kseg prints."""
    for number in found:
        cases[number // 2].damage(_ground(cluster, number))
    verdicts = validate(cluster.brokers[DAMAGED].log_dir)
    shutil.rmtree(cluster.brokers[DAMAGED].folder / "outside", ignore_errors=True)
    describe, *moves = (line for line in FETCH.commands if not line.startswith("#"))
    _check_leaders(describe, cluster.brokers[OTHER].bootstrap, len(found))
    for number, wrong in found.items():
        ground, case = _ground(cluster, number), cases[number // 2]
        mine = [each for each in verdicts if each.finding.rule == case.rule and f"/{CASES}-{number}/" in each.file]
        if not mine:
            wrong.append(f"kseg validate does not report {case.rule}")
        # The same commands for each finding of a partition: it is moved once.
        run(moves, placeholders(ground, mine[0]) if mine else {})


def _check_leaders(command: str, bootstrap: str, count: int) -> None:
    """Carry out kafka-topics.sh, and read that others lead all partitions."""
    program, *arguments = shlex.split(command.replace("OTHER_BROKER", bootstrap).replace("TOPIC", CASES))
    assert program == "kafka-topics.sh"
    java = ["java", *maven.JVM, "-cp", f"{maven.libs(VERSION)}/*", "org.apache.kafka.tools.TopicCommand"]
    done = subprocess.run([*java, *arguments], capture_output=True, text=True, check=True)
    leaders = re.findall(r"Partition: \d+\s+Leader: (\w+)", done.stdout)
    assert len(leaders) == count, done.stdout
    assert set(leaders) <= {str(node) for node in ALL - {DAMAGED}}, done.stdout


def _compare_files(
    cluster: KraftCluster, faults: Mapping[tuple[str, str, str], list[str]], cases: Sequence[Case], stop: str
) -> None:
    """Validate the fetched replicas of a stopped broker, and compare them with those of another broker."""
    if not stop:
        return
    verdicts = validate(cluster.brokers[DAMAGED].log_dir)
    for number in range(2 * len(cases)):
        found = faults[(*_name(cases, number), stop)]
        one, two = (cluster.brokers[node].partition(CASES, number) for node in (DAMAGED, OTHER))
        found += [
            f"validate: {Path(each.file).name}: {each.finding.rule}: {each.message}"
            for each in verdicts
            if each.severity >= Severity.WARNING and each.file.startswith(f"{one}/")
        ]
        compared = CliRunner().invoke(kseg, ["diff", str(one), str(two)])
        if compared.exit_code:
            found.append(f"diff: {compared.output[-300:]}")


def main() -> None:
    """Carry out the remedy and record it."""
    with tempfile.TemporaryDirectory(prefix="kseg-lab-") as work:
        wrong = {case: faults for case, faults in outcomes(Path(work)).items() if faults}
    if wrong:
        sys.exit("\n".join(f"{case}: {faults}" for case, faults in wrong.items()))
    write(rows(table()), CLUSTER)


if __name__ == "__main__":
    main()
