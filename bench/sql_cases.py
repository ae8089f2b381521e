"""The cases of ``kseg sql``: statements compared with checking the same segments."""

from __future__ import annotations

from bench import peers
from bench.cases import CPU, PEAK, Case, Contender, Goal
from bench.corpora import MIX

_COUNT = "select count(*) as records from records"
_GROUP = "select key, count(*) from records group by 1 order by 2 desc limit 10"


def _kseg(label: str, corpus: str, *arguments: str, output: bool = True) -> Contender:
    return lambda corpora: peers.kseg(label, *arguments, str(corpora[corpus].path), output=output)


def _sql(corpus: str) -> Case:
    """Return the case of a corpus. It is large: the start of DuckDB and pyarrow takes as long as checking 100 MB."""
    return Case(
        f"sql {corpus}",
        (corpus,),
        (
            _kseg("validate", corpus, "validate", "--jobs", "1"),
            _kseg("count(*)", corpus, "sql", "--format", "jsonl", _COUNT),
            _kseg("group by key", corpus, "sql", _GROUP, output=False),
        ),
        (
            Goal("count(*)", "validate", CPU, at_most=1.1),
            Goal("group by key", "validate", CPU, at_most=2.5),
            Goal("count(*)", "count(*)", PEAK, at_most=200),
            Goal("group by key", "group by key", PEAK, at_most=200),
        ),
        quick=False,
    )


SQL_CASES = tuple(_sql(corpus) for corpus in (MIX, "1g-lz4"))
