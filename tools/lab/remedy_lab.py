"""Carry out remedies on a real broker: damage, the commands that kseg prints, a start, and what clients then see."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kseg.commands.validate.folder_checks import check_folders
from kseg.commands.validate.validate_ranges import validate_files
from kseg.findings import RULES, Severity, Verdict
from kseg.format.sidefiles.registry import find_files
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.remedies import Action
from kseg.results import Settings
from tools.lab import remedy_model as model
from tools.lab.kafka_requests import abort_transactions, active_producers, leaders_of, produce
from tools.lab.kraft import KraftBroker
from tools.lab.oracle import VERSION
from tools.lab.remedy_cases import TABLE, Case, Ground
from tools.lab.remedy_model import CASES, Base, Oracle
from tools.lab.remedy_record import SINGLE, write
from tools.lab.scenes import wait_for

#: Rules that report a loss: they are not findings of a remedy.
LOSS_RULES = ("offset-gap", "missing-batches", "segment-gap", "sequence-gap")


def outcomes(work: Path) -> dict[tuple[str, str], list[str]]:
    """Return the faults that were left, by case and kind of stop, for all rows of the table."""
    base = model.make(work, len(TABLE))
    found = {stop: carry_out(base, stop, TABLE) for stop in base.stopped}
    return {
        (f"{number}: {case.rule} {case.file} {case.action}", stop): faults[number]
        for stop, faults in found.items()
        for number, case in enumerate(TABLE)
    }


def rows(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Return a row for each action that cases carry out: the record that documentation and tests read."""
    made: dict[str, dict[str, Any]] = {}
    for case in cases:
        file = case.file if case.file in RULES[case.rule].by_file else ""
        action = action_of(case)
        row = {"rule": case.rule, "file": file, "case": action.case, "commands": list(action.commands)}
        stops = {*case.stops, *made.get(json.dumps(row), {}).get("stops", ())}
        made[json.dumps(row)] = {**row, "stops": sorted(stops)}
    return list(made.values())


def carry_out(base: Base, stop: str, cases: Sequence[Case]) -> list[list[str]]:
    """Return the faults of each case after its remedy, in a start of the broker after this kind of stop."""
    folder = base.stopped[stop].with_name(f"run-{stop}")
    shutil.copytree(base.stopped[stop], folder, copy_function=shutil.copyfile)
    grounds = [Ground(folder, place) for place in base.places[: len(cases)]]
    faults: list[list[str]] = [[] for _ in cases]
    for case, ground, found in zip(cases, grounds, faults, strict=True):
        if stop not in case.stops:
            continue
        try:
            found += _prepare(case, ground)
        except subprocess.CalledProcessError as error:
            found.append(f"{error.cmd[-1]}: {error.stderr.strip()[-300:]}")
        if found:
            # A broker may not start on the damage.
            shutil.rmtree(ground.log_dir)
            shutil.copytree(base.stopped[stop] / ground.log_dir.name, ground.log_dir, copy_function=shutil.copyfile)
    dirs = sorted(path.name for path in folder.iterdir() if re.fullmatch(r"d\d+", path.name))
    broker = KraftBroker(VERSION, folder, model.properties(folder, dirs), plugins="slf4j-simple")
    with broker:
        _compare_all(broker, base.oracle, cases, grounds, faults)
    for case, ground, found in zip(cases, grounds, faults, strict=True):
        found += _invalid(ground, case)
    shutil.rmtree(folder)
    return faults


def _prepare(case: Case, ground: Ground) -> Iterator[str]:
    """Damage the files and carry out the commands; yields faults."""
    directory_id = _directory_id(ground.log_dir)
    case.damage(ground)
    files = {each.file: each for each in validate(ground.log_dir) if each.finding.rule == case.rule}
    files = {file: each for file, each in files.items() if file.endswith(case.file)}
    if not files:
        yield f"kseg validate does not report {case.rule} in {case.file or 'any file'}"
    for verdict in files.values():
        action = action_of(case)
        run(action.commands, {**placeholders(ground, verdict), "DIRECTORY_ID": directory_id, **case.values})
        if not any(name in command for command in action.commands for name in ("FILE", "SEGMENT")):
            break


