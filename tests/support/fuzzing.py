"""The size of the differential oracles, which is set in one place."""

from __future__ import annotations

import os


def cases(sample: int) -> int:
    """Return how many cases an oracle runs: ``sample`` by default, or KSEG_FUZZ_CASES if it is set.

    ``sample`` cases should take only a few seconds. Mark the test ``fuzz``, so that ``make fuzz`` runs it; ``make
    fuzz`` runs every Hypothesis test, too.
    """
    return int(os.environ.get("KSEG_FUZZ_CASES") or sample)
