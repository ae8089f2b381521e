"""The rule for every file that kseg writes: it harms no file of Kafka, no input, and no other output.

- An input is never replaced, and nothing is written into an input folder.
- A file that is Kafka's by its name or its content is never replaced, nor is a backup copy by its name.
- No file is written twice in a run, and only one output is on standard output.
- No report gets a name that a broker reads, and nothing is written where a broker would fail to start because of it.
- DST of ``convert`` and ``repair`` is the only output that can be a segment. It is never in a log directory or a partition
  folder of a broker. ``--force`` replaces an earlier result, no other segment.

Paths are compared as files: symbolic links, other spellings and hard links of an input are the input.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from kseg.errors import KsegError, UnreadableError, UsageError
from kseg.findings import Finding
from kseg.format.record.framing import plausible
from kseg.format.record.layout import INT32_MAX
from kseg.format.sidefiles import registry
from kseg.format.storage import remote_files
from kseg.format.storage.atomic_write import is_result
from kseg.format.storage.local_files import open_file
from kseg.format.storage.naming import is_log, is_segment_stem, is_url, partition_of, without_file_scheme
from kseg.format.storage.source import STDIN, open_source
from kseg.format.writer.output_guards import index_paths

# A broker reads the number before these suffixes, and does not start if there is none (LogLoader, ProducerStateManager).
_PARSED = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".deleted", ".cleaned", ".swap")
# Each log directory has one of these, and each partition folder since Kafka 0.11. Other programs have a .lock, too, and a
# repaired log directory a log-start-offset-checkpoint.
_OF_LOG_DIR = re.compile(
    r"meta\.properties|\.kafka_cleanshutdown|bootstrap\.checkpoint|(?!log-start)[a-z-]+-offset-checkpoint"
)
_OF_PARTITION = re.compile(r"leader-epoch-checkpoint|partition\.metadata")
# The names of copies that people keep before they change a file. The bytes of an index do not show its kind.
_BACKUP = re.compile(r"(?:\.(?:bak|backup|old|orig|save|copy)\d*|~)$", re.IGNORECASE)
# The largest side file whose content is looked at, and the bytes at the start of a file that show a batch.
_LARGEST, _HEAD = 1 << 20, 4096


def check_output(output: str, inputs: Iterable[str], option: str = "-o") -> None:
    """Raise UsageError if writing a report, a table or a state to ``output`` could do harm. A pipe or a device is allowed.

    ``option`` names the output in messages.
    """
    output = without_file_scheme(output)
    hint = _FORGOTTEN.format(option=option) if output.lower().endswith(".log") else ""
    if is_url(output):
        _check_object(output, inputs, option, hint)
        return
    present = os.stat(output) if os.path.exists(output) else None
    for path in inputs:
        _check_not_input(output, present, path, hint or f": give another {option}")
    if present and stat.S_ISDIR(present.st_mode) and option != "-o":  # with --spark, -o writes a folder
        raise UsageError(f"{output} is a folder: {option} writes a file{hint}")
    if present and not stat.S_ISREG(present.st_mode) and not stat.S_ISDIR(present.st_mode):
        if stat.S_ISBLK(present.st_mode):
            raise UsageError(f"{output} is a block device: {option} would overwrite a disk")
        return
    for place in dict.fromkeys((os.path.abspath(output), os.path.realpath(output))):
        folder, name = os.path.split(place)
        if registry.is_kafka_name(name):
            does = "replaces a file of Kafka" if present else "writes a file that a broker would read"
            raise UsageError(f"{output}: {option} never {does}: give another name{hint}")
        if name.lower().endswith(_PARSED) and _is_partition_folder(folder):
            raise UsageError(f"{output}: a broker does not start with a file of this name in a partition folder{hint}")
    if present and stat.S_ISREG(present.st_mode) and present.st_size:
        _check_replaced(output, option, hint)
    if output.endswith(os.sep) and not present:
        raise UsageError(f"{output}: expected a file, not a folder")
    parent = os.path.dirname(output.rstrip(os.sep))
    if parent and not os.path.isdir(parent):
        raise UsageError(f"{output}: {parent} is not a folder")


def check_distinct(outputs: Iterable[str]) -> None:
    """Raise UsageError if two outputs of a run are one file, or standard output. /dev/null and a terminal lose nothing."""
    seen: set[str] = set()
    for output in outputs:
        local = without_file_scheme(output)
        path = local if local == STDIN or is_url(local) else os.path.realpath(local)
        if path in seen and (path == STDIN or not os.path.exists(path) or os.path.isfile(path)):
            named = "standard output" if output == STDIN else output
            raise UsageError(f"{named} is used twice: give each output a file of its own")
        seen.add(path)


def _check_object(output: str, inputs: Iterable[str], option: str, hint: str) -> None:
    """Raise UsageError if writing an object could do harm. Raises UnreadableError if the store does not answer."""
    folder, _, name = output.rpartition("/")
    if not name or folder.endswith("/"):
        raise UsageError(f"{output}: expected the URL of a file below a bucket")
    for path in filter(is_url, inputs):
        own = _without_variants(path.rstrip("/"))
        if _without_variants(output) in files_of_segment(own) or _without_variants(output).startswith(f"{own}/"):
            raise UsageError(
                f"{output} is an input, or in one: inputs are never changed{hint or f': give another {option}'}"
            )
    if registry.is_kafka_name(name) or (name.lower().endswith(_PARSED) and partition_of(folder.rpartition("/")[2])):
        raise UsageError(f"{output}: {option} never writes a file that a broker would read: give another name{hint}")
    kind = remote_files.kind_of(output)
    if kind == "folder":
        raise UsageError(f"{output} is a folder: {option} writes a file{hint}")
    if kind:
        _check_replaced(output, option, hint)


def _check_replaced(output: str, option: str, hint: str) -> None:
    """Raise UsageError for a file or an object that is never replaced."""
    if _BACKUP.search(output):
        raise UsageError(f"{output}: by its name it is a backup copy, which {option} never replaces: give another name")
    if _is_kafkas(output):
        raise UsageError(f"{output}: by its content it is a file of Kafka, which {option} never replaces{hint}")


def _without_variants(url: str) -> str:
    """Return a URL with the first of several schemes of one store."""
    return re.sub("^s3[an]://", "s3://", url, flags=re.IGNORECASE)


_FORGOTTEN = ". If its name was forgotten, the shell has put the first file of *.log in its place: write {option} FILE"


def check_output_folder(output: str, inputs: Iterable[str], option: str) -> None:
    """Raise UsageError if writing files into the folder ``output``, which may not exist yet, could do harm."""
    paths = list(inputs)
    if is_url(output):
        raise UsageError(f"{option}: expected a folder on disk, got {output}")
    if os.path.basename(output.rstrip(os.sep)) == STDIN:
        raise UsageError(f"{option}: expected a folder, got {output!r}")
    real = Path(os.path.realpath(output))
    if real.exists() and not real.is_dir():
        raise UsageError(f"{output} is a file: {option} writes a folder")
    for path in paths:
        _check_not_input(output, real.stat() if real.exists() else None, path, f": give another {option}")
        if Path(os.path.realpath(path)).is_relative_to(real):
            raise UsageError(f"{output} contains the input {path}: give another {option}")
    if registry.is_kafka_name(real.name):
        raise UsageError(f"{output}: a broker would read a file of this name: give another {option}")
    check_not_of_broker(real, output)


def check_not_of_broker(real: Path, shown: str | Path) -> None:
    """Raise UsageError if a folder of results is a broker's, or in a log directory or a partition folder of a broker."""
    if _holds(real, _OF_LOG_DIR):
        raise UsageError(f"{shown} is a log directory of a broker: {_ELSEWHERE}")
    if _holds(real.parent, _OF_LOG_DIR):
        raise UsageError(f"{shown} is in {real.parent}, a log directory of a broker: {_ELSEWHERE}")
    if _holds(real.parent, _OF_PARTITION):
        raise UsageError(f"{shown} is in {real.parent}, a partition folder of a broker: {_ELSEWHERE}")


