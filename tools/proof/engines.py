"""``python -m tools.proof.engines SECONDS [SEED]``: the cases of the fuzzer on both engines, which must say the same.

The compiled modules run in this process, plain Python in another. What a command prints, its exit code and the files that it
writes are compared. A case that differs is its target and its number, as in ``tools.proof.fuzz``. ``--write`` keeps the
figure for the page of proof.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from itertools import count, takewhile
from pathlib import Path

from kseg.engine import engine
from tools.proof.figures import report
from tools.proof.fuzz import COMMANDS, MEMORY, make_case, result_of

TARGETS = (*COMMANDS, "side-files")


def digest(target: str, number: int) -> str:
    """Return a digest of all that a case leaves, without the path of its folder."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as temporary:
        log = make_case(target, random.Random(f"{target} {number}"), Path(temporary))
        done = result_of(target, log)
        found = hashlib.sha256(f"{done.exit_code} {done.output.replace(temporary, '')}".encode())
        for path in sorted(path for path in Path(temporary).rglob("*") if path.is_file()):
            found.update(str(path.relative_to(temporary)).encode() + path.read_bytes())
    return found.hexdigest()


def compare(numbers: Iterable[int], seconds: float = math.inf) -> tuple[Counter[str], list[str]]:
    """Run the cases of these numbers on both engines. Return the cases of each target, and those that differ.

    After ``seconds`` no number is begun. Raises ValueError if this process runs plain Python.
    """
    if engine() != "compiled":
        raise ValueError("nothing is compiled here")
    compared, different = Counter[str](), list[str]()
    command = [sys.executable, "-m", "tools.proof.engines", "--answer"]
    environment = {**os.environ, "KSEG_ENGINE": "python"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as plain:
        assert plain.stdin is not None
        assert plain.stdout is not None
        end = time.monotonic() + seconds
        for number in takewhile(lambda _: time.monotonic() < end, numbers):
            for target in TARGETS:
                print(target, number, file=plain.stdin, flush=True)
                if digest(target, number) != plain.stdout.readline().strip():
                    different.append(f"{target} {number}")
                    print(f"{different[-1]}: the engines differ", flush=True)
                compared[target] += 1
        plain.stdin.close()
    return compared, different


def main() -> None:
    if sys.argv[1:] == ["--answer"]:
        for line in sys.stdin:
            target, number = line.split()
            print(digest(target, int(number)), flush=True)
        return
    words = [word for word in sys.argv[1:] if word != "--write"]
    seconds, seed = float(words[0]), int(words[1]) if len(words) > 1 else 0
    compared, different = compare(count(seed), seconds)
    report(
        "engines",
        f"{compared.total():,} cases of {len(compared)} targets in {seconds:g} s from seed {seed}: {len(different)} on"
        " which the engines differ",
    )
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
