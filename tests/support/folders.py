"""Validate folders, and collect the results by file."""

from __future__ import annotations

from pathlib import Path

from kseg.commands.validate import validate_ranges
from kseg.commands.validate.folder_checks import check_folders
from kseg.format.sidefiles.registry import find_files
from kseg.results import FileResult, Settings

SEGMENTS = Path(__file__).parents[2] / "fixtures" / "segments"


def validate_folder(path: Path, jobs: int = 1) -> list[FileResult]:
    files = list(find_files(str(path), lambda name: None))
    return list(check_folders(files, Settings(), validate_ranges.validate_files(files, Settings(), jobs)))