_ELSEWHERE = "give a folder elsewhere, and move the result while the broker is stopped"


def check_dst_url(target: str) -> None:
    """Raise UsageError if objects at ``target``, the URL of DST, could do harm. Raises UnreadableError."""
    folder, _, name = target.rstrip("/").rpartition("/")
    remote_files.forget(folder)
    if remote_files.kind_of(folder) != "folder":
        return
    for other, _ in remote_files.entries(folder):
        if _OF_LOG_DIR.fullmatch(other):
            raise UsageError(f"{target} is in {folder}, a log directory of a broker: {_ELSEWHERE}")
        if _OF_PARTITION.fullmatch(other) or (name.endswith(".log") and registry.is_kafka_name(other)):
            raise UsageError(f"{target} is next to {other}, so it would be a segment of that partition: {_ELSEWHERE}")


def check_dst(source: str, target: Path, given: str, *, force: bool, keeps_log: bool = False) -> None:
    """Raise UsageError if writing ``target``, which was ``given`` as DST, could do harm.

    With ``keeps_log`` only the indexes of ``target`` are written.
    """
    name = target.name
    if (
        name == STDIN
        or name.endswith(registry.segment_suffixes())
        or (registry.is_kafka_name(name) and not is_log(name))
    ):
        raise UsageError(f"{target}: expected a .log file or a folder as DST")
    real, first = Path(os.path.realpath(target)), Path(os.path.realpath(without_file_scheme(source)))
    if os.path.exists(first):
        if first == real or (real.exists() and os.path.samefile(first, real)):
            raise UsageError(f"{target} is SRC itself: give another DST")
        if first.is_dir() and _is_in(real, first):
            raise UsageError(f"{target} is in SRC: inputs are never changed")
        if first.is_relative_to(real):
            raise UsageError(f"{target} contains SRC: give another DST")
    if first.is_dir():
        check_not_of_broker(real, target)
        return
    if target.is_dir() or given.endswith("/"):
        raise UsageError(
            f"{target} is a folder: give the file to write as DST, such as {target / os.path.basename(source)}"
        )
    check_not_of_broker(real, target)
    check_not_of_broker(real.parent, target)
    own = files_of_segment(str(first))
    for written in (real, *map(Path, map(os.path.realpath, index_paths(target))), real.with_suffix(".txnindex")):
        if str(written) in own:
            raise UsageError(f"{target} is a side file of SRC: give DST another folder or name")
    if real.parent == first.parent and is_log(name) and registry.is_kafka_name(first.name):
        raise UsageError(f"{target} would be a segment of the partition of SRC: give DST another folder")
    if name.lower().endswith(_PARSED) and not is_log(name) and _is_partition_folder(str(real.parent)):
        raise UsageError(f"{target}: a broker does not start with a file of this name in a partition folder")
    if force and real.is_file():
        _check_earlier_result(target, real, keeps_log)


