"""A hook of MkDocs: each rule that output and tables name is a link to its page."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

RULES = {path.stem for path in (Path(__file__).parents[2] / "docs" / "reference" / "rules").glob("*.md")} - {"index"}
_NAME = re.compile(r"(?P<before>K\d{3} |<code>)(?P<name>[a-z]+(?:-[a-z0-9]+)+)(?P<after>\b)")
#: Code within a link is a link already.
_LINK = re.compile(r"(<a [^>]*>.*?</a>)", re.DOTALL)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Return the page with links to the pages of rules."""

    def link(match: re.Match[str]) -> str:
        name = match["name"]
        target = f"reference/rules/{name}.html"
        if name not in RULES or target == page.url:
            return match[0]
        path = posixpath.relpath(target, posixpath.dirname(page.url) or ".")
        return f'{match["before"]}<a href="{path}">{name}</a>{match["after"]}'

    parts = _LINK.split(html)
    return "".join(part if at % 2 else _NAME.sub(link, part) for at, part in enumerate(parts))
