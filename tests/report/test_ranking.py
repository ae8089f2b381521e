"""Long tables of ranked rows are folded in linear time."""

from __future__ import annotations

import time

from kseg.report.wording import MOST_GROUPS, fold


def test_many_groups_fold_in_linear_time() -> None:
    """20,000 open transactions took seconds: the ranks of the rest were counted again for each group."""
    items = [(n % 3, n) for n in range(20_000)]
    began = time.process_time()
    groups = fold(items, lambda item: item)
    assert time.process_time() - began < 2
    assert (len(groups), sum(map(len, groups))) == (MOST_GROUPS, len(items))
    assert [len(group) for group in groups[:5]] == [1] * 5
