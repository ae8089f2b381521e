"""Fixtures of internal topics."""

from __future__ import annotations

import shutil
from pathlib import Path

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"


#: The folder of each topic, and kafka-dump-log's option for it.
FOLDERS = {
    "__consumer_offsets": ("4.3.0-v2-none-internal-consumer-offsets", "--offsets-decoder"),
    "__transaction_state": ("4.3.0-v2-none-internal-transaction-state", "--transaction-log-decoder"),
    "__share_group_state": ("4.3.0-v2-none-internal-share-group-state", "--share-group-state-decoder"),
    "__cluster_metadata": ("4.3.0-v2-none-internal-cluster-metadata", "--cluster-metadata-decoder"),
    "__remote_log_metadata": ("4.3.0-v2-none-internal-remote-log-metadata", "--remote-log-metadata-decoder"),
}


def placed(topic: str, tmp_path: Path) -> Path:
    folder = tmp_path / f"{topic}-0"
    shutil.copytree(SEGMENTS / FOLDERS[topic][0], folder)
    return folder
