"""The cases of ``kseg dump --deep``: next to kafka-dump-log, with and without headers, with one process and with two."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace

from bench import peers
from bench.cases import PEAK, SPEEDUP, Case, Contender, Figure, Goal
from bench.corpora import Corpus
from bench.measure import Command, Run

#: Records of the same broker with and without headers, 25 in a batch, with the same codec.
_PAIRS = (("headers-none", "idempotent"), ("headers-lz4", "log-append-time"))
_FORMATS = ("jsonl", "text", "csv", "parquet")


def _per_byte(done: Run) -> float:
    """Return the processor time per byte of output, which ``wc`` has counted."""
    return done.cpu / int(done.output)


PER_OUTPUT_BYTE = Figure(
    lambda ours, peer: _per_byte(ours) / _per_byte(peer), "{:.2f}x its CPU time per byte of output"
)


def _dump(label: str, corpus: str, output: str, *options: str) -> Contender:
    def make(corpora: Mapping[str, Corpus]) -> Command:
        path = str(corpora[corpus].path)
        return peers.kseg(label, "dump", "--deep", "--format", output, *options, path, output=False)

    return make


def _counted(contender: Contender) -> Contender:
    """Return the contender with the size of its output as its output."""

    def make(corpora: Mapping[str, Corpus]) -> Command:
        command = contender(corpora)
        return replace(command, argv=("sh", "-c", f"{shlex.join(command.argv)} | wc -c"), output=True)

    return make


def _next_to_kafka(output: str) -> Case:
    return Case(
        f"dump {output}",
        ("lz4",),
        (
            _dump("kseg", "lz4", output, "--jobs", "1"),
            lambda corpora: peers.dump_log(corpora["lz4"], "--print-data-log"),
        ),
        (Goal("kseg", "kafka-dump-log", SPEEDUP, at_least=4),),
    )


def _headers(output: str, with_headers: str, without: str) -> Case:
    return Case(
        f"dump {output} {with_headers}",
        (with_headers, without),
        (
            _counted(_dump("with headers", with_headers, output, "--jobs", "1")),
            _counted(_dump("without", without, output, "--jobs", "1")),
        ),
        (Goal("with headers", "without", PER_OUTPUT_BYTE, at_most=1.3),),
    )


def _two_jobs(output: str, corpus: str, *, quick: bool = True) -> Case:
    return Case(
        f"two jobs, dump {output} {corpus}",
        (corpus,),
        (_dump("--jobs 2", corpus, output, "--jobs", "2"), _dump("--jobs 1", corpus, output, "--jobs", "1")),
        (
            # A thread of pyarrow encodes Parquet, in groups of 16 MiB; other formats are divided between processes.
            Goal("--jobs 2", "--jobs 1", SPEEDUP, at_least=None if output == "parquet" else 1.6),
            Goal("--jobs 2", "--jobs 2", PEAK, at_most=None if output == "parquet" else 100),
        ),
        quick=quick,
    )


def _columns(codec: str) -> Case:
    return Case(
        f"columns {codec}",
        (codec,),
        (
            lambda corpora: peers.kseg_columns(corpora[codec]),
            lambda corpora: peers.aiokafka(corpora[codec], own_clock=True),
        ),
        (Goal("kseg columns", "aiokafka", SPEEDUP, at_least=3),),
    )


DUMP_CASES = (
    *(_next_to_kafka(output) for output in ("jsonl", "text")),
    *(_columns(codec) for codec in ("none", "lz4")),
    *(_headers(output, *pair) for pair in _PAIRS for output in _FORMATS),
    *(_two_jobs(output, corpus) for output in _FORMATS for corpus in ("none", "lz4")),
    *(_two_jobs("jsonl", corpus, quick=False) for corpus in ("1g-none", "1g-lz4")),
)
