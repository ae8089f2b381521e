"""The cases of several processes, and of reading headers alone."""

from __future__ import annotations

from collections.abc import Mapping

from bench import peers
from bench.cases import SLOWDOWN, SPEEDUP, Case, Contender, Goal
from bench.corpora import MIX, RECIPES, Corpus
from bench.measure import Command
from bench.production import TOPICS

_CODECS = ("none", "gzip", "lz4", "zstd")


def _kseg(label: str, corpus: str, *arguments: str) -> Contender:
    def make(corpora: Mapping[str, Corpus]) -> Command:
        return peers.kseg(label, *arguments, str(corpora[corpus].path), output=arguments[0] == "validate")

    return make


def _two_jobs(name: str, corpus: str) -> Case:
    return Case(
        f"two jobs, {name}",
        (corpus,),
        (
            _kseg("--jobs 2", corpus, "validate", "--jobs", "2"),
            _kseg("--jobs 1", corpus, "validate", "--jobs", "1"),
        ),
        (Goal("--jobs 2", "--jobs 1", SPEEDUP, at_least=1.7),),
        quick=False,
    )


def _default_jobs(corpus: str) -> Case:
    """Compare the number of processes that kseg chooses with one process, and with one per core."""
    return Case(
        f"default jobs, {corpus}",
        (corpus,),
        (
            _kseg("default", corpus, "validate"),
            _kseg("--jobs 1", corpus, "validate", "--jobs", "1"),
            lambda corpora: peers.kseg_always_parallel(corpora[corpus]),
        ),
        (
            Goal("default", "--jobs 1", SLOWDOWN, at_most=1.1),
            Goal("default", "always parallel", SLOWDOWN, at_most=1.1),
        ),
        quick=False,
    )


def _shallow(command: str, codec: str, against_cat: Goal) -> Case:
    corpus = f"1g-{codec}"
    return Case(
        f"{command} --shallow {codec}, 1 GiB",
        (corpus,),
        (
            _kseg("kseg", corpus, command, "--shallow", "--jobs", "1"),
            lambda corpora: peers.floor(corpora[corpus], deep=False),
            lambda corpora: peers.cat(corpora[corpus]),
        ),
        (Goal("kseg", "floor", SLOWDOWN, at_most=1.3), against_cat),
    )


PARALLEL_CASES = (
    *(_two_jobs(f"1 GiB {codec}", f"1g-{codec}") for codec in _CODECS),
    *(_two_jobs(f"16 files of 64 MiB {codec}", f"files-{codec}") for codec in _CODECS),
    *(_default_jobs(corpus) for corpus in (*RECIPES, *TOPICS, MIX)),
    *(_shallow("validate", codec, Goal("kseg", "cat", SLOWDOWN)) for codec in ("none", "lz4")),
    *(_shallow("stats", codec, Goal("kseg", "cat", SLOWDOWN, at_most=1.3)) for codec in ("none", "lz4")),
)
