"""Run commands as on a terminal of 88 columns, with a fixed time, and return their output.

``python -m tools.docs.terminal`` is a server: it imports kseg once, reads a request per line from stdin, runs it in a forked
child, and writes the result as a line. So a command takes milliseconds, and the process that asks is never forked.
"""

from __future__ import annotations

import gc
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from tools.docs.frozen import NOW, WRITTEN, freeze

WIDTH = 88
ROOT = Path(__file__).parents[2]
_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
#: A command with one of these runs in a shell.
_SHELL = re.compile(r"[|&;<>*$`\\\n]")
#: What follows the output of a command: no command writes it.
_END = b"\x1b[kseg-end]"
_WARM_UP = (["validate"], ["dump"], ["dump", "--deep", "--format", "jsonl"], ["dump", "--format", "hex"], ["recovery"])
_KEPT = ("KSEG_ENGINE", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV")


@dataclass(frozen=True, slots=True)
class Printed:
    """The output of a command: ``styled`` with the terminal's escape sequences, and the exit code."""

    styled: str
    code: int

    @property
    def text(self) -> str:
        """Return the output without styles, control characters, and spaces at the ends of lines."""
        plain = _CONTROLS.sub("", _STYLES.sub("", self.styled))
        return "\n".join(line.rstrip() for line in plain.split("\n")).strip("\n")


class Terminal:
    """A server process that runs commands. Use it in a ``with`` statement."""

    def __enter__(self) -> Terminal:
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        environment |= {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), environment.get("PYTHONPATH")))),
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm-256color",
            "TZ": "UTC",
        }
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tools.docs.terminal"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env=environment,
            text=True,
            encoding="utf-8",
        )
        return self

    def __exit__(self, *error: object) -> None:
        assert self._server.stdin
        self._server.stdin.close()
        self._server.wait(60)
        assert self._server.stdout
        self._server.stdout.close()

    def run(
        self,
        command: str,
        folder: Path,
        *,
        now: datetime = NOW,
        python: bool = False,
        width: int = 0,
        quiet: bool = False,
    ) -> Printed:
        """Run one command line, or with ``python`` a program, in ``folder`` at the time ``now``.

        ``width`` is the number of columns of the terminal, by default WIDTH. ``quiet`` drops stderr.
        """
        assert self._server.stdin
        assert self._server.stdout
        request: dict[str, Any] = {"command": command, "folder": str(folder), "now": now.timestamp(), "python": python}
        request |= {"width": width or WIDTH, "quiet": quiet}
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = json.loads(self._server.stdout.readline())
        return Printed(answer["output"], answer["code"])


def _serve() -> None:
    from click.testing import CliRunner

    from kseg.cli.main import main

    # The children inherit the modules that these commands import.
    for arguments in _WARM_UP:
        CliRunner().invoke(main, [*arguments, str(ROOT / "fixtures" / "segments" / "4.3.0-v2-none-transactions")])
    for name in ("box", "console", "progress", "style", "table", "text"):
        import_module(f"rich.{name}")
    gc.freeze()  # the children would copy each page whose objects their garbage collector visits
    for line in sys.stdin:
        output, code = _in_child(json.loads(line))
        print(json.dumps({"output": output, "code": code}), flush=True)


def _in_child(request: dict[str, Any]) -> tuple[str, int]:
    import fcntl
    import pty
    import struct
    import termios

    reader, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, request["width"], 0, 0))
    child = os.fork()
    if child == 0:
        os.close(reader)
        for descriptor in (0, 1, 2):
            os.dup2(terminal, descriptor)
        _run(request)
    statuses: list[int] = []
    written = b"".join(blocks_until_end(reader, terminal, lambda: statuses.append(os.waitpid(child, 0)[1])))
    return written.decode(errors="replace").replace("\r\n", "\n"), os.waitstatus_to_exitcode(statuses[0])


def blocks_until_end(reader: int, terminal: int, wait: Callable[[], object]) -> Iterator[bytes]:
    """Yield what is written to ``terminal`` until ``wait`` returns, and close both ends.

    The terminal stays open here while the command runs, and is not its controlling terminal: one that hangs up when the
    command ends can drop what was not read yet.
    """

    def end() -> None:
        wait()
        os.write(terminal, _END)

    waiting = threading.Thread(target=end)
    waiting.start()
    rest = b""
    while not rest.endswith(_END):
        rest += os.read(reader, 1 << 16)
        # The end may come in two pieces.
        kept = next(size for size in range(len(_END), -1, -1) if rest.endswith(_END[:size]))
        if block := rest[: len(rest) - kept]:
            yield block
        rest = rest[len(rest) - kept :]
    waiting.join()
    os.close(terminal)
    os.close(reader)


def _run(request: dict[str, Any]) -> None:
    """Run the request in the forked child, and end the child."""
    command = request["command"]
    os.chdir(request["folder"])
    for path in Path().rglob("*"):
        # Files of earlier commands are as old as the others: kseg reads files again that were written a moment ago.
        os.utime(path, (WRITTEN, WRITTEN))
    os.environ["HOME"] = request["folder"]
    os.environ["KSEG_DOCS_NOW"] = str(request["now"])
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
    if request["quiet"]:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    code: Any = 0
    try:
        if not request["python"] and (_SHELL.search(command) or not command.startswith("kseg ")):
            os.environ["PATH"] = f"{ROOT / 'tools' / 'docs' / 'bin'}{os.pathsep}{os.environ['PATH']}"
            os.environ["KSEG_DOCS_PYTHON"] = sys.executable
            os.execv("/bin/sh", ["sh", "-c", command])
        freeze(request["now"])
        if request["python"]:
            exec(compile(command, "example", "exec"), {"__name__": "__main__"})
        else:
            from kseg.cli.main import main

            sys.argv = shlex.split(command, comments=True)
            main(prog_name="kseg")
    except SystemExit as end:
        code = end.code
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 99
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    _serve()