def _directory_id(log_dir: Path) -> str:
    (found,) = re.findall(r"directory.id=(.*)", (log_dir / "meta.properties").read_text())
    return str(found)


def action_of(case: Case) -> Action:
    """Return the action that a case carries out."""
    actions = RULES[case.rule].remedy_for(case.file).actions
    return next(each for each in actions if each.case == case.action)


def placeholders(ground: Ground, verdict: Verdict) -> dict[str, str]:
    """Return the values of the names in capitals in commands."""
    file, outside = verdict.file, ground.folder / "outside"
    return {
        "FILE": file,
        "SEGMENT": file.rpartition(".")[0],
        "PARTITION": str(ground.partition),
        "OTHER_PARTITION": str(ground.neighbour),
        "LOG_DIR": str(ground.log_dir),
        "OTHER_LOG_DIR": str(ground.folder / "logs"),
        "NEW": str(outside / "new" / ground.partition.name),
        "BACKUP": str(outside / "backup" / ground.partition.name),
        "TOPIC": CASES,
        "NUMBER": str(ground.place.number),
        "LINE": str(verdict.finding.facts.get("line") or _second_line(ground, verdict)),
    }


def _second_line(ground: Ground, verdict: Verdict) -> str:
    return f"{CASES} {ground.place.number} {verdict.finding.facts.get('offset')}"


