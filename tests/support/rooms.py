"""The rooms of the package in their order."""

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
