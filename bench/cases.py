"""The table of cases with their goals. A goal limits a figure that is computed from the runs of two contenders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bench import peers, production
from bench.corpora import CODECS, LEGACY, MIX, Corpus
from bench.measure import BenchError, Command, Run

Contender = Callable[[Mapping[str, Corpus]], Command]


@dataclass(frozen=True, slots=True)
class Figure:
    """A number computed from two runs of one round, kseg's and the peer's, and its format."""

    of: Callable[[Run, Run], float]
    written: str


SLOWDOWN = Figure(lambda ours, peer: ours.wall / peer.wall, "{:.2f}x its time")
SPEEDUP = Figure(lambda ours, peer: peer.wall / ours.wall, "{:.1f}x as fast")
ABOVE = Figure(lambda ours, peer: ours.wall - peer.wall, "{:.3f} s above")
PEAK = Figure(lambda ours, peer: ours.peak / 1e6, "{:.0f} MB peak")
PEAKS = Figure(lambda ours, peer: ours.peak / peer.peak, "{:.2f}x its peak")
CPU = Figure(lambda ours, peer: ours.cpu / peer.cpu, "{:.2f}x its CPU time")
PER_SEGMENT = Figure(lambda ours, peer: ours.wall / peer.wall / 4, "{:.2f}x its time a segment")
PER_BYTE = Figure(lambda ours, peer: ours.wall / peer.wall / 4, "{:.2f}x its time a byte")


@dataclass(frozen=True, slots=True)
class Goal:
    """``ours`` and ``peer`` name contenders of the case. Without a ``limit`` the figure is for information."""

    ours: str
    peer: str
    figure: Figure
    at_most: float | None = None
    at_least: float | None = None

    def holds(self, value: float) -> bool | None:
        """Return whether the value reaches the goal; None without a limit."""
        if self.at_most is not None:
            return value <= self.at_most
        return value >= self.at_least if self.at_least is not None else None

    @property
    def text(self) -> str:
        """Return the goal as the table prints it."""
        if self.at_most is not None:
            return f"at most {self.at_most:g}"
        return f"at least {self.at_least:g}" if self.at_least is not None else ""


@dataclass(frozen=True, slots=True)
class Case:
    """Contenders that take turns over some corpora. ``times`` multiplies the rounds, for very short runs."""

    name: str
    inputs: tuple[str, ...]
    contenders: tuple[Contender, ...]
    goals: tuple[Goal, ...]
    quick: bool = True
    times: int = 1


def _validate(name: str, corpus: str, *options: str, label: str = "kseg", pure: bool = False) -> Contender:
    def make(corpora: Mapping[str, Corpus]) -> Command:
        if pure and "python" not in peers.engine(pure=True):
            raise BenchError(f"{label}: KSEG_ENGINE=python does not select plain Python")
        path = str(corpora[corpus].path)
        return peers.kseg(label, name, *options, path, pure=pure, output=name == "validate")

    return make


def _codec(codec: str) -> Case:
    contenders: list[Contender] = [
        _validate("validate", codec, "--jobs", "1"),
        lambda corpora: peers.floor(corpora[codec]),
        lambda corpora: peers.dump_log(corpora[codec], "--deep-iteration"),
        lambda corpora: peers.franz(corpora[codec]),
        lambda corpora: peers.aiokafka(corpora[codec]),
    ]
    goals = [
        Goal("kseg", "floor", SLOWDOWN, at_most=1.5),
        Goal("kseg", "kafka-dump-log", SPEEDUP, at_least=10),
        Goal("kseg", "franz-go", SPEEDUP),
        Goal("kseg", "aiokafka", SPEEDUP),
    ]
    return Case(f"validate {codec}", (codec,), tuple(contenders), tuple(goals))


def _real(corpus: str) -> Case:
    """Compare validation of a corpus of production's kind."""
    contenders: tuple[Contender, ...] = (
        _validate("validate", corpus, "--jobs", "1"),
        lambda corpora: peers.floor(corpora[corpus]),
        lambda corpora: peers.dump_log(corpora[corpus], "--deep-iteration"),
        lambda corpora: peers.franz(corpora[corpus]),
    )
    goals = (
        Goal("kseg", "floor", SLOWDOWN, at_most=1.5),
        Goal("kseg", "kafka-dump-log", SPEEDUP, at_least=8),
        Goal("kseg", "franz-go", SPEEDUP, at_least=1),
    )
    return Case(f"validate {corpus}", (corpus,), contenders, goals)


