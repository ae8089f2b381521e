"""The contenders: how each is installed (once, under ``.lab/bench``), and how a user starts it."""

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
# kafka-python is fastest with crc32c and the libraries of the codecs installed.
REQUIREMENTS = ("aiokafka==0.14.0", "kafka-python==3.0.12", "cramjam", "crc32c", "lz4", "python-snappy", "zstandard")

# The JVM flags of bin/kafka-run-class.sh in Kafka 4.3: KAFKA_HEAP_OPTS and KAFKA_JVM_PERFORMANCE_OPTS.
JVM_FLAGS = (
    "-Xmx256M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
)  # fmt: skip


def kseg(name: str, *args: str, pure: bool = False, output: bool = True) -> Command:
    """Return the installed command with those arguments; ``pure`` selects plain Python."""
    installed = Path(sys.executable).with_name("kseg")
    if not installed.exists():
        raise BenchError(f"no kseg beside {sys.executable}: pip install -e .")
    return Command(name, (str(installed), *args), env={"KSEG_ENGINE": "python"} if pure else {}, output=output)


def kseg_always_parallel(corpus: Corpus) -> Command:
    """Return ``kseg validate`` with as many processes as cores, however little there is to read."""
    return Command("always parallel", (sys.executable, str(PROGRAMS / "always_parallel.py"), str(corpus.path)))


def prepare() -> None:
    """Write kseg's .pyc files, as an installer does."""
    program = "import compileall, kseg; compileall.compile_dir(kseg.__path__[0], quiet=1, force=False)"
    run(Command("compileall", (sys.executable, "-c", program)))


def engine(*, pure: bool = False) -> str:
    """Return the output of ``kseg --version``."""
    return run(kseg("kseg", "--version", pure=pure)).output.strip()


def kseg_columns(corpus: Corpus) -> Command:
    """Return kseg as a library, timed inside its process."""
    argv = (sys.executable, str(PROGRAMS / "kseg_columns.py"), str(corpus.path))
    return Command("kseg columns", argv, own_clock=True)


def floor(corpus: Corpus, *, deep: bool = True) -> Command:
    """Return the floor of reading: the same bytes through the same libraries."""
    options = () if deep else ("--shallow",)
    return Command("floor", (sys.executable, str(PROGRAMS / "floor.py"), *options, *_logs(corpus)))


def convert_floor(corpus: Corpus, target: Path) -> Command:
    """Return the floor of a conversion: decompress, compress and write, without reading records."""
    floor_py = str(PROGRAMS / "floor.py")
    return Command("floor", (sys.executable, floor_py, "--recompress", str(target), str(corpus.path)))


def bare_python() -> Command:
    """Return the start of Python alone."""
    return Command("python -c pass", (sys.executable, "-c", "pass"))


def cat(corpus: Corpus) -> Command:
    """Return reading alone."""
    if corpus.path.is_dir():
        return Command("cat", ("find", str(corpus.path), "-type", "f", "-exec", "cat", "{}", "+"), output=False)
    return Command("cat", ("cat", str(corpus.path)), output=False)


def dump_log(corpus: Corpus, *options: str) -> Command:
    """Return kafka-dump-log with its JVM, named with its option. Raises BenchError without Java or Maven."""
    absent = maven.missing()
    if absent:
        raise BenchError(f"kafka-dump-log {absent}")
    files = ",".join(map(str, for_kafka(corpus)))
    command = ("java", *JVM_FLAGS, "-cp", f"{maven.libs(KAFKA)}/*", "org.apache.kafka.tools.DumpLogSegments")
    return Command("kafka-dump-log", (*command, *options, "--files", files), output=False)


def aiokafka(corpus: Corpus, *, own_clock: bool = False) -> Command:
    """Return aiokafka's compiled reader, as a process or timed inside it."""
    argv = (str(_venv()), str(PROGRAMS / "aiokafka_reader.py"), str(corpus.path))
    return Command("aiokafka", argv, own_clock=own_clock)


def kafka_python(corpus: Corpus) -> Command:
    """Return kafka-python's reader, as a process."""
    return Command("kafka-python", (str(_venv()), str(PROGRAMS / "kafka_python_reader.py"), str(corpus.path)))


def franz(corpus: Corpus) -> Command:
    """Return franz-go's decoder, as a process. Raises BenchError without Go."""
    return Command("franz-go", (str(_franz_binary()), *_logs(corpus)))


def _logs(corpus: Corpus) -> list[str]:
    return [str(path) for path in corpus.logs]


@cache
def _venv() -> Path:
    """Return the Python of a separate environment, so that peers don't change the versions of kseg's dependencies."""
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