def run(commands: Sequence[str], values: Mapping[str, str]) -> None:
    """Carry out commands as a shell does. Raises CalledProcessError."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for name in ("NEW", "BACKUP"):
        Path(values[name]).parent.mkdir(parents=True, exist_ok=True)
    for command in commands:
        line = re.sub(r"\b[A-Z][A-Z_]+\b", lambda found: values.get(found[0], found[0]), command)
        done = subprocess.run(
            ["sh", "-c", line], env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False
        )
        # repair returns 1 if something is lost.
        if done.returncode and not (line.startswith("kseg repair") and done.returncode == 1):
            raise subprocess.CalledProcessError(done.returncode, ["sh", "-c", command], done.stdout, done.stderr)


def validate(log_dir: Path) -> list[Verdict]:
    """Return the findings of a log dir."""
    files = list(find_files(str(log_dir), lambda name: None))
    settings = Settings()
    results = check_folders(files, settings, validate_files(files, settings))
    return [verdict for result in results for verdict in result.verdicts]


def _invalid(ground: Ground, case: Case) -> Iterator[str]:
    for verdict in validate(ground.log_dir):
        if verdict.severity >= Severity.WARNING and not (
            case.lost and verdict.finding.rule in LOSS_RULES and f"-{ground.place.number}/" in verdict.file
        ):
            yield f"validate: {Path(verdict.file).name}: {verdict.finding.rule}: {verdict.message}"


def _compare_all(
    broker: KraftBroker, oracle: Oracle, cases: Sequence[Case], grounds: Sequence[Ground], faults: Sequence[list[str]]
) -> None:
    """Compare what clients see of all partitions with the oracle."""
    owners: dict[int, tuple[str, Oracle, list[str]]] = {}
    for case, ground, found in zip(cases, grounds, faults, strict=True):
        owners[ground.place.number] = ("", oracle.without(case.lost), found)
        owners[ground.place.neighbour] = "neighbour: ", oracle, found
    served = _served(broker, owners)
    for number, (label, _, found) in owners.items():
        if number not in served:
            found.append(f"{label}offline")
    _compare(broker, {number: owners[number] for number in sorted(served)})


def _served(broker: KraftBroker, numbers: Collection[int]) -> set[int]:
    def leaders() -> set[int]:
        return {each for each, (leader, _) in leaders_of(broker.port, CASES).items() if leader > 0} & set(numbers)

    with contextlib.suppress(TimeoutError):
        wait_for(lambda: len(leaders()) == len(numbers), "leaders", 10)
    return leaders()


def _compare(broker: KraftBroker, owners: Mapping[int, tuple[str, Oracle, list[str]]]) -> None:
    numbers = list(owners)
    everything = model.read(broker, CASES, numbers, "read_uncommitted")
    committed = model.read(broker, CASES, numbers, "read_committed")
    marks = model.watermarks(broker, CASES, numbers)
    producers = active_producers(broker.port, CASES, numbers)
    oracle = next(iter(owners.values()))[1]
    times = {timestamp for _, each, _ in owners.values() for timestamp, _ in each.times}
    asked = sorted(times)
    looked_up = model.look_up_times(broker, CASES, numbers, asked)
    rejected = produce(broker.port, CASES, dict.fromkeys(numbers, _next_batch(oracle)))
    open_epoch = oracle.producers[oracle.open_id]["producerEpoch"]
    abort_transactions(broker.port, CASES, numbers, oracle.open_id, open_epoch)
    ended = model.read(broker, CASES, numbers, "read_committed")
    for number, (label, expected, found) in owners.items():

        def add(text: str, label: str = label, found: list[str] = found) -> None:
            if text:
                found.append(label + text)

        add(_difference("read_uncommitted", everything[number], expected.records))
        add(_difference("read_committed", committed[number], expected.committed))
        if marks[number] != (expected.log_start, expected.log_end):
            add(f"offsets {marks[number]}, expected {(expected.log_start, expected.log_end)}")
        add(_producer_difference(producers.get(number, {}), expected.producers))
        answers = dict(zip(asked, looked_up[number], strict=True))
        wrong = [(at, answers[at], offset) for at, offset in expected.times if answers[at] != offset]
        add(f"look-ups by time (time, found, expected): {wrong[:2]}" if wrong else "")
        (folder,) = broker.folder.glob(f"*/{CASES}-{number}")
        epochs = [each for each in model.epochs_of(folder) if each[1] < expected.log_end]
        add(f"epochs {epochs}, expected {expected.epochs}" if epochs != list(expected.epochs) else "")
        add(f"append of the old producer: error {rejected[number]}" if number in rejected else "")
        add(_difference("read_committed after the end of the transaction", ended[number], _after_end(expected)))


def _next_batch(oracle: Oracle) -> bytes:
    row = oracle.producers[oracle.idempotent_id]
    records = [PlainRecord(number, b"next", b"of the old producer", row["lastTimestamp"] + 1) for number in range(3)]
    return build_batch(
        records, producer_id=oracle.idempotent_id, producer_epoch=row["producerEpoch"],
        base_sequence=row["lastSequence"] + 1,
    )  # fmt: skip


def _after_end(oracle: Oracle) -> list[model.Record]:
    """Return the records of a read_committed consumer once the open transaction is aborted and a batch was appended."""
    aborted = oracle.aborted
    row = oracle.producers[oracle.idempotent_id]
    new = [(oracle.log_end + number, row["lastTimestamp"] + 1, b"next", b"of the old producer") for number in range(3)]
    return [record for record in oracle.records if record[0] not in aborted] + new


def _difference(what: str, found: Sequence[model.Record] | str, expected: Sequence[model.Record]) -> str:
    if isinstance(found, str):
        return f"{what}: {found}"
    have, want = {record[0]: record for record in found}, {record[0]: record for record in expected}
    missing = sorted(want.keys() - have.keys())
    more = sorted(have.keys() - want.keys())
    other = sorted(offset for offset in have.keys() & want.keys() if have[offset] != want[offset])
    twice = len(found) - len(have)
    parts = [f"{len(each)} {name} (from {each[0]})" for name, each in
             (("missing", missing), ("more", more), ("different", other)) if each]  # fmt: skip
    parts += [f"{twice} twice"] if twice else []
    return f"{what}: {', '.join(parts)}" if parts else ""


_STATE = ("producerEpoch", "lastSequence", "currentTxnStartOffset")


def _producer_difference(found: model.Producers, expected: model.Producers) -> str:
    def state(rows: model.Producers) -> dict[int, tuple[int, ...]]:
        return {number: tuple(row[name] for name in _STATE) for number, row in rows.items()}

    have, want = state(found), state(expected)
    return f"producers {have}, expected {want}" if have != want else ""


def main() -> None:
    """Carry out all remedies and record them."""
    with tempfile.TemporaryDirectory(prefix="kseg-lab-") as work:
        wrong = {case: faults for case, faults in outcomes(Path(work)).items() if faults}
    if wrong:
        sys.exit("\n".join(f"{case}: {faults}" for case, faults in wrong.items()))
    write(rows(TABLE), SINGLE)


if __name__ == "__main__":
    main()