def _indexes(base: str, *options: str) -> Case:
    """Compare a folder that has indexes with a folder that has only the log."""
    return Case(
        " ".join(("indexes of", base, *options)),
        (f"{base}-indexed", f"{base}-bare"),
        (
            _validate("validate", f"{base}-indexed", "--jobs", "1", *options, label="with indexes"),
            _validate("validate", f"{base}-bare", "--jobs", "1", *options, label="without"),
        ),
        (Goal("with indexes", "without", CPU, at_most=1.1),),
        times=4,
    )


def _gigabyte(codec: str) -> Case:
    corpus = f"1g-{codec}"
    return Case(
        f"1 GiB {codec}",
        (corpus,),
        (_validate("validate", corpus, "--jobs", "1"), lambda corpora: peers.franz(corpora[corpus])),
        (Goal("kseg", "franz-go", SPEEDUP, at_least=1),),
        quick=False,
    )


_TINY = "10k-one-record-batches"

CASES: tuple[Case, ...] = (
    *(_codec(codec) for codec in CODECS),
    Case(
        "validate one-record-batches",
        ("one-record-batches",),
        (
            _validate("validate", "one-record-batches", "--jobs", "1"),
            lambda corpora: peers.dump_log(corpora["one-record-batches"], "--deep-iteration"),
            lambda corpora: peers.franz(corpora["one-record-batches"]),
            lambda corpora: peers.aiokafka(corpora["one-record-batches"]),
        ),
        (
            Goal("kseg", "kafka-dump-log", SPEEDUP, at_least=10),
            Goal("kseg", "franz-go", SPEEDUP),
            Goal("kseg", "aiokafka", SPEEDUP),
        ),
    ),
    *(_real(corpus) for corpus in (*LEGACY, "large-none", "large-lz4", "producers-5000", *production.TOPICS)),
    Case(
        "validate mix",
        (MIX,),
        (_validate("validate", MIX, "--jobs", "1"), lambda corpora: peers.floor(corpora[MIX])),
        (Goal("kseg", "floor", SLOWDOWN, at_most=1.5),),
    ),
    Case(
        "plain Python lz4",
        ("lz4",),
        (
            _validate("validate", "lz4", "--jobs", "1", label="kseg, plain", pure=True),
            lambda corpora: peers.dump_log(corpora["lz4"], "--deep-iteration"),
            lambda corpora: peers.kafka_python(corpora["lz4"]),
        ),
        (
            Goal("kseg, plain", "kafka-dump-log", SPEEDUP, at_least=1),
            Goal("kseg, plain", "kafka-python", SPEEDUP),
        ),
    ),
    Case(
        "start",
        (_TINY,),
        (
            lambda _: peers.kseg("kseg --version", "--version"),
            _validate("validate", _TINY, label="kseg validate, 10 KB"),
            lambda _: peers.bare_python(),
        ),
        (
            Goal("kseg --version", "python -c pass", ABOVE, at_most=0.10),
            Goal("kseg validate, 10 KB", "python -c pass", ABOVE, at_most=0.06),
        ),
        times=4,
    ),
    *(_indexes(base, *options) for base in ("none", "one-record-batches") for options in ((), ("--shallow",))),
    Case(
        "10,000 segments",
        ("2500-segments", "10000-segments"),
        (
            _validate("validate", "2500-segments", "--jobs", "1", label="2,500"),
            _validate("validate", "10000-segments", "--jobs", "1", label="10,000"),
        ),
        (
            Goal("10,000", "2,500", PER_SEGMENT, at_most=1.1),
            Goal("10,000", "10,000", PEAK, at_most=150),
            Goal("10,000", "2,500", PEAKS),
        ),
        quick=False,
    ),
    *(_gigabyte(codec) for codec in CODECS),
    Case(
        "growth lz4",
        ("256m-lz4", "1g-lz4", "4g-lz4"),
        (
            _validate("validate", "256m-lz4", "--jobs", "1", label="256 MiB"),
            _validate("validate", "1g-lz4", "--jobs", "1", label="1 GiB"),
            _validate("validate", "4g-lz4", "--jobs", "1", label="4 GiB"),
        ),
        (
            Goal("256 MiB", "256 MiB", PEAK, at_most=120),
            Goal("4 GiB", "4 GiB", PEAK, at_most=120),
            Goal("4 GiB", "256 MiB", PEAKS, at_most=1.05),
            Goal("4 GiB", "1 GiB", PER_BYTE, at_most=1.05),
        ),
        quick=False,
    ),
)
