"""Sources and results of repairs."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.support.fixtures import SEGMENTS

FIRST = "00000000000000000000.log"


SOUND = SEGMENTS / "4.3.0-v2-none" / FIRST


def digests(*roots: Path) -> dict[Path, str]:
    files = [path for root in roots for path in ([root] if root.is_file() else root.rglob("*")) if path.is_file()]
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