def _check_earlier_result(target: Path, real: Path, keeps_log: bool) -> None:
    """Raise UsageError unless a file can be the earlier result of a single segment, or is not Kafka's at all."""
    stem = real.name.removesuffix(".log")
    others = [name for name in _names(real.parent) if registry.is_kafka_name(name) and not name.startswith(f"{stem}.")]
    if others:
        raise UsageError(
            f"{target} is next to {min(others)}, so it can be a segment of Kafka, which --force never replaces: delete it "
            "first, or give DST another folder"
        )
    if not keeps_log and not is_result(real) and (registry.is_kafka_name(real.name) or _is_kafkas(str(real))):
        raise UsageError(
            f"{target} is a file of Kafka that kseg did not write, or that has changed since, so --force does not replace "
            "it: delete it first, or give DST another name"
        )


def files_of_segment(path: str) -> tuple[str, ...]:
    """Return a path and, for a segment, the paths of its log and side files, existing or not."""
    suffixes = (".log", *registry.segment_suffixes())
    stem, suffix = os.path.splitext(path)
    if suffix not in suffixes:
        stem = path if is_segment_stem(path) else ""
    return (path, *(stem + each for each in suffixes)) if stem else (path,)


def _check_not_input(output: str, present: os.stat_result | None, path: str, hint: str) -> None:
    """Raise UsageError if the output is an input, a side file of an input, or in an input folder."""
    if path == STDIN or (is_url(path) and not path.startswith("file:")):
        return
    own = os.path.realpath(without_file_scheme(path))
    target = os.path.realpath(output)
    # DST of this run, which does not exist yet.
    if target in files_of_segment(own) or Path(target).is_relative_to(own):
        raise UsageError(f"{output} is an input or a side file of one: inputs are never changed{hint}")
    while not os.path.exists(own) and own != os.path.dirname(own):
        own = os.path.dirname(own)  # a path in an archive
        if os.path.isdir(own):
            return
    if target in files_of_segment(own) or (present and os.path.exists(own) and os.path.samestat(os.stat(own), present)):
        raise UsageError(f"{output} is an input or a side file of one: inputs are never changed{hint}")
    a_file = present is None or stat.S_IFMT(present.st_mode) in (stat.S_IFREG, stat.S_IFDIR)
    if a_file and os.path.isdir(own) and _is_in(Path(target), Path(own)):
        raise UsageError(f"{output} is in the input folder {path}: inputs are never changed{hint}")


def _is_in(path: Path, folder: Path) -> bool:
    """Return whether a path is in a folder, at any depth, also if it is spelled in another way."""
    return any(parent.exists() and os.path.samefile(parent, folder) for parent in path.parents)


def _is_partition_folder(folder: str) -> bool:
    """Return whether a broker would take a folder for a partition: by its name, and a file of Kafka in it."""
    return partition_of(os.path.basename(folder)) is not None and any(map(registry.is_kafka_name, _names(folder)))


def _holds(folder: Path, pattern: re.Pattern[str]) -> bool:
    return any(pattern.fullmatch(name) for name in _names(folder))


def _names(folder: str | Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from (entry.name for entry in entries)
    except OSError:
        return


def _is_kafkas(path: str) -> bool:
    """Return whether a file starts like a batch, or is a valid side file other than an index, whose bytes show nothing."""
    try:
        with open_file(path, named=False) as file:
            head, size = file.read(_HEAD), file.seek(0, os.SEEK_END)
        # No offset is so large that its first byte is not 0, but magic bytes of other formats are there.
        if head[:1] == b"\0" and plausible(head, 0, len(head), INT32_MAX):
            return True
        if not head or size > _LARGEST:
            return False
        return any(_is_side_file(path, side) for side in registry.SIDE_FILES if side.suffix in (None, ".snapshot"))
    except (OSError, KsegError) as error:
        if is_url(path):  # a store that does not answer now can store the output later
            raise UnreadableError(f"{path}: {error}") from error
        return False


def _is_side_file(path: str, side: registry.SideFile) -> bool:
    """Return whether a decoder finds no fault in a file. Without an entry, only a snapshot's checksum shows its kind."""
    findings: list[Finding] = []
    with open_source(path) as source:
        entries = sum(1 for _ in side.walk(source, 0, findings.append))
    return not findings and (entries > 0 or side.suffix is not None)
