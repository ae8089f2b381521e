"""The cases of ``kseg grep`` and of a look-up by key."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace

from bench import peers
from bench.cases import CPU, SPEEDUP, Case, Contender, Goal
from bench.corpora import Corpus
from bench.measure import Command

#: A text that no corpus has: both programs read everything, and end with 1.
_RARE = "no-such-order"


def _kseg(label: str, corpus: str, *arguments: str) -> Contender:
    def make(corpora: Mapping[str, Corpus]) -> Command:
        command = peers.kseg(label, *arguments, str(corpora[corpus].path), output=False)
        return _in_shell(command, "") if arguments[0] == "grep" else command

    return make


def _dump_log_and_grep(corpus: str) -> Contender:
    def make(corpora: Mapping[str, Corpus]) -> Command:
        dumped = peers.dump_log(corpora[corpus], "--print-data-log")
        return replace(_in_shell(dumped, f"| grep -F {_RARE}"), name="kafka-dump-log, grep")

    return make


def _in_shell(command: Command, then: str) -> Command:
    """Return the command with the exit code 0, also if nothing was found."""
    return replace(command, argv=("sh", "-c", f"{shlex.join(command.argv)} {then} || [ $? = 1 ]"))


def _grep(corpus: str) -> Case:
    return Case(
        f"grep {corpus}",
        (corpus,),
        (
            _kseg("grep", corpus, "grep", "-F", _RARE),
            _kseg("--jobs 1", corpus, "grep", "--jobs", "1", "-F", _RARE),
            _kseg("dump --key", corpus, "dump", "--deep", "--jobs", "1", "--key", _RARE),
            _kseg("validate", corpus, "validate", "--jobs", "1"),
            _dump_log_and_grep(corpus),
        ),
        (
            Goal("--jobs 1", "validate", CPU, at_most=1.3),
            Goal("dump --key", "validate", CPU, at_most=1.3),
            Goal("grep", "kafka-dump-log, grep", SPEEDUP, at_least=20),
        ),
        times=2,
    )


GREP_CASES = tuple(_grep(corpus) for corpus in ("none", "lz4", "zstd"))
