"""``kseg.scan``: a view of logs as an Arrow stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from kseg.errors import UnreadableError, UsageError
from kseg.findings import Finding, do_nothing
from kseg.lazy import lazy
from kseg.ranges import parse_offsets, parse_time
from kseg.text import unknown_name
from kseg.views import planning, reading, request, view_table

if TYPE_CHECKING:
    from kseg.views.scan import Scan
else:
    Scan = lazy("kseg.views.scan", "Scan")  # needs pyarrow

Path = str | os.PathLike[str]
Time = int | str | datetime


def scan(
    path: Path | Sequence[Path],
    view: str = "records",
    *,
    columns: Sequence[str] = (),
    text: bool = False,
    offsets: str | tuple[int | None, int | None] | None = None,
    since: Time | None = None,
    until: Time | None = None,
    verify_crc: bool = True,
    report: Callable[[str, Finding], object] = do_nothing,
    unread: Callable[[str], object] | None = None,
) -> Scan:
    """Return a view of segments as an Arrow stream, for DuckDB, Polars, pandas, pyarrow and other readers of Arrow.

    ``path`` is a segment, a partition folder, a log directory, a URL, or a list of these. ``view`` is records, batches,
    findings, segments or transactions. ``columns`` are names of its columns, all by default. With ``text``, keys, values and
    header values are text: UTF-8 as it is, other bytes in base64.

    ``offsets``, ``since`` and ``until`` limit records and batches: half-open ranges as in ``kseg dump``. ``offsets`` is
    ``(first, end)`` or text such as ``"5:10"``; times are epoch milliseconds, ISO 8601 or datetimes. Only the bytes are
    read that can hold them according to file names and indexes.

    Reading begins with the first pull; this function only opens the paths. Each stream begins at the start. Reading
    continues after damage: ``report`` is called with the path and each Finding, ``unread`` with a line for each file that
    cannot be read. Without ``unread`` such a file ends the stream with an error.

    Raises UsageError for wrong arguments or if pyarrow is not installed, and UnreadableError for a missing path.
    """
    if view not in view_table.VIEWS:
        raise UsageError(unknown_name("view", view, view_table.VIEWS))
    first, end = _offsets(offsets)
    wanted = view_table.columns_of(view, [columns] if isinstance(columns, str) else columns)
    asked = request.Request(
        tuple(os.fspath(one) for one in ([path] if isinstance(path, (str, os.PathLike)) else path)),
        view,
        view_table.as_text(wanted) if text else wanted,
        mode="dropmalformed",
        limits=request.RowLimits(None, None, first, end, _time("since", since), _time("until", until)),
        verify_crc=verify_crc,
    )
    found = Scan(asked, reading.Notices(lambda file, finding: report(file.path, finding), unread or _raise))
    planning.check_paths(asked)
    return found


def _raise(line: str) -> None:
    raise UnreadableError(line)


def _offsets(given: str | tuple[int | None, int | None] | None) -> tuple[int | None, int | None]:
    if not isinstance(given, str):
        return given or (None, None)
    try:
        return parse_offsets(given)
    except ValueError as error:
        raise UsageError(f"offsets: {error}") from None


def _time(name: str, given: Time | None) -> int | None:
    if given is None or isinstance(given, int):
        return given
    try:
        return parse_time(given.isoformat() if isinstance(given, datetime) else given)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None
