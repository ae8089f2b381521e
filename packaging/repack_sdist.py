"""Give the members of an sdist the time SOURCE_DATE_EPOCH, no owner and a fixed order: ``repack_sdist.py FILE.tar.gz``."""

import gzip
import io
import os
import sys
import tarfile
from pathlib import Path


def repack(path: Path, epoch: int) -> None:
    """Replace the archive by one whose bytes depend only on the names, modes and content of its members."""
    tarred = io.BytesIO()
    with tarfile.open(path) as old, tarfile.open(fileobj=tarred, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() or member.mode & 0o100 else 0o644, {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with path.open("wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=epoch) as packed:
        packed.write(tarred.getvalue())


if __name__ == "__main__":
    repack(Path(sys.argv[1]), int(os.environ["SOURCE_DATE_EPOCH"]))
