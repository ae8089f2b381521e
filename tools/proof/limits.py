"""``python -m tools.proof.limits [NAME...]``: the memory and the CPU time of commands over files made to cost much.

Each command runs under RLIMIT_AS and RLIMIT_CPU. ``--write`` keeps the figures for the page of proof.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.measure import launcher
from tools.proof.bombs import BOMBS, LOG
from tools.proof.figures import report

#: What no command may take for a file below 1 MB.
MOST_BYTES, MOST_SECONDS = 300 << 20, 10
#: The limits of the system: above what may be taken, so that the excess is measured.
_ADDRESS_SPACE, CPU_SECONDS = 4 << 30, 15
_ROOT = Path(__file__).parents[2]


class Cost(NamedTuple):
    bomb: str
    command: str
    seconds: float
    peak: int
    code: int
    error: str

    @property
    def failed(self) -> bool:
        return (
            self.seconds > MOST_SECONDS
            or self.peak > MOST_BYTES
            or self.code not in (0, 1, 2)
            or "internal error" in self.error
            or "Traceback" in self.error
        )


_LIMITED = f'ulimit -v {_ADDRESS_SPACE >> 10}; ulimit -t {CPU_SECONDS}; exec "$0" "$@"'


def run(line: list[str], folder: Path) -> tuple[float, int, int, str]:
    """Run kseg under limits; return its CPU seconds, its peak resident bytes, its exit code and its messages.

    Child processes count.
    """
    with (folder / "messages").open("w+b") as messages, (folder / "output").open("wb") as out:
        subprocess.run(
            [*launcher(folder / "usage"), "sh", "-c", _LIMITED, sys.executable, "-m", "kseg", *line], check=True, stdout=out,
            stderr=messages, cwd=folder, env={**os.environ, "TMPDIR": str(folder), "PYTHONPATH": str(_ROOT)},
        )  # fmt: skip
        messages.seek(0)
        text = messages.read().decode(errors="replace")
    (folder / "output").unlink()
    usage = json.loads((folder / "usage").read_text())
    return usage["cpu"], usage["peak"], usage["code"], text


def costs(names: list[str]) -> Iterator[Cost]:
    """Yield the cost of each command over each bomb."""
    for name in names or BOMBS:
        make, commands = BOMBS[name]
        with tempfile.TemporaryDirectory() as temporary:
            path = make(Path(temporary))
            copy = Path(temporary) / "copy" / path.name
            schema = "schema.proto" if (Path(temporary) / "schema.proto").exists() else "schema.avsc"
            if path.is_dir() and any("COPY" in command for command in commands):
                shutil.copytree(path, copy)
            for number, command in enumerate(commands):
                words = {"{}": path, "OUT": Path(temporary) / f"out{number}", "{S}": Path(temporary) / schema,
                         "LOGS": Path(temporary) / "logs", "COPY": copy}  # fmt: skip
                line = [str(words.get(word, word)) for word in shlex.split(command)]
                if not {"{}", "LOGS", "/dev/zero"} & set(shlex.split(command)):
                    line.append(str(_named(line[0], path)))
                yield Cost(name, command, *run(line, Path(temporary)))


def _named(command: str, path: Path) -> Path:
    """Return what a command reads of a bomb: a log directory, a file, or the partition or archive itself."""
    if path.is_dir() and command in ("recovery", "doctor", "adopt"):
        return path.parent
    if path.is_dir() and command in ("carve", "explain"):
        return path / LOG
    return path


def main() -> None:
    names = [name for name in sys.argv[1:] if name != "--write"]
    found = []
    for cost in costs(names):
        found.append(cost)
        mark = "TOO MUCH" if cost.failed else ""
        print(
            f"{cost.bomb:28} {cost.command[:44]:44} {cost.seconds:6.2f} s {cost.peak >> 20:5} MB {cost.code:4} {mark}",
            flush=True,
        )
        if mark or cost.code == 2:
            print("   ", cost.error.strip()[-160:], flush=True)
    failed = [cost for cost in found if cost.failed]
    figure = (
        f"{len(found)} commands over {len(names) or len(BOMBS)} hostile files below 1 MB: at most "
        f"{max(cost.seconds for cost in found):.1f} s of CPU and {max(cost.peak for cost in found) >> 20} MB; "
        f"{sum(cost.code == 2 for cost in found)} ended early with exit code 2 and a message; "
        f"{len(failed)} above {MOST_SECONDS} s or {MOST_BYTES >> 20} MB"
    )
    figure += "".join(f", {count} of {name}" for name, count in Counter(cost.bomb for cost in failed).items())
    report("limits", figure)


if __name__ == "__main__":
    main()
