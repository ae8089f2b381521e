"""What kseg says about some damaged partitions of brokers: the answers are kept, and a change of one must be meant.

The partitions are those of brokers (``fixtures/segments``) with seeded damage of logs, side files and checkpoints. Other
tests say which answers are right, by Kafka and by oracles. These say that an answer is still the one that they approved:
all positions, offsets, facts and written bytes, but not the wording.

``python -m tests.support.known_answers`` writes the files again. Read their difference before you commit it.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from kseg.cli.main import main
from tests.support.damaged_logs import (
    SEGMENTS,
    DamagedLog,
    cut,
    flip_bit,
    flip_header_bit,
    insert,
    overwrite,
    truncate,
    zero,
)

ANSWERS = Path(__file__).parents[1] / "answers"
#: Command -> its words. IN is a log directory, PARTITION its partition, COPY one with a replica of it.
COMMANDS = {
    "validate": "validate --jobs 1 --format jsonl IN",
    "shallow": "validate --shallow --jobs 1 --format jsonl IN",
    "dump": "dump --format jsonl PARTITION",
    "records": "dump --deep --format jsonl PARTITION",
    "committed": "dump --deep --isolation read_committed --format jsonl PARTITION",
    "transactions": "transactions --format jsonl PARTITION",
    "stats": "stats --deep --jobs 1 --format jsonl PARTITION",
    "recovery": "recovery --jobs 1 --unclean --verbose --format jsonl IN",
    "clean-recovery": "recovery --jobs 1 --clean --verbose --format jsonl IN",
    "repair": "repair --verbose --format jsonl PARTITION OUT",
    "salvage": "repair --salvage-records --format jsonl PARTITION OUT",
    "indexes": "repair --indexes-only --format jsonl PARTITION OUT",
    "replicas": "repair --verbose --format jsonl PARTITION COPY OUT",
    "diff": "diff --format jsonl PARTITION COPY",
}
CASES = 80
#: Parts of the names of fixtures, and the partitions that they are of.
_PARTITIONS = {
    "consumer-offsets": "__consumer_offsets-0", "transaction-state": "__transaction_state-0",
    "share-group-state": "__share_group_state-0", "metadata": "__cluster_metadata-0",
}  # fmt: skip
_META = "version=1\nnode.id=1\ncluster.id=a3NlZy1sYWItMDAwMDAwMQ\ndirectory.id=nhD1XJ37--Z-fGgwOCPJ3w\n"
#: Damage without a codec: other versions of a compression library give other bytes.
_DAMAGE = (flip_bit, flip_bit, flip_header_bit, zero, overwrite, cut, insert, truncate)
#: Texts for people. Whoever improves one needs no new answers.
_TEXTS = ("message", "help", "remedy", "text", "why", "reason", "note", "consequence", "explanation")
#: A fact that depends on the time of the run.
_OF_NOW = ("age_ms",)
#: Commands whose result can be compressed again: of these the records count, not the bytes.
_COMPRESSING = ("salvage",)


def sources() -> list[Path]:
    """Return the folders of partitions that brokers wrote, none large."""
    found = sorted({path.parent for path in SEGMENTS.glob("*/*.log")})
    return [path for path in found if sum(log.stat().st_size for log in path.glob("*.log")) < 60_000]


def make_case(number: int, home: Path) -> None:
    """Write the log directory ``in`` of a case, and ``copy`` with a replica of its partition."""
    dice = random.Random(f"answers {number}")
    found = sources()
    source = found[number] if number < len(found) else dice.choice(found)
    partition_name = next((name for part, name in _PARTITIONS.items() if part in source.name), "orders-0")
    for name in ("in", "copy"):
        partition = home / name / partition_name
        shutil.copytree(source, partition, ignore=shutil.ignore_patterns("ORIGIN", "expect.jsonl", "*.conf"))
        for _ in range(dice.choice((0, 1, 1, 2, 3))):
            _damage_log(partition, dice)
        for _ in range(dice.choice((0, 0, 1, 2))):
            _damage_side_file(partition, dice)
        _write_checkpoints(home / name, partition_name.rpartition("-")[0], dice)
    for path in sorted(home.rglob("*")):
        os.utime(path, (1_600_000_000, 1_600_000_000))


def _damage_log(partition: Path, dice: random.Random) -> None:
    path = dice.choice(sorted(partition.glob("*.log")))
    data = path.read_bytes()
    if dice.random() < 0.1:
        path.unlink()
    elif dice.random() < 0.1:
        path.rename(path.with_suffix(dice.choice((".log.deleted", ".log.cleaned", ".log.swap", ".log.bak"))))
    elif data:
        log = DamagedLog(data, path.name)
        dice.choice(_DAMAGE)(log, dice)
        path.write_bytes(log.data)
    if not list(partition.glob("*.log")):
        path.write_bytes(data)


def _damage_side_file(partition: Path, dice: random.Random) -> None:
    names = [path for path in sorted(partition.iterdir()) if path.suffix != ".log"]
    if not names:
        return
    path = dice.choice(names)
    data, act = path.read_bytes(), dice.random()
    if act < 0.25:
        path.unlink()
    elif act < 0.5 or not data:
        path.write_bytes(data + bytes(dice.choice((1, 8, 12, 4096))))
    elif act < 0.75:
        path.write_bytes(data[: dice.randrange(len(data))])
    else:
        at = dice.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :])


def _write_checkpoints(log_dir: Path, topic: str, dice: random.Random) -> None:
    if dice.random() < 0.9:
        (log_dir / "meta.properties").write_text(_META)
    metadata = log_dir / f"{topic}-0" / "partition.metadata"
    if not metadata.exists() and dice.random() < 0.8:
        metadata.write_text("version: 0\ntopic_id: 8QbGW0sLQ0qIYyEr2a1fZQ")
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        if dice.random() < 0.5:
            (log_dir / name).write_text(f"0\n1\n{topic} 0 {dice.choice((0, 1, 7, 30, 1000))}\n")
    if dice.random() < 0.3:
        (log_dir / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":3}')


def answer(command: str, home: Path) -> list[Any]:
    """Run a command over a case. Return its exit code, what it says most, and a digest of all that it says and writes."""
    out = home / "out"
    partition = next(path.name for path in (home / "in").iterdir() if path.is_dir())
    words = {"IN": "in", "PARTITION": f"in/{partition}", "COPY": f"copy/{partition}", "OUT": f"out/{partition}"}
    line = [words.get(word, word) for word in COMMANDS[command].split()]
    out.mkdir()
    with chdir(home):
        done = CliRunner().invoke(main, line)
        rows = [json.loads(one) for one in done.stdout.splitlines() if one.startswith("{")]
        written = list(_written(command))
    shutil.rmtree(out)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    counts = Counter(str(row.get("rule") or row.get("kind") or row.get("state") or "row") for row in rows)
    brief = ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))
    kept = json.dumps([[_without_texts(row) for row in rows], written], sort_keys=True)
    return [done.exit_code, brief, hashlib.sha256(kept.encode()).hexdigest()[:16]]


def _written(command: str) -> Iterator[Any]:
    for path in sorted(Path("out").rglob("*")):
        if path.is_file() and command not in _COMPRESSING:
            yield str(path), hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.suffix == ".log":
            done = CliRunner().invoke(
                main, ["dump", "--deep", "--columns", "offset,timestamp,key,value", "--format", "csv", str(path)]
            )
            yield str(path), hashlib.sha256(done.stdout.encode()).hexdigest()


def _without_texts(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_texts(one) for name, one in value.items() if name not in (*_TEXTS, *_OF_NOW)}
    return [_without_texts(one) for one in value] if isinstance(value, list) else value


def answers(command: str, number: int) -> list[Any]:
    with tempfile.TemporaryDirectory() as temporary:
        make_case(number, Path(temporary))
        return answer(command, Path(temporary))


def known(command: str) -> list[list[Any]]:
    """Return the answers that are kept, by the number of the case."""
    return [json.loads(line) for line in (ANSWERS / f"{command}.jsonl").read_text(encoding="utf-8").splitlines()]


def write_all() -> None:
    ANSWERS.mkdir(exist_ok=True)
    for command in COMMANDS:
        lines = [json.dumps(answers(command, number)) for number in range(CASES)]
        (ANSWERS / f"{command}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_all()
