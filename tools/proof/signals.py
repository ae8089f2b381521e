"""``python -m tools.proof.signals [TIMES]``: Ctrl-C at each 1.25 ms from the start of kseg.

The first milliseconds belong to Python, before it reads a line of kseg: its own traceback then is counted apart.
``--write`` keeps the figure for the page of proof.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tools.proof.figures import report

_SEGMENT = Path(__file__).parents[2] / "fixtures" / "segments" / "4.3.0-v2-lz4-compacted" / "00000000000000000000.log"
_COMMANDS = (["--version"], ["validate", str(_SEGMENT)])
_STEP = 0.00125
#: Python reports an interrupt by one of these; without a line of code that runs, by the last one alone.
_REPORTS = ("Traceback", "rror", "KeyboardInterrupt")
#: A report that names one of these is of kseg. kseg's finder of an editable installation is the installer's.
_OURS = ("/kseg/", "kseg_script.py", "internal error")


def ended(command: list[str], delay: float) -> str:
    """Interrupt a command after ``delay`` seconds; return "complete", "interrupted", "python" or "fault"."""
    started = subprocess.Popen(
        [Path(sys.executable).with_name("kseg"), *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(delay)
    started.send_signal(signal.SIGINT)
    messages = started.communicate()[1]
    if any(word in messages for word in _REPORTS):
        found = "fault" if any(name in messages for name in _OURS) else "python"
    else:
        found = {0: "complete", 130: "interrupted", -signal.SIGINT: "interrupted"}.get(started.returncode, "fault")
    if found == "fault":
        print(f"after {delay:.5f} s: exit code {started.returncode}\n{messages}", file=sys.stderr)
    return found


def main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    words = [word for word in sys.argv[1:] if word != "--write"]
    times = int(words[0]) if words else 200
    found = Counter(ended(command, _STEP * number) for command in _COMMANDS for number in range(times))
    figure = (
        f"{found.total()} signals, one each {1000 * _STEP:g} ms: {found['interrupted']} ended the command, "
        f"{found['complete']} came after its end, {found['python']} came before Python had read a line of kseg, "
        f"{found['fault']} gave a traceback of kseg or another exit code"
    )
    report("signals", figure)


if __name__ == "__main__":
    main()
