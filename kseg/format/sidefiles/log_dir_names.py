"""Names of the checkpoint files of a log directory."""

from __future__ import annotations

CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


META = "meta.properties"


RECOVERY_POINTS = "recovery-point-offset-checkpoint"


LOG_STARTS = "log-start-offset-checkpoint"


HIGH_WATERMARKS = "replication-offset-checkpoint"


CLEANER_OFFSETS = "cleaner-offset-checkpoint"
