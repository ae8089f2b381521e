"""The GitHub action, the GitLab template and the pre-commit hook run kseg as they say."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.support.cli import DAMAGED, PLAIN, ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

NAME = PLAIN.name


MODULES = ("kseg_script.py", "pyspark_kseg.py")
PARTS = ("kseg", "packaging", "pyproject.toml", "setup.py", *MODULES, "README.md", "LICENSE", "MANIFEST.in")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository, as a CI system gets it, and in ``venv`` a Python that can install it without a network."""
    folder = tmp_path_factory.mktemp("kit") / "kseg checkout"
    folder.mkdir()
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    # pip, setuptools and the dependencies are those of this environment; its own kseg is not found through this file.
    (packages,) = (folder / "venv").glob("lib/python3*/site-packages")
    (packages / "outside.pth").write_text(sysconfig.get_path("purelib"))
    return folder


@pytest.fixture(scope="module")
def installed(checkout: Path) -> Path:
    """The copy, after the step of the action that installs kseg."""
    done = run(step("Install kseg"), checkout, checkout, **variables("Install kseg"))
    assert done.returncode == 0, done.stderr
    assert (checkout / "venv" / "bin" / "kseg").exists()
    return checkout


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A folder with valid and damaged partitions, in folders with usual and unusual names."""
    for folder, source in (("orders 0", PLAIN), ("-", PLAIN), ("-clicks-1", PLAIN), ("clicks-0", DAMAGED / NAME)):
        (tmp_path / folder).mkdir()
        shutil.copy(source, tmp_path / folder / NAME)
    return tmp_path


def run(script: str, folder: Path, checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script of a step or a job in its own bash, as the CI systems do."""
    offline = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    environment = {
        "PATH": f"{checkout / 'venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(checkout),
        "GITHUB_ACTION_PATH": str(checkout),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        **offline,
        **variables,
    }
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, input="", capture_output=True, text=True, check=False)


def action_file() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
    return read


def step(name: str) -> str:
    return str(next(step["run"] for step in action_file()["runs"]["steps"] if step.get("name") == name))


def variables(name: str, **inputs: str) -> dict[str, str]:
    """Return the environment of a step of the action, with these inputs and the defaults of the others."""
    read = action_file()
    values = {name: str(about.get("default", "")) for name, about in read["inputs"].items()}
    values.update({name.replace("_", "-"): value for name, value in inputs.items()})
    env = next(step["env"] for step in read["runs"]["steps"] if step.get("name") == name)
    return {
        key: re.sub(r"\${{ inputs\.([a-z-]+) }}", lambda match: values[match[1]], text) for key, text in env.items()
    }


def action(workspace: Path, installed: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    return run(step("Validate"), workspace, installed, **variables("Validate", **inputs))


def test_the_action_annotates_and_fails(workspace: Path, installed: Path) -> None:
    """Damage fails the job, with an annotation, a summary and a SARIF file."""
    done = action(workspace, installed, paths="orders 0\nclicks-0\n", sarif="kseg.sarif")
    assert done.returncode == 1, done.stderr
    assert "::error file=clicks-0" in done.stdout
    assert "crc-mismatch" in (workspace / "summary.md").read_text()
    assert '"K201"' in (workspace / "kseg.sarif").read_text()


def test_the_action_reads_unusual_names_and_line_ends(workspace: Path, installed: Path) -> None:
    """Each line is one path, also with a space or a hyphen, and also if an editor has written CR LF."""
    everything = "orders 0\r\n-clicks-1\r\n./-\r\n"
    done = action(workspace, installed, paths=everything, fail_on="error\r\n", options="--shallow\r\n--no-crc\r\n")
    assert (done.returncode, re.findall(r"\d+ files", done.stdout)) == (0, ["3 files"]), done.stderr
    weighed = action(workspace, installed, paths="clicks-0", options="--rule crc-mismatch=warning\n--limit=1")
    assert weighed.returncode == 0, weighed.stderr
    assert action(workspace, installed, paths="clicks-0", fail_on="never").returncode == 0


def test_the_action_never_checks_something_else(workspace: Path, installed: Path) -> None:
    """A list of paths that turned out empty is an error, and so is standard input, which is empty in a job."""
    for paths in ("", "\n\r\n"):
        done = action(workspace, installed, paths=paths)
        assert (done.returncode, done.stdout) == (2, "::error::kseg: the input paths is empty\n")


def test_no_input_becomes_a_command(workspace: Path, installed: Path) -> None:
    """An input with shell syntax is a path that doesn't exist."""
    done = action(workspace, installed, paths="$(touch forged); `touch forged`; --version")
    assert done.returncode == 2
    assert not (workspace / "forged").exists()


def test_the_action_reads_urls(workspace: Path, installed: Path) -> None:
    """What the action installs is enough for a path of the web."""
    handler = partial(QuietHandler, directory=str(workspace))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/clicks-0/{NAME}"
        done = action(workspace, installed, paths=url)
        server.shutdown()
    assert done.returncode == 1, done.stderr
    assert "::error file=" + url.replace(":", "%3A") in done.stdout


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def gitlab(workspace: Path, checkout: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the whole job: its lines run in one shell."""
    job: dict[str, Any] = yaml.safe_load((ROOT / "packaging" / "ci" / "gitlab.yml").read_text())["kseg-validate"]
    return run("\n".join(job["script"]), workspace, checkout, **{**job["variables"], **variables})


def test_the_gitlab_job_installs_checks_and_writes_its_reports(workspace: Path, checkout: Path) -> None:
    """The files that the job keeps exist also when it fails."""
    job: dict[str, Any] = yaml.safe_load((ROOT / "packaging" / "ci" / "gitlab.yml").read_text())["kseg-validate"]
    paths = "clicks-0\r\norders 0\r\n-clicks-1"
    done = gitlab(workspace, checkout, KSEG_PACKAGE=str(checkout), KSEG_PATHS=paths, KSEG_OPTIONS="--deep\r\n--jobs 1")
    assert done.returncode == 1, done.stderr
    assert (workspace / job["artifacts"]["reports"]["junit"]).read_text().count("<testsuite ") == 3
    assert (workspace / job["artifacts"]["paths"][0]).exists()


def test_the_gitlab_job_installs_no_foreign_package(workspace: Path, checkout: Path) -> None:
    """The name kseg in the package index could be anybody's: without an address the job fails."""
    done = gitlab(workspace, checkout)
    assert (done.returncode, "set KSEG_PACKAGE" in done.stdout) == (2, True)


def test_spark_finds_an_editable_install(checkout: Path, tmp_path: Path) -> None:
    """Spark looks through the modules of ``sys.path`` for names that start with ``pyspark_``."""
    script = "import pkgutil; print([name for _, name, _ in pkgutil.iter_modules() if name.startswith('pyspark_')])"
    install = f"python -m pip install --quiet -e '{checkout}'"
    done = run(f'{install} && python -c "{script}"', tmp_path, checkout, KSEG_BUILD="python")
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["['pyspark_kseg']"]), done.stderr


def test_the_hook_gets_the_files_of_a_log() -> None:
    """The pattern selects what kseg reads, and nothing else."""
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "kseg validate"
    for name in ("a/orders-0/00000000000000000000.log", "00000000000000000012.timeindex"):
        assert re.search(hook["files"], name)
    for name in ("a/server.log", "00000000000000000012.log.py", "x00000000000000000012.log"):
        assert not re.search(hook["files"], name)
