"""The GitHub action, the jobs of GitLab, Jenkins and Argo, and the pre-commit hook run kseg as they say."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.support.cli import DAMAGED, PLAIN, ROOT

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

NAME = PLAIN.name
CI = ROOT / "packaging" / "ci"

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


@pytest.fixture(scope="module")
def wheel(installed: Path) -> Path:
    """The wheel of plain Python, as `make dist` makes it, in an environment that can install it."""
    build = f"python -m pip wheel --quiet --no-deps --wheel-dir '{installed}/wheels' '{installed}'"
    done = run(build, installed, installed, KSEG_BUILD="any")
    assert done.returncode == 0, done.stderr
    (built,) = (installed / "wheels").iterdir()
    assert built.name.endswith("-py3-none-any.whl")
    return built


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


@pytest.mark.slow
def test_the_action_annotates_and_fails(workspace: Path, installed: Path) -> None:
    """Damage fails the job, with an annotation, a summary and a SARIF file."""
    done = action(workspace, installed, paths="orders 0\nclicks-0\n", sarif="kseg.sarif")
    assert done.returncode == 1, done.stderr
    assert "::error file=clicks-0" in done.stdout
    assert "crc-mismatch" in (workspace / "summary.md").read_text()
    assert '"K201"' in (workspace / "kseg.sarif").read_text()


@pytest.mark.slow
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


@pytest.mark.slow
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


def gitlab_job() -> tuple[str, dict[str, str]]:
    """Return the lines of the job, which run in one shell, and its variables."""
    job: dict[str, Any] = yaml.safe_load((CI / "gitlab.yml").read_text())["kseg-validate"]
    return "\n".join(job["script"]), job["variables"]


def jenkins_job() -> tuple[str, dict[str, str]]:
    text = (CI / "Jenkinsfile").read_text()
    (script,) = re.findall(r"sh '''(.+?)'''", text, re.DOTALL)
    assert "\\" not in script  # Groovy would read it as an escape
    return script, dict(re.findall(r"name: '(\w+)', defaultValue: '(.*?)'", text))


def argo_job() -> tuple[str, dict[str, str]]:
    spec: dict[str, Any] = yaml.safe_load((CI / "argo.yaml").read_text())["spec"]
    given = {one["name"]: one.get("value", "") for one in spec["arguments"]["parameters"]}
    script = spec["templates"][0]["script"]
    assert "{{" not in script["source"]
    names = {one["name"]: re.fullmatch(r"{{workflow\.parameters\.(\w+)}}", one["value"]) for one in script["env"]}
    return script["source"], {name: given[match[1]] for name, match in names.items() if match}


JOBS = pytest.mark.parametrize("job", [gitlab_job, jenkins_job, argo_job])


@pytest.mark.slow
@JOBS
def test_a_job_installs_checks_and_writes_its_reports(
    job: Callable[[], tuple[str, dict[str, str]]], workspace: Path, wheel: Path
) -> None:
    """The files that a job keeps exist also when it fails. Names with hyphens and CR LF are harmless."""
    script, defaults = job()
    given = {
        "KSEG_PACKAGE": f"{wheel}\r",
        "KSEG_PATHS": "clicks-0\r\norders 0\r\n-clicks-1",
        "KSEG_OPTIONS": "--deep --jobs 1\r",
    }
    done = run(script, workspace, wheel.parents[1], **{**defaults, **given})
    assert done.returncode == 1, done.stderr
    assert (workspace / "kseg.xml").read_text().count("<testsuite ") == 3
    assert (workspace / "kseg.html").exists()


@JOBS
def test_a_job_installs_no_foreign_package(
    job: Callable[[], tuple[str, dict[str, str]]], workspace: Path, checkout: Path
) -> None:
    """The name kseg in the package index could be anybody's: without an address the job fails."""
    script, defaults = job()
    done = run(script, workspace, checkout, **defaults)
    assert (done.returncode, "to a wheel" in done.stdout or "to the address" in done.stdout) == (2, True)


def test_the_action_installs_a_given_wheel(workspace: Path, checkout: Path, tmp_path: Path) -> None:
    """A wheel, or its URL, takes the place of the sources; a line end of an editor is no part of its name."""
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    for package, expected in (
        ("", str(checkout)),
        ("-kseg-0.1.0-py3-none-any.whl\r\n", "-kseg-0.1.0-py3-none-any.whl"),
    ):
        asked = {**variables("Install kseg", package=package), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
        done = run(step("Install kseg"), workspace, checkout, **asked)
        assert done.stdout.split("\n")[-4:-1] == ["--", expected, "fsspec[http]"]


def test_each_action_of_the_workflows_is_pinned() -> None:
    """A tag can be moved to other code; a hash can't. The version behind it is for people."""
    files = [ROOT / "action.yml", *sorted((ROOT / ".github" / "workflows").glob("*.yml"))]
    used = [
        line.strip() for file in files for line in file.read_text().splitlines() if "uses:" in line and line[0] != "#"
    ]
    assert len(used) > 10
    loose = [line for line in used if not re.fullmatch(r"- uses: [\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)]
    assert loose == []


def test_workflows_get_no_rights_that_they_do_not_need() -> None:
    """Each workflow reads the repository only; the job that publishes names its rights."""
    for file in (ROOT / ".github" / "workflows").glob("*.yml"):
        workflow = yaml.safe_load(file.read_text())
        assert workflow["permissions"] == {"contents": "read"}, file
        assert [name for name, job in workflow["jobs"].items() if "permissions" in job] in ([], ["publish"]), file


@pytest.mark.slow
def test_spark_finds_an_editable_install(checkout: Path, tmp_path: Path) -> None:
    """Spark looks through the modules of ``sys.path`` for names that start with ``pyspark_``."""
    script = "import pkgutil; print([name for _, name, _ in pkgutil.iter_modules() if name.startswith('pyspark_')])"
    install = f"python -m pip install --quiet -e '{checkout}'"
    done = run(f'{install} && python -c "{script}"', tmp_path, checkout, KSEG_BUILD="python")
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["['pyspark_kseg']"]), done.stderr


def test_the_hook_gets_the_files_of_a_log() -> None:
    """The pattern selects what kseg reads, and nothing else. Options end before the names, which can begin with a hyphen."""
    hooks = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert len({hook["files"] for hook in hooks}) == 1
    for hook in hooks:
        assert (hook["entry"], hook["args"]) == ("kseg validate", ["--"])
    for name in ("a/orders-0/00000000000000000000.log", "00000000000000000012.timeindex"):
        assert re.search(hook["files"], name)
    for name in ("a/server.log", "00000000000000000012.log.py", "x00000000000000000012.log"):
        assert not re.search(hook["files"], name)
