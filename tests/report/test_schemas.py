"""Reports are valid by the schemas of their formats, and within GitHub's limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kseg.findings import RULES
from kseg.report import ci_formats
from kseg.results import MAX_PER_RULE, FileResult
from tests.support.reported import HOSTILE, SOUND, UNREAD, WORST, every_rule, finding_for, result_of, written

SCHEMAS = Path(__file__).parent / "schemas"
RUNS: dict[str, list[FileResult]] = {
    "nothing": [],
    "sound": [SOUND],
    "every rule": [every_rule(), SOUND],
    "unread": [UNREAD, result_of("f", [], size=0, unread="no permission")],
    "hostile": [
        every_rule(HOSTILE[3], WORST),
        *(result_of(name, [], size=0, unread=name) for name in (*HOSTILE, WORST)),
    ],
    "many": [result_of("f", [finding_for(RULES["zero-tail"])] * (MAX_PER_RULE + 5))],
}


@pytest.fixture(scope="module")
def sarif_schema() -> Any:
    schema = json.loads((SCHEMAS / "sarif-2.1.0.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())


@pytest.fixture(scope="module")
def junit_schema() -> Any:
    xmlschema = pytest.importorskip("xmlschema", reason="of the group test; older environments lack it")
    return xmlschema.XMLSchema(str(SCHEMAS / "junit-10.xsd"))


@pytest.mark.parametrize("results", RUNS.values(), ids=RUNS)
def test_sarif_is_valid(results: list[FileResult], sarif_schema: Any) -> None:
    """Code scanning rejects a file that the schema does not allow."""
    found = [error.message for error in sarif_schema.iter_errors(json.loads(written(ci_formats.write_sarif, *results)))]
    assert found == []


def test_the_schema_of_sarif_finds_faults(sarif_schema: Any) -> None:
    """A schema that accepts everything would prove nothing."""
    log = json.loads(written(ci_formats.write_sarif, every_rule()))
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert len(list(sarif_schema.iter_errors(log))) == 1


@pytest.mark.parametrize("results", RUNS.values(), ids=RUNS)
def test_sarif_is_within_the_limits_of_github(results: list[FileResult]) -> None:
    """GitHub's documentation, "SARIF support for code scanning": required properties, and the most that is accepted."""
    log: dict[str, Any] = json.loads(written(ci_formats.write_sarif, *results))
    assert len(log["runs"]) <= 20
    for run in log["runs"]:
        rules = run["tool"]["driver"]["rules"]
        assert run["tool"]["driver"]["name"]
        assert len(rules) <= 25_000
        assert len(run["results"]) <= ci_formats.MAX_RESULTS == 25_000
        for rule in rules:
            assert max(len(rule["id"]), len(rule["name"])) <= 255
            assert max(len(rule[name]["text"]) for name in ("shortDescription", "fullDescription")) <= 1024
            assert rule["help"]["text"]
        for result in run["results"]:
            assert result["message"]["text"]
            assert 1 <= len(result["locations"]) <= 1000
            place = result["locations"][0]["physicalLocation"]
            assert place["artifactLocation"]["uri"]
            assert place["region"]["startLine"] >= 1
            assert result["partialFingerprints"]["primaryLocationLineHash"]


@pytest.mark.parametrize("results", RUNS.values(), ids=RUNS)
def test_junit_is_valid(results: list[FileResult], junit_schema: Any) -> None:
    """Jenkins rejects a file that the schema of its xunit plugin does not allow."""
    found = [error.reason for error in junit_schema.iter_errors(written(ci_formats.write_junit, *results))]
    assert found == []


def test_the_schema_of_junit_finds_faults(junit_schema: Any) -> None:
    """A schema that accepts everything would prove nothing."""
    text = written(ci_formats.write_junit, SOUND)
    assert list(junit_schema.iter_errors(text.replace("<testcase ", "<test ").replace("</testcase", "</test")))
