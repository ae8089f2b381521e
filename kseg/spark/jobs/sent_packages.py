"""Send kseg and its libraries to the executors of a cluster, as an archive that Spark unpacks next to each of them."""

from __future__ import annotations

import importlib.util
import re
import tarfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

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
            archive.add(path, arcname=path.name, filter=_without_bytecode)


def _without_bytecode(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if entry.name.endswith("__pycache__") else entry


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
