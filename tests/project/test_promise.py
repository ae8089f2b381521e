"""The promise of stability: names of the last release exist, and mean the same."""

from __future__ import annotations

import copy
import json

import pytest

from tools import promise


@pytest.fixture(scope="module")
def names() -> dict[str, object]:
    """The names of today."""
    found: dict[str, object] = json.loads(json.dumps(promise.promises()))
    return found


def test_no_name_of_the_last_release_has_changed() -> None:
    """Scripts of users name exit codes, rules, fields, options and functions. `python -m tools.promise` lists them."""
    assert promise.differences() == []


def test_new_names_break_nothing(names: dict[str, object]) -> None:
    """A new rule, field, value, option or parameter must not need a new list."""
    more: dict[str, dict[str, dict[str, object]]] = copy.deepcopy(names)  # type: ignore[arg-type]
    more["rules"]["new-rule"] = {"code": "K999", "severity": "INFO"}
    more["options"]["validate"]["--new"] = {"takes a value": False, "values": []}
    more["library"]["validate"]["new"] = "keyword-only: int"
    assert list(promise.broken(names, more)) == []


def test_a_removed_or_changed_name_is_found(names: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind is compared, and an announced end is accepted only after the release that announced it."""
    less: dict[str, dict[str, dict[str, object]]] = copy.deepcopy(names)  # type: ignore[arg-type]
    less["rules"]["crc-mismatch"]["severity"] = "INFO"
    del less["options"]["validate"]["--jobs"]
    del less["library"]["validate"]["jobs"]
    less["exit codes"].remove("143")  # type: ignore[attr-defined]
    monkeypatch.setattr(promise, "promises", lambda: less)
    found = promise.differences()
    assert found == [
        "/exit codes/143",
        "/rules/crc-mismatch/severity: 'ERROR' is now 'INFO'",
        "/options/validate/--jobs",
        "/library/validate/jobs",
    ]
    monkeypatch.setattr(promise, "DEPRECATED", {found[2]: ("0.1.0", "--processes"), found[3]: ("9.0.0", "processes")})
    assert promise.differences() == [found[0], found[1], found[3]]
