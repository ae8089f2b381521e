"""The cases of the commands that rewrite or judge whole segments: convert, repair, recovery and diff."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bench import peers
from bench.cases import CPU, SLOWDOWN, Case, Contender, Goal
from bench.corpora import LEGACY, MIX, REWRITTEN, Corpus
from bench.measure import Command

_REPAIRED = ("none", "lz4", "gzip", "one-record-batches", "large-lz4")
_RECOVERED = ("none-indexed", "one-record-batches-indexed", "headers-none", "headers-lz4", "transactions", MIX)


def _target(corpus: Corpus, by: str = "kseg") -> Path:
    """Return the path that a command writes. It is not in the corpus, which other cases read as a folder.

    kseg replaces only files that it wrote, so others write to folders of their own.
    """
    (REWRITTEN / by).mkdir(parents=True, exist_ok=True)
    return REWRITTEN / by / corpus.path.name


def _convert(corpus: str) -> Case:
    """Compare a conversion to v2, which keeps codec and batches, with only reading, compressing and writing."""

    def kseg(jobs: str) -> Contender:
        def make(corpora: Mapping[str, Corpus]) -> Command:
            source = corpora[corpus]
            options = ("--force", "--format", "jsonl", "--jobs", jobs)
            arguments = (*options, str(source.path), str(_target(source)))
            return peers.kseg(f"--jobs {jobs}", "convert", "any-to-v2", *arguments)

        return make

    return Case(
        f"convert {corpus}",
        (corpus,),
        (kseg("1"), kseg("2"), lambda corpora: peers.convert_floor(corpora[corpus], _target(corpora[corpus], "floor"))),
        (Goal("--jobs 2", "floor", SLOWDOWN, at_most=1.5), Goal("--jobs 1", "floor", SLOWDOWN)),
    )


def _validate(corpora: Mapping[str, Corpus], corpus: str) -> Command:
    return peers.kseg("validate", "validate", "--jobs", "1", str(corpora[corpus].path), output=False)


def _validate_and_copy(corpora: Mapping[str, Corpus], corpus: str) -> Command:
    validate = _validate(corpora, corpus)
    copy = ("cp", str(corpora[corpus].path), str(_target(corpora[corpus], "cp")))
    return replace(
        validate, name="validate, cp", argv=("sh", "-c", f"{shlex.join(validate.argv)} && {shlex.join(copy)}")
    )


def _repair(corpus: str) -> Case:
    """Compare a repair with the validation of its source, and with a copy, which it also makes."""

    def repair(name: str, *options: str) -> Contender:
        def make(corpora: Mapping[str, Corpus]) -> Command:
            source = corpora[corpus]
            return peers.kseg(name, "repair", "--force", *options, str(source.path), str(_target(source)), output=False)

        return make

    return Case(
        f"repair {corpus}",
        (corpus,),
        (
            repair("repair"),
            repair("--dry-run", "--dry-run"),
            lambda corpora: _validate(corpora, corpus),
            lambda corpora: _validate_and_copy(corpora, corpus),
        ),
        (
            Goal("repair", "validate", CPU, at_most=1.5),
            Goal("--dry-run", "validate", CPU, at_most=1.5),
            Goal("repair", "validate, cp", CPU),
        ),
    )


def _recovery(corpus: str) -> Case:
    """Compare the prediction of a start after a crash with validation. Exit code 1: folders without topic ids."""

    def recovery(corpora: Mapping[str, Corpus]) -> Command:
        path = str(corpora[corpus].path)
        command = peers.kseg("recovery", "recovery", "--unclean", "--jobs", "1", path, output=False)
        return replace(command, codes=(0, 1))

    return Case(
        f"recovery {corpus}",
        (corpus,),
        (recovery, lambda corpora: _validate(corpora, corpus)),
        (Goal("recovery", "validate", CPU, at_most=1.5),),
    )


def _diff(corpus: str, different: bool) -> Case:
    """Compare two replicas, which are equal or differ in the last byte."""

    def replicas(corpora: Mapping[str, Corpus]) -> tuple[str, str]:
        source, replica = corpora[corpus].path, _target(corpora[corpus])
        if not replica.exists():
            shutil.copyfile(source, replica)
            with replica.open("r+b") as log:
                log.seek(-1, os.SEEK_END)
                last = log.read(1)[0]
                log.seek(-1, os.SEEK_END)
                log.write(bytes((last ^ different,)))
        return str(source), str(replica)

    def kseg(corpora: Mapping[str, Corpus]) -> Command:
        return replace(peers.kseg("kseg", "diff", "--jobs", "1", *replicas(corpora), output=False), codes=(different,))

    def cmp(corpora: Mapping[str, Corpus]) -> Command:
        return Command("cmp", ("cmp", *replicas(corpora)), output=False, codes=(different,))

    return Case(
        f"diff {corpus}, {'the last byte differs' if different else 'equal'}",
        (corpus,),
        (kseg, cmp),
        (Goal("kseg", "cmp", CPU, at_most=1.5),),
        quick=False,
    )


REWRITE_CASES = (
    *(_convert(corpus) for corpus in LEGACY),
    *(_repair(corpus) for corpus in _REPAIRED),
    *(_recovery(corpus) for corpus in _RECOVERED),
    _diff("1g-lz4", different=False),
    _diff("1g-lz4", different=True),
)
