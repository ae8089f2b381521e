"""``--as NAME``: the kinds of files other than logs, and the paths to read as each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kseg.engine import imported
from kseg.errors import UsageError
from kseg.format.storage.source import STDIN, SegmentFile, is_folder

if TYPE_CHECKING:
    from kseg.format.wire.record_sets import Framing

# name -> "module:value" of its Framing, imported when it is needed.
FRAMINGS: Mapping[str, str] = {
    "message-set": "kseg.format.wire.record_sets:MESSAGE_SET",
    "message": "kseg.format.wire.single_message:BARE",
    "wide-crc": "kseg.format.wire.wide_crc:WIDE_CRC",
    "requests": "kseg.format.wire.connections:REQUESTS",
    "responses": "kseg.format.wire.connections:RESPONSES",
}


def framing(name: str) -> Framing:
    """Return the reader and the columns of one of FRAMINGS."""
    found: Framing = imported(FRAMINGS[name])
    return found


def framed_files(paths: Sequence[str], names: Sequence[str]) -> list[SegmentFile]:
    """Return the files to read, each with its framing: one name for all paths, or one name per path in their order.

    The first ``responses`` are the responses to the first ``requests``, and so on. Raises UsageError.
    """
    if len(names) not in (1, len(paths)):
        raise UsageError(f"--as: give it once, or once per PATH ({len(paths)}), got {len(names)}")
    for path in paths:
        if is_folder(path):
            raise UsageError(f"{path} is a folder: --as needs files")
    named = list(zip(paths, list(names) * len(paths) if len(names) == 1 else names, strict=True))
    requested = [path for path, name in named if name == "requests"]
    if requested and len(requested) != sum(name == "responses" for _, name in named) > 0:
        raise UsageError("each file of responses needs a file of requests, in the same order")
    if STDIN in requested and len(named) > len(requested):
        raise UsageError("requests for responses are read twice: give a file instead of standard input")
    questions = iter(requested)
    return [
        SegmentFile(path, framing=name, requests=next(questions, None) if name == "responses" else None)
        for path, name in named
    ]
