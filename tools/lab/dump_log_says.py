"""Update kafka-dump-log's answers for each damaged fixture: ``python -m tools.lab.dump_log_says``.

The answers are fixtures/kafka-dump-log.jsonl, from which the table in docs/comparison.md is made. It runs on copies: it
creates an empty ``.index`` next to a segment without one.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import tempfile
from pathlib import Path

from tools.lab.oracle import VERSION, run_java
from tools.make_findings import FINDINGS, settings_of

SAID = FINDINGS.parent / "kafka-dump-log.jsonl"
PROGRAM = Path(__file__).with_name("PeerOracle.java")
_NOT_SHOWN = {"expect.jsonl", "ORIGIN", "settings.json"}
# Lines without a report of damage: the content of a file, and its name.
_CONTENTS = re.compile(
    r"Dumping |Log starting offset|Snapshot end offset|baseOffset:|\| |producerId:|timestamp:|offset:|version:|SLF4J:"
)
_GAP = re.compile(r"Non-consecutive offsets|  -?\d+ is followed by")
_WIDTH = 110


def rows() -> list[dict[str, object]]:
    """A row for each folder of fixtures/findings: the exit code of one run over its files, and its words on damage."""
    with tempfile.TemporaryDirectory() as temporary:
        copies = Path(temporary) / "findings"
        shutil.copytree(FINDINGS, copies)
        runs = {
            ",".join(map(str, _files(folder))): folder.name
            for folder in sorted(copies.iterdir())
            if folder.is_dir() and "framing" not in settings_of(folder)  # it knows nothing but logs
        }
        printed = run_java(VERSION, str(PROGRAM), list(runs))
        answers = [line.split("\t") for line in printed.splitlines()]
        return [
            {"folder": runs[files], "exit": int(code), "says": _words(base64.b64decode(text).decode(), copies)}
            for files, code, text in answers
        ]


def _files(folder: Path) -> list[Path]:
    own = sorted(path for path in folder.iterdir() if path.is_file() and path.name not in _NOT_SHOWN)
    return own or sorted(folder.rglob("*.log"))


def _words(text: str, copies: Path) -> str:
    """Return the lines about damage, shortened and without file names; empty without damage.

    Files come in any order in the list of gaps, and one before the first offset is reported for every segment not
    based at 0.
    """
    reported = ["isvalid: false"] if "isvalid: false" in text else []
    reported += [
        f"Non-consecutive offsets: {gap}" for gap in sorted(re.findall(r"^  (\d+ is followed by \d+)$", text, re.M))
    ]
    for line in text.splitlines():
        if not line.strip() or _CONTENTS.match(line) or _GAP.match(line):
            continue
        named = line.replace(f"{copies}/", "")
        named = re.sub(r"^(?:[a-z]\w*\.)+(?=[A-Z])", "", named)  # an exception's package
        named = re.sub(r"(?<=NoSuchFileException: ).*", "its log is missing", named)
        named = re.sub(r"(?: in| in file| of| at the end of| are not found in)? ?:?(?:[a-z-]+/)?\d{20}\S*", "", named)
        named = re.sub(r"(?<= file )[a-z-]+/", "", named)
        reported.append(" ".join(named.split()))
    return "; ".join(line if len(line) <= _WIDTH else line[: _WIDTH - 1] + "…" for line in reported[:2])


if __name__ == "__main__":
    SAID.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows()), encoding="utf-8")
