"""Write the recipes of conda and Homebrew for a released sdist into ``dist/``: ``fill_recipes.py SDIST ADDRESS``.

ADDRESS is the place where SDIST is published, https://HOST/OWNER/kseg/releases/…; its version and its sha256 come from the
file. The dependencies come from pyproject.toml. `brew update-python-resources dist/kseg.rb` then adds the dependencies to
the formula.
"""

import re
import sys
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
#: Name in pyproject.toml -> name in conda, where these differ.
CONDA_NAMES = {"isal": "python-isal"}


def filled(template: str, sdist: Path, address: str) -> str:
    """Return the recipe with all its places filled. Raises ValueError if the name of the sdist has no version."""
    version = re.fullmatch(r"kseg-(\d[\w.]*)\.tar\.gz", sdist.name)
    if version is None:
        raise ValueError(f"expected kseg-VERSION.tar.gz, got {sdist.name}")
    values = {
        "VERSION": version[1],
        "URL": address,
        "HOME": address.partition("/releases/")[0],
        "OWNER": address.split("/")[3],
        "SHA256": sha256(sdist.read_bytes()).hexdigest(),
        "SCRIPT": project()["scripts"]["kseg"],
        "RUN": "\n    - ".join(dict.fromkeys(conda_dependencies())),
    }
    return re.sub(r"@([A-Z0-9]+)@", lambda match: values[match[1]], template)


def project() -> dict[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((FOLDER.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def conda_dependencies() -> list[str]:
    """Return the dependencies of kseg as conda writes them. Those of some platforms only have a selector."""
    found = []
    for requirement, _, marker in (one.partition(";") for one in project()["dependencies"]):
        name, version = re.fullmatch(r"([\w-]+)(.*)", requirement.strip()).groups()  # type: ignore[union-attr]
        selector = "  # [linux or (osx and arm64)]" if marker else ""
        found.append(f"{CONDA_NAMES.get(name, name)} {version}{selector}")
    return found


if __name__ == "__main__":
    for name in ("conda/meta.yaml", "homebrew/kseg.rb"):
        recipe = FOLDER.parent / "dist" / Path(name).name
        recipe.write_text(filled((FOLDER / name).read_text("utf-8"), Path(sys.argv[1]), sys.argv[2]), encoding="utf-8")
        print(recipe)
