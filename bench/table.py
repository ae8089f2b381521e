"""Write the table of figures and goals as Markdown into the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from bench.cases import Case, Goal
from bench.measure import BenchError, Run, machine

#: The marker of the table of ``make bench``.
MARKER = "bench"
PROCESSES = "wall-clock medians of whole processes (of the loop alone for columns)."
_HEAD = (
    "| case | kseg | | against | | figure | spread | goal | held | peak |",
    "|---|---|--:|---|--:|--:|--:|---|---|--:|",
)


@dataclass(frozen=True, slots=True)
class Row:
    """One measured goal of a case. ``values`` has the figure of each round; ``missing`` is the reason if there are none."""

    case: str
    goal: Goal
    values: tuple[float, ...] = ()
    ours: tuple[Run, ...] = ()
    peer: tuple[Run, ...] = ()
    missing: str = ""

    @property
    def held(self) -> bool | None:
        """Return whether the median reaches the goal; None without a goal or a measurement."""
        return self.goal.holds(median(self.values)) if self.values else None


def rows_of(
    case: Case, runs: Mapping[str, Sequence[Run]], missing: Sequence[str], failed: Mapping[str, str]
) -> list[Row]:
    """Return one row per goal. A figure is computed from two runs of the same round.

    ``missing`` has the reasons why contenders could not be started, ``failed`` by name why others failed.
    """
    rows = []
    for goal in case.goals:
        ours, peer = tuple(runs.get(goal.ours, ())), tuple(runs.get(goal.peer, ()))
        values = tuple(goal.figure.of(one, other) for one, other in zip(ours, peer, strict=False))
        reasons = [failed[name] for name in (goal.ours, goal.peer) if name in failed] or missing or ["not measured"]
        why = "" if values else "; ".join(reason.splitlines()[0] for reason in reasons)
        rows.append(Row(case.name, goal, values, ours, peer, why))
    return rows


def line(row: Row) -> str:
    """Return a row in Markdown. Times and figures are medians over the rounds; the spread is minimum and maximum."""
    goal = row.goal
    if not row.values:
        cells = [row.case, goal.ours, "", goal.peer, "", row.missing, "", goal.text, "", ""]
    else:
        held = {True: "yes", False: "**no**", None: ""}[row.held]
        peak = max(run.peak for run in row.ours) / 1e6
        cells = [
            *(row.case, goal.ours, _seconds(row.ours), goal.peer, _seconds(row.peer)),
            goal.figure.written.format(median(row.values)),
            f"{min(row.values):.2f} to {max(row.values):.2f}",
            *(goal.text, held, f"{peak:.0f} MB"),
        ]
    return "| " + " | ".join(cells) + " |"


def table(rows: Iterable[Row], engine: str, rounds: int, how: str = PROCESSES) -> str:
    """Return the table with its date, its machine and ``how`` it was measured."""
    rows = list(rows)
    promised = [row for row in rows if row.goal.text]
    held = sum(row.held is True for row in promised)
    heading = (
        f"{datetime.now(UTC):%Y-%m-%d}, {machine()}; {engine}. At most {rounds} rounds, taking turns; {how}"
        f" {held} of {len(promised)} goals held."
    )
    return "\n".join([heading, "", *_HEAD, *(line(row) for row in rows)]) + "\n"


def write(page: Path, text: str, marker: str = MARKER) -> None:
    """Put the table between the page's markers. Raises BenchError without markers."""
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    opening, closing = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
    before, begin, rest = old.partition(opening)
    _, end, after = rest.partition(closing)
    if not begin or not end:
        raise BenchError(f"{page.name} has no {opening} … {closing}")
    page.write_text(f"{before}{opening}\n{text}{closing}{after}", encoding="utf-8")


def _seconds(runs: Sequence[Run]) -> str:
    return f"{median(run.wall for run in runs):.2f} s"
