"""Set-up for every test: tiers, and an environment that does not depend on who started the run."""

from __future__ import annotations

import signal
from importlib.util import find_spec

import pytest
from hypothesis import settings

from tests.lab import maven

# A busy machine is no reason to fail.
settings.register_profile("kseg", deadline=None)
settings.load_profile("kseg")

# A shell starts background jobs with SIGINT ignored, and all their children would ignore it, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need Kafka's jars where these can't run. Runs before ``-m`` selects."""
    why = maven.missing()
    if why is None and find_spec("confluent_kafka") is None:
        why = "needs confluent-kafka"
    for item in items:
        if item.get_closest_marker("interop") and not item.get_closest_marker("spark"):
            item.add_marker("kafka")
        if why and item.get_closest_marker("kafka"):
            item.add_marker(pytest.mark.skip(reason=why))
