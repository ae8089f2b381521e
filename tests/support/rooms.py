"""The rooms of the package, and files of tests, in their order."""

from __future__ import annotations

#: The rooms from the ground up; the modules directly in ``kseg`` are the ground.
ROOMS = [
    "",
    *(f"format.{room}" for room in ("messages", "compress", "record", "storage")),
    "extras",
    *(f"format.{room}" for room in ("segment", "internal_topics")),
    "extras.serialization",
    "format.sidefiles",
    "extras.wire",
    *(f"format.{room}" for room in ("checks", "log_loader", "writer")),
    *(f"commands.{room}" for room in (
        "validate", "dump", "grep", "stats", "diff", "lag", "transactions", "recovery", "convert", "repair",
        "adopt", "tier", "carve", "schemas", "explain", "next_steps",
    )),
    "report",
    "extras.html",
    "extras.views",
    "extras.sql",
    "spark.jobs",
    "spark",
    "extras.pipeline",
    "cli",
]  # fmt: skip
#: The files whose tests with brokers take longest, in this order. A file that begins last keeps one process busy alone.
BEGIN_FIRST = (
    "test_adopt_broker.py", "test_remedies.py", "test_soak.py", "test_recovery.py", "test_history_broker.py",
    "test_convert_served.py", "test_states_broker.py", "test_cluster_state_broker.py", "test_tier_broker.py",
    "test_producer_snapshots.py", "test_another_cluster_broker.py", "test_replication.py",
)  # fmt: skip
