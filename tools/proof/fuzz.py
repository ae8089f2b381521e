"""``python -m tools.proof.fuzz SECONDS [SEED]``: structured random damage, read by the commands in this process.

A case takes a segment of a broker, damages fields, payloads, records or side files, and makes the CRCs right again. A case
is its target and its number: ``--case TARGET NUMBER`` runs one again. The files of a case that ends with an exception, or
that takes more than ten seconds, are written to ``tests/regressions``. ``--write`` keeps the executions of each target for
the page of proof.

``--guided`` damages again what has reached lines of kseg that no case before has: slower, and deeper. Such a case depends on
those before it, so its files are what to keep. ``KSEG_ENGINE=python`` shows it the lines of the modules that are compiled.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import NoReturn

from click.testing import CliRunner, Result

from kseg.cli.main import main as kseg_main
from kseg.format.compress import codecs
from tests.support import damage
from tools.proof.figures import report

ROOT = Path(__file__).parents[2]
REGRESSIONS = ROOT / "tests" / "regressions"
#: Where cases have their files: a file system in memory, or the default.
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
#: Seconds after which a case counts as endless.
_ENDLESS = 10
_EXTREMES = (0, 1, -1, 2**7 - 1, 2**15 - 1, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))
_SIDE_FILES = (".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint", "partition.metadata")
#: Targets that are commands over the folder of a partition: ``{}`` is the folder, OUT a path that does not exist.
COMMANDS = {
    "reader": "validate --jobs 1 {}",
    "shallow": "validate --shallow --jobs 1 {}",
    "records": "dump --deep --format jsonl {}",
    "csv": "dump --deep --format csv {}",
    "hex": "explain {}/LOG",
    "grep": "grep --jobs 1 e {}",
    "stats": "stats --deep --jobs 1 {}",
    "transactions": "transactions {}",
    "repair": "repair {} OUT",
    "salvage": "repair --salvage-records {} OUT",
    "convert": "convert any-to-v2 {} OUT --skip-damaged",
    "recovery": "recovery {}",
    "carve": "carve {}/LOG",
    "internal-topics": "dump --effective {}",
    "frames": "dump --as requests {}/LOG --format jsonl",
    "serialization": "dump --deep --value-as msgpack --key-as json {} --format jsonl",
}
#: Targets of which the topic gives the records their meaning.
_TOPICS = {
    "internal-topics": (
        "__consumer_offsets-0",
        "__transaction_state-0",
        "__cluster_metadata-0",
        "__share_group_state-0",
    )
}
TARGETS = (*COMMANDS, "codecs", "side-files")


@cache
def _seeds() -> list[Path]:
    return sorted(path for path in (ROOT / "fixtures" / "segments").glob("*/*.log") if 0 < path.stat().st_size < 20_000)


#: Exceptions of damage that the bytes do not allow: an earlier damage took its place.
_IMPOSSIBLE = (AssertionError, ValueError, LookupError, OverflowError, struct.error, codecs.CodecError)


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return a segment with one to four random damages; most have valid CRCs."""
    for _ in range(chance.randint(1, 4)):
        with suppress(*_IMPOSSIBLE):
            data = _damaged_once(data, chance)
    return data


