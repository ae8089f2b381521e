"""What comes from a file is data: text without what could steer a terminal."""

from __future__ import annotations

import re

# C0, DEL, C1, and the marks that turn text around.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def escape_controls(text: str) -> str:
    r"""Text with what could steer a terminal as ``\xNN`` or ``\uNNNN``."""
    return _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], text)


def escape_json(text: str) -> str:
    """JSON that is safe on a terminal: JSON itself escapes C0, this the rest."""
    return _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
