"""Archives of loaded classes (JEP 350): a JVM that starts with one needs two thirds of the processor time, or less.

An archive is made once and kept in ``.lab``, as Kafka's jars are. Its name contains a hash of the Java and of the jars.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tools.lab import maven


def flags(name: str, jars: Iterable[Path], train: Callable[[list[str], Path], object]) -> list[str]:
    """Return the JVM's flags for the archive of these jars; empty if no archive can be made.

    ``train`` starts a JVM with the given flags and ends it in order, in a temporary folder: the archive has the classes
    that it loaded. Their class path must begin like those of the JVMs that use the archive. Otherwise they ignore it.
    """
    java = _java()
    if java is None:
        return []
    files = sorted(jars)
    state = [java, *(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)]
    archive = maven.LAB / f"{name}-{hashlib.sha256(repr(state).encode()).hexdigest()[:12]}.jsa"
    failed = archive.with_suffix(".failed")
    if not archive.exists() and not failed.exists():
        maven.LAB.mkdir(parents=True, exist_ok=True)
        with archive.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # processes of one test run ask for the same archive
            if not archive.exists():
                with tempfile.TemporaryDirectory(dir=maven.LAB) as folder:
                    made = Path(folder) / archive.name
                    train([*maven.QUICK, f"-XX:ArchiveClassesAtExit={made}", *_QUIET], Path(folder))
                    if made.exists():
                        made.replace(archive)
                    else:
                        failed.touch()
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive.exists() else []


#: A JVM that cannot use the archive starts without it, and without a message.
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")


def _java() -> str | None:
    """Return what distinguishes the Java that JAVA_HOME or PATH names, None without one."""
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None or not os.access(found, os.X_OK):
        return None
    release = Path(found).resolve().parents[1] / "release"
    return f"{Path(found).resolve()} {release.read_text(encoding='utf-8') if release.exists() else ''}"
