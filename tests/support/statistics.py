"""Fixture folders with logs."""

from __future__ import annotations

from tests.support.fixtures import FOLDERS

# The fixture of a log dir's own files does not have a log.
WITH_LOGS = [folder for folder in FOLDERS if [*folder.glob("*.log")]]
