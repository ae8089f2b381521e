"""What to do about the differences between two replicas: the advice of ``kseg diff``."""

from __future__ import annotations

from collections.abc import Iterator

from kseg.commands.diff.differences import Comparison
from kseg.schema import Row
from kseg.text import count_of, shell_word

# Ranges that the advice names; the JSON Lines row has more.
_NAMED = 3
_OTHER = {"a": "b", "b": "a"}
_REPLACE = "stop its broker, move its partition folder away and start the broker: it fetches the log from the leader."
_EXPORT = "write what only it has to files (`kseg diff --export DIR OTHER KEPT`),"
_MERGE = "`kseg repair A B NEW` writes a partition with the valid batches of both, as far as they have one history."
_CAUSES = {
    "starts-later": "retention deleted the first records of {}",
    "ends-earlier": "{} is a follower that lags",
    "missing": "compaction deleted the records of {}",
}


def advice(row: Row, result: Comparison) -> Iterator[str]:
    """Yield what to do about the differences of an outcome row."""
    verdict = row["verdict"]
    damaged = [name for name in _OTHER if row["damaged_places"][name]]
    if verdict == "same":
        yield "Nothing: the records are equal."
    if verdict == "disjoint":
        yield "Check that both are replicas of one partition."
    if result.first_difference is not None:
        at = result.first_difference.first_offset
        look = f"Look at the records (`kseg dump --deep --offsets {at}:{at + 10} PATH`) and"
        if len(damaged) == 2:
            yield f"{look} decide which replica has the right ones."
        else:
            yield f"{look} keep the replica with the right ones. To replace the other one, {_EXPORT} {_REPLACE}"
    if len(damaged) == 2:
        yield from _both_damaged(row, result)
    elif damaged and result.first_difference is None:
        yield from _one_damaged(damaged[0], result)
    if verdict == "undetermined":
        yield "Compare the records: leave out --shallow."
    if verdict == "consistent":
        causes = (_CAUSES[kind].format(replica) for kind, replica in result.lacking)
        yield f"Nothing if {', and '.join(causes)}. Otherwise replace the replica that lacks records: {_REPLACE}"


def _one_damaged(name: str, result: Comparison) -> Iterator[str]:
    yield f"Replace {name}: {_REPLACE} Without a valid replica, `kseg repair` keeps the valid batches of {name}."
    if only_here := _lacked(result, _OTHER[name]):
        yield (
            f"{_OTHER[name]} lacks {count_of(only_here, 'record')} that {name} has: if they are needed, do not replace "
            f"{name} by a copy of {_OTHER[name]}. {_MERGE}"
        )


def _both_damaged(row: Row, result: Comparison) -> Iterator[str]:
    """Yield the advice for two damaged replicas: a copy of one must not replace the only copy of records in the other."""
    if row["together"]["lost_in_both_ranges"]:
        yield "Search for the offsets that neither can read in a third replica, a backup or remote storage."
    if result.whole is None:
        yield "Keep both replicas and compare the records: leave out --shallow."
        return
    lacked = {name: _lacked(result, name) for name in _OTHER}
    if all(lacked.values()) or result.first_difference is not None:
        yield "Keep both replicas. Copy both folders before a broker starts with them."
        if all(lacked.values()):
            yield "Do not replace one by a copy of the other: each has records that the other lacks."
        fewer = min(_OTHER, key=lambda name: lacked[name])
        few = lacked[fewer], lacked[_OTHER[fewer]]
        least = f" {fewer} lacks fewer records: {few[0]:,}, {_OTHER[fewer]} {few[1]:,}." if few[0] < few[1] else ""
        yield f"{_MERGE}{least}"
        for name in _OTHER:
            if row["together"][f"only_in_{_OTHER[name]}"]:
                yield _where(row, name)
        yield "A third replica that is valid can replace both."
        return
    third = "A third replica that is valid can replace both. Without one,"
    name = min(_OTHER, key=lambda name: lacked[name])
    if lacked[_OTHER[name]]:
        yield (
            f"Keep {name}: it has each record that {_OTHER[name]} has. {third} `kseg repair` keeps the valid batches of "
            f"{name}, and only then a copy of {name} can replace {_OTHER[name]}."
        )
        if row["together"][f"only_in_{name}"]:
            yield _where(row, _OTHER[name])
    else:
        yield f"Both replicas have the same records. {third} `kseg repair` keeps the valid batches of either."


def _lacked(result: Comparison, name: str) -> int:
    """Return the number of records that replica ``name`` lacks."""
    return sum(count for (_, replica), count in result.lacking.items() if replica == name)


def _where(row: Row, name: str) -> str:
    """Return where the other replica has the records that ``name`` has lost, and a command that shows the first ones."""
    other = _OTHER[name]
    ranges = row["together"][f"only_in_{other}"]
    places = [
        f"{range_text(one)} ({one['file'].rpartition('/')[2]} from byte {one['position']} on)"
        for one in ranges[:_NAMED]
    ]
    more = row["together"][f"only_in_{other}_ranges"] - len(places)
    first = ranges[0]
    command = f"kseg dump --deep --offsets {first['first_offset']}:{first['last_offset'] + 1}"
    return (
        f"{other} has the offsets that {name} has lost: {', '.join(places)}{_more(more)}. "
        f"`{command} {shell_word(row[other]['path'])}` shows the {'first ' if len(ranges) > 1 else ''}records."
    )


def together_text(row: Row) -> str:
    """Return which offsets two damaged replicas have together, and which neither has; empty if there is nothing to say."""
    together = row["together"]
    count = together["lost_in_both_ranges"]
    if count:
        ranges = together["lost_in_both"][:_NAMED]
        return f"neither replica can read offsets {', '.join(map(range_text, ranges))}{_more(count - len(ranges))}"
    if together["whole"] and together["last_offset"] is not None and all(row["damaged_places"].values()):
        return f"together the replicas have all offsets {together['first_offset']}..{together['last_offset']}"
    return ""


def _more(count: int) -> str:
    return f" and {count_of(count, 'more range')}" if count else ""


def range_text(one: Row) -> str:
    """Return ``A..B``, one offset, or ``from A on`` and ``up to B`` if an end is not known."""
    first, last = one["first_offset"], one["last_offset"]
    if last is None:
        return "at the end" if first is None else f"from {first} on"
    if first is None:
        return f"up to {last}"
    return f"{first}" if first == last else f"{first}..{last}"
