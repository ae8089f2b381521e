"""Write the recipes of conda and Homebrew for a released sdist into ``dist/``: ``fill_recipes.py SDIST ADDRESS``.

ADDRESS is the place where SDIST is published, https://HOST/OWNER/kseg/releases/…; its version and its sha256 come from the
file. The dependencies come from pyproject.toml. Those of the formula have the versions that pip chooses today: it asks the
index of packages for them, and for the addresses and checksums of their sdists.
"""

import json
import re
import subprocess
import sys
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

FOLDER = Path(__file__).parent
#: Name in pyproject.toml -> name in conda, where these differ.
CONDA_NAMES = {"isal": "python-isal"}
#: Where PyPI lists the files of a package (PEP 691).
INDEX = "https://pypi.org/simple"
_ACCEPT = {"Accept": "application/vnd.pypi.simple.v1+json"}
#: Homebrew builds each dependency from its sources. This one needs an assembler, and kseg reads gzip without it, too.
WITHOUT = ("kseg", "isal")


def filled(template: str, sdist: Path, address: str, resources: str = "") -> str:
    """Return the recipe with all its places filled. Raises ValueError if the name of the sdist has no version.

    ``resources`` are the blocks of ``resource_blocks``.
    """
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
        "RESOURCES": resources,
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


def resource_blocks(sdist: Path) -> str:
    """Return the formula's blocks of the dependencies of an sdist, with those of their dependencies, by name."""
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-")
    report = json.loads(subprocess.run([*pip, str(sdist)], check=True, stdout=subprocess.PIPE).stdout)
    blocks = {}
    for name, version in ((_normal(one["metadata"]["name"]), one["metadata"]["version"]) for one in report["install"]):
        if name in WITHOUT:
            continue
        with urlopen(Request(f"{INDEX}/{name}/", headers=_ACCEPT), timeout=60) as answer:
            files = {_normal(file["filename"]): file for file in json.load(answer)["files"]}
        source = files[_normal(f"{name}-{version}.tar.gz")]
        lines = f'url "{source["url"]}"', f'sha256 "{source["hashes"]["sha256"]}"'
        blocks[name] = f'resource "{name}" do\n    {lines[0]}\n    {lines[1]}\n  end'
    return "\n\n  ".join(blocks[name] for name in sorted(blocks))


def _normal(name: str) -> str:
    """Return a name as PyPI compares names: old sdists have other signs and capitals in theirs."""
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    released = Path(sys.argv[1])
    for name, resources in (("conda/meta.yaml", ""), ("homebrew/kseg.rb", resource_blocks(released))):
        recipe = FOLDER.parent / "dist" / Path(name).name
        text = filled((FOLDER / name).read_text("utf-8"), released, sys.argv[2], resources)
        recipe.write_text(text, encoding="utf-8")
        print(recipe)
