"""The rooms of the package in their order."""

from __future__ import annotations

#: The rooms from the ground up; the modules directly in ``kseg`` are the ground.
ROOMS = [
    "",
    *(f"format.{room}" for room in (
        "messages", "compress", "record", "storage", "segment", "internal_topics", "serialization", "sidefiles", "wire",
        "checks", "log_loader", "writer",
    )),
    *(f"commands.{room}" for room in (
        "validate", "dump", "grep", "stats", "diff", "audit", "lag", "transactions", "recovery", "convert", "repair",
        "schemas", "explain",
    )),
    "report",
    "report.html",
    "views",
    "sql",
    "spark.source",
    "spark.jobs",
    "spark",
    "cli",
]  # fmt: skip
