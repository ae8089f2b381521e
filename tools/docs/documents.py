"""All documents of the project with their generated parts: made again, compared, and written."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kseg.report.row_schema import row_schema
from tools import man_pages
from tools.docs import command_pages, examples, parts, pictures, rule_pages, sandbox
from tools.docs.terminal import Terminal

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: The JSON Schema of rows, which has a version.
SCHEMA = DOCS / "reference" / "rows.schema.json"
#: Folders of which every file is generated.
GENERATED = (DOCS / "reference" / "rules", DOCS / "reference" / "commands", DOCS / "images")


def wanted() -> Mapping[Path, str]:
    """Return the text of every document and picture, with the present output of the program."""
    with tempfile.TemporaryDirectory() as temporary, Terminal() as terminal:
        made = sandbox.make(Path(temporary) / "made")
        home = Path(temporary) / "home"
        found: dict[Path, str] = {}
        for path in hand_written():
            shutil.copytree(made, home)
            found[path] = examples.render(parts.render(path.read_text(encoding="utf-8")), terminal, home)
            shutil.rmtree(home)
        shutil.copytree(made, home)
        for folder, pages in (
            ("reference/rules", rule_pages.pages(terminal, home)),
            ("reference/commands", command_pages.pages()),
            ("images", pictures.images(terminal, made)),
        ):
            found |= {DOCS / folder / name: text for name, text in pages.items()}
        found[SCHEMA] = json.dumps(row_schema(), indent=1, ensure_ascii=False) + "\n"
        return found


def with_spark() -> Mapping[Path, str]:
    """Return the text of the documents that have examples with Spark, as these examples print now."""
    with tempfile.TemporaryDirectory() as temporary, Terminal() as terminal:
        found = {}
        for number, path in enumerate(hand_written()):
            text = path.read_text(encoding="utf-8")
            if "tier=spark" in text:
                home = sandbox.make(Path(temporary) / str(number))
                found[path] = examples.render(text, terminal, home, "spark")
        return found


def hand_written() -> list[Path]:
    """Return the documents that are written by hand, with generated parts and output in them."""
    pages = (path for path in sorted(DOCS.rglob("*.md")) if not any(folder in path.parents for folder in GENERATED))
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *pages]


def differences() -> list[str]:
    """Return the names of the files that differ from the present output of the program, and of left over generated files."""
    made = wanted()
    differing = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    names = [str(path.relative_to(ROOT)) for path in [*differing, *_left_over(made)]]
    return [*names, *(f"packaging/man/{name}" for name in man_pages.differences())]


def write(*, spark: bool = False) -> None:
    """Write all documents, pictures and man pages, and remove generated files that nothing makes.

    ``spark`` runs the examples with Spark, too.
    """
    for path, text in (with_spark() if spark else {}).items():
        path.write_text(text, encoding="utf-8")
    made = wanted()
    if SCHEMA.exists():
        stored = json.loads(SCHEMA.read_text(encoding="utf-8"))
        if stored["$id"] == row_schema()["$id"] and stored != row_schema():
            raise SystemExit(
                "the rows have changed: raise VERSION in kseg/report/row_schema.py, and name it in CHANGES.md"
            )
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in _left_over(made):
        path.unlink()
    man_pages.write()


def _left_over(made: Mapping[Path, str]) -> list[Path]:
    return sorted(path for folder in GENERATED for path in folder.rglob("*") if path.is_file() and path not in made)
