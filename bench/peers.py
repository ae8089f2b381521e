"""The contenders: how each is installed (once, under ``.lab/bench``) and started, as a user would."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from bench.corpora import HOME, KAFKA, Corpus, for_kafka
from bench.measure import BenchError, Command, run
from tools.lab import maven

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
VENV = HOME / "venv"
# kafka-python takes crc32c and the codecs' libraries only where they are installed: with them it is at its best.
REQUIREMENTS = ("aiokafka==0.14.0", "kafka-python==3.0.12", "cramjam", "crc32c", "lz4", "python-snappy", "zstandard")

# What bin/kafka-run-class.sh of Kafka 4.3 starts a tool with: KAFKA_HEAP_OPTS and KAFKA_JVM_PERFORMANCE_OPTS.
JVM_FLAGS = (
    "-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip


def kseg(name: str, *args: str, pure: bool = False, output: bool = True) -> Command:
    """The installed command with those arguments; ``pure`` asks for the interpreted kernel."""
    installed = Path(sys.executable).with_name("kseg")
    if not installed.exists():
        raise BenchError(f"no kseg beside {sys.executable}: pip install -e .")
    return Command(name, (str(installed), *args), env={"KSEG_ENGINE": "python"} if pure else {}, output=output)


def prepare() -> None:
    """Write kseg's .pyc files, as an installer does: a checkout has none until each module was first imported."""
    program = "import compileall, kseg; compileall.compile_dir(kseg.__path__[0], quiet=1, force=False)"
    run(Command("compileall", (sys.executable, "-c", program)))


def engine(*, pure: bool = False) -> str:
    """What ``kseg --version`` says."""
    return run(kseg("kseg", "--version", pure=pure)).output.strip()


def kseg_columns(corpus: Corpus) -> Command:
    """kseg as a library, timed in its process."""
    argv = (sys.executable, str(PROGRAMS / "kseg_columns.py"), str(corpus.path))
    return Command("kseg columns", argv, own_clock=True)


def floor(corpus: Corpus, *, deep: bool = True) -> Command:
    """The same bytes through the same libraries."""
    options = () if deep else ("--shallow",)
    return Command("floor", (sys.executable, str(PROGRAMS / "floor.py"), *options, str(corpus.path)))


def kseg_convert(corpus: Corpus, jobs: int) -> Command:
    """A conversion to v2, codec and bounds kept; the target is overwritten each time."""
    options = ("--force", "--format", "jsonl", "--jobs", str(jobs))
    return kseg(f"--jobs {jobs}", "convert", "any-to-v2", *options, str(corpus.path), str(_target(corpus)))


def convert_floor(corpus: Corpus) -> Command:
    """The same bytes through the same libraries, there and back, into a file; no record is looked at."""
    floor_py = str(PROGRAMS / "floor.py")
    return Command("floor", (sys.executable, floor_py, "--recompress", str(_target(corpus)), str(corpus.path)))


def _target(corpus: Corpus) -> Path:
    folder = HOME / "converted"
    folder.mkdir(exist_ok=True)
    return folder / corpus.path.name


def bare_python() -> Command:
    """The least that any Python command takes."""
    return Command("python -c pass", (sys.executable, "-c", "pass"))


def cat(corpus: Corpus) -> Command:
    """Reading alone."""
    if corpus.path.is_dir():
        return Command("cat", ("find", str(corpus.path), "-type", "f", "-exec", "cat", "{}", "+"), output=False)
    return Command("cat", ("cat", str(corpus.path)), output=False)


def dump_log(corpus: Corpus, *options: str) -> Command:
    """kafka-dump-log, JVM and all. Its name in the table holds the option. Raises BenchError without Java or Maven."""
    absent = maven.missing()
    if absent:
        raise BenchError(f"kafka-dump-log {absent}")
    command = ("java", *JVM_FLAGS, "-cp", f"{maven.libs(KAFKA)}/*", "org.apache.kafka.tools.DumpLogSegments")
    return Command("kafka-dump-log", (*command, *options, "--files", str(for_kafka(corpus))), output=False)


def aiokafka(corpus: Corpus, *, own_clock: bool = False) -> Command:
    """aiokafka's compiled reader, as a process or timed inside it."""
    argv = (str(_venv()), str(PROGRAMS / "aiokafka_reader.py"), str(corpus.path))
    return Command("aiokafka", argv, own_clock=own_clock)


def kafka_python(corpus: Corpus) -> Command:
    """kafka-python's reader, as a process."""
    return Command("kafka-python", (str(_venv()), str(PROGRAMS / "kafka_python_reader.py"), str(corpus.path)))


def franz(corpus: Corpus) -> Command:
    """franz-go's decoder, as a process. Raises BenchError where Go is not there."""
    return Command("franz-go", (str(_franz_binary()), str(corpus.path)))


@cache
def _venv() -> Path:
    """The Python of the peers' own environment: theirs must not move the versions that kseg is measured with."""
    python = VENV / "bin" / "python"
    wanted = "\n".join(REQUIREMENTS)
    installed = VENV / "installed.txt"
    if not installed.exists() or installed.read_text() != wanted:
        _make([sys.executable, "-m", "venv", "--clear", str(VENV)])
        _make([str(python), "-m", "pip", "install", "-q", *REQUIREMENTS])
        installed.write_text(wanted)
    return python


@cache
def _franz_binary() -> Path:
    if shutil.which("go") is None:
        raise BenchError("franz-go needs go on PATH")
    binary = HOME / "franz"
    _make(["go", "build", "-o", str(binary), "."], cwd=HERE / "franz")
    return binary


def _make(command: list[str], cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, encoding="utf-8")
    if done.returncode:
        raise BenchError(f"{' '.join(command)} ended with {done.returncode}\n{done.stderr[-2000:]}")
