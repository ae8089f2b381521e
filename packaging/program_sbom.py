"""Write the components of a program as CycloneDX: ``program_sbom.py ENVIRONMENT.json FOLDER``.

ENVIRONMENT.json is the output of ``cyclonedx-py environment`` for the environment in which the program was built. The
packages whose metadata is in FOLDER, and Python, are written to ``sbom.cdx.json`` in FOLDER.
"""

import json
import platform
import sys
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator


def is_bundled(component: dict[str, Any], folder: Path) -> bool:
    """Return whether the folder has the metadata of this version of the package."""
    name = component["name"].replace("-", "_")
    return any(folder.glob(f"{name}-{component['version']}.dist-info"))


def main(environment: Path, folder: Path) -> None:
    """Raises SystemExit if the result is not valid CycloneDX 1.6."""
    found = json.loads(environment.read_text(encoding="utf-8"))
    found["components"] = [one for one in found["components"] if is_bundled(one, folder / "_internal")]
    (kseg,) = (one for one in found["components"] if one["name"] == "kseg")
    found["components"].remove(kseg)
    # These describe the machine that built the program.
    for noise in ("properties", "externalReferences"):
        kseg.pop(noise, None)
    python = {
        "type": "platform",
        "bom-ref": "python",
        "name": "python",
        "version": platform.python_version(),
        "licenses": [{"license": {"id": "PSF-2.0"}}],
    }
    found["components"].append(python)
    found["metadata"]["component"] = {**kseg, "type": "application"}
    named = {kseg["bom-ref"], *(one["bom-ref"] for one in found["components"])}
    links = [one for one in found.get("dependencies", []) if one["ref"] in named]
    for link in links:
        link["dependsOn"] = [ref for ref in link.get("dependsOn", []) if ref in named]
    found["dependencies"] = [*links, {"ref": "python"}]
    text = json.dumps(found, indent=1, sort_keys=True) + "\n"
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"not CycloneDX: {error}")
    (folder / "sbom.cdx.json").write_text(text, encoding="utf-8")
    print(f"sbom.cdx.json: {len(found['components'])} components of {kseg['name']} {kseg['version']}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