def _damaged_once(data: bytes, chance: random.Random) -> bytes:
    kind = chance.choice(("field", "field", "payload", "records", "records", "bytes", "bytes", "splice"))
    places = damage.entries(data)
    if kind in ("field", "payload", "records") and places:
        place = chance.choice(places)
        if kind == "field":
            name, (_, code) = chance.choice(list(damage.FIELDS[place.magic].items()))
            bits = 8 * struct.calcsize(">" + code)
            value = chance.choice(
                (*_EXTREMES, chance.getrandbits(bits), damage.get(data, place.at, name) + chance.choice((-1, 1)))
            )
            value &= (1 << bits) - 1
            return damage.alter(
                data, place.at, **{name: value - (1 << bits) * (code.islower() and value >> (bits - 1))}
            )
        if kind == "payload":
            return damage.with_payload(data, place, mutated(damage.stored(data, place), chance))
        return damage.with_inflated(data, place, mutated(damage.inflated(data, place), chance))
    if kind == "splice":
        return data[: chance.randint(0, len(data))] + data[chance.randint(0, len(data)) :]
    return mutated(data, chance)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with one change: a flip, a cut, an insertion, zeros, a copy, or an extreme number."""
    at = chance.randint(0, len(data))
    end = min(len(data), at + chance.choice((1, 2, 4, 8, 40, 200)))
    kind = chance.randint(0, 5)
    if kind == 0 and at < len(data):
        return damage.flip(data, at, 1 << chance.randint(0, 7))
    if kind == 1:
        return data[:at] + data[end:]
    if kind == 2:
        return data[:at] + chance.randbytes(chance.randint(1, 20)) + data[at:]
    if kind == 3:
        return data[:at] + bytes(end - at) + data[end:]
    if kind == 4:
        return data[:end] + data[at:end] * chance.randint(1, 5) + data[end:]
    number = (chance.choice(_EXTREMES) & (2**64 - 1)).to_bytes(8, "big")[-chance.choice((1, 2, 4, 8)) :]
    return data[:at] + number + data[at + len(number) :]


class Guide:
    """Keeps the files that have reached lines which no case of their target had, to be damaged again."""

    def __init__(self) -> None:
        from coverage import Coverage  # only this search needs it

        self._coverage = Coverage(data_file=None, include=[str(ROOT / "kseg" / "*")], messages=False)
        self._kept: dict[str, list[dict[str, bytes]]] = {}
        self._reached: dict[str, set[tuple[str, int]]] = {}

    def files(self, target: str, chance: random.Random) -> dict[str, bytes] | None:
        """Return files to damage, None if the next case begins with a fixture."""
        kept = self._kept.get(target)
        return chance.choice(kept) if kept and chance.random() < 0.5 else None

    @contextmanager
    def watch(self, target: str, partition: Path) -> Iterator[None]:
        """Keep the files of a partition if what runs inside reaches new lines."""
        files = {path.name: path.read_bytes() for path in partition.iterdir()}
        self._coverage.start()
        try:
            yield
        finally:
            self._coverage.stop()
            data = self._coverage.get_data()
            lines = {(path, line) for path in data.measured_files() for line in data.lines(path) or ()}
            data.erase()
        known = self._reached.setdefault(target, set())
        if not lines <= known:
            known |= lines
            self._kept.setdefault(target, []).append(files)

    def reached(self) -> int:
        """Return the number of lines that any case has reached."""
        return len(set[tuple[str, int]]().union(*self._reached.values()))


def run_case(target: str, number: int, keep: Path | None = None, guide: Guide | None = None) -> None:
    """Run a case. Raises what a user would get as an internal error; the files of such a case are copied to ``keep``."""
    chance = random.Random(f"{target} {number}")
    if target == "codecs":
        _decompress(chance)
        return
    with tempfile.TemporaryDirectory(dir=MEMORY) as temporary:
        log = make_case(target, chance, Path(temporary), guide)
        try:
            with guide.watch(target, log.parent) if guide else nullcontext():
                run_target(target, log)
        except (Exception, EndlessError):
            if keep:
                shutil.copytree(log.parent, keep / f"{target}-{number}" / log.parent.name, dirs_exist_ok=True)
            raise


def make_case(target: str, chance: random.Random, folder: Path, guide: Guide | None = None) -> Path:
    """Write the damaged files of a case into a new folder of a partition, and return the path of its segment."""
    files = (guide and guide.files(target, chance)) or _fixture(target, chance)
    partition = folder / chance.choice(_TOPICS.get(target, ("orders-0",)))
    partition.mkdir()
    for name, data in files.items():
        (partition / name).write_bytes(_damaged_file(name, data, target, chance))
    return next(partition.glob("*.log"))


def _fixture(target: str, chance: random.Random) -> dict[str, bytes]:
    """Return the segment of a fixture, with its side files if these are the target."""
    seed = chance.choice(_seeds())
    beside = sorted(path for path in seed.parent.iterdir() if path.name.endswith(_SIDE_FILES))
    return {path.name: path.read_bytes() for path in (seed, *(beside if target == "side-files" else ()))}


def _damaged_file(name: str, data: bytes, target: str, chance: random.Random) -> bytes:
    if target != "side-files":
        return damaged(data, chance)
    return data if name.endswith(".log") or chance.random() < 0.5 else mutated(data, chance)


def run_target(target: str, log: Path) -> None:
    """Run the command of a target over a segment. Raises its exception, or AssertionError for an unknown exit code."""
    done = result_of(target, log)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code in (0, 1, 2), (target, done.exit_code)


def result_of(target: str, log: Path) -> Result:
    """Return the exit code, the output and the exception of the command of a target over a segment."""
    words = {"{}": str(log.parent), "{}/LOG": str(log), "OUT": str(log.parents[1] / "out")}
    line = [words.get(word, word) for word in COMMANDS.get(target, COMMANDS["reader"]).split()]
    return CliRunner().invoke(kseg_main, line)


def _decompress(chance: random.Random) -> None:
    codec = chance.randint(1, 4)
    data = codecs.compress(codec, bytes(chance.choices(range(chance.choice((1, 4, 256))), k=chance.randint(0, 3_000))))
    for _ in range(chance.randint(1, 4)):
        data = mutated(data, chance)
    with suppress(codecs.CodecError):
        assert len(codecs.decompress(codec, data, limit=1 << 20)) <= 1 << 20


class EndlessError(BaseException):
    """A case takes too long. A TimeoutError is an OSError, and kseg would report a file that it can't read."""


def _endless(*_: object) -> NoReturn:
    raise EndlessError(f"more than {_ENDLESS} s")


def fuzz(seconds: float, seed: int, guide: Guide | None = None) -> tuple[Counter[str], list[str]]:
    """Run cases for some seconds, one of each target after the other. Return the executions and the failures."""
    executed: Counter[str] = Counter()
    failures: list[str] = []
    signal.signal(signal.SIGALRM, _endless)
    end, number = time.monotonic() + seconds, seed
    while time.monotonic() < end:
        for target in TARGETS:
            signal.alarm(_ENDLESS)
            try:
                run_case(target, number, REGRESSIONS, guide)
            except (Exception, EndlessError) as error:  # every exception is a fault of kseg
                failures.append(f"{target} {number}: {type(error).__name__}: {str(error)[:120]}")
                print(failures[-1], flush=True)
            finally:
                signal.alarm(0)
            executed[target] += 1
        number += 1
    return executed, failures


def main() -> None:
    os.environ["KSEG_DEBUG"] = "1"
    if sys.argv[1:2] == ["--case"]:
        run_case(sys.argv[2], int(sys.argv[3]))
        return
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    seconds, seed = float(words[0]), int(words[1]) if len(words) > 1 else 0
    guide = Guide() if "--guided" in sys.argv else None
    executed, failures = fuzz(seconds, seed, guide)
    if guide:
        print(f"{guide.reached():,} lines reached")
    each = ", ".join(f"{target} {count:,}" for target, count in executed.items())
    figure = f"{executed.total():,} executions in {seconds:g} s from seed {seed} ({each}): {len(failures)} failures"
    report("fuzz", figure)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
