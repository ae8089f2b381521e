"""``--decoder`` and ``--decode-with``: code of the user's own decodes values, and cannot harm the run."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kseg.cli.main import main
from kseg.format.serialization import command_decoder

FIXTURE = Path(__file__).parents[2] / "fixtures" / "serialized"

FUNCTION = """
import datetime, decimal
def decode(topic, side, data, headers):
    if data[-1] == 0:
        raise LookupError("two\\nlines")
    return {"topic": topic, "side": side, "data": data[:3], "headers": headers, "d": decimal.Decimal("1.0"),
            "t": datetime.date(2026, 1, 2), "nan": float("nan")}
def other(topic, side, data, headers):
    return object()
def deep(topic, side, data, headers):
    found = []
    for _ in range(5000):
        found = [found]
    return found
"""
#: A program that answers with the size of the data.
SIZES = """
import base64, json, sys
for line in sys.stdin:
    asked = json.loads(line)
    data = base64.b64decode(asked["data"])
    if data[-1] == 0:
        answer = {"id": asked["id"], "error": "ends with zero"}
    else:
        found = [asked["topic"], asked["side"], len(data), [header["key"] for header in asked["headers"]]]
        answer = {"id": asked["id"], "value": found, "error": None}
    print(json.dumps(answer), flush=True)
"""


def dump(topic: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["dump", str(FIXTURE / f"{topic}-0"), "--format", "jsonl", *arguments])


def rows(topic: str, *arguments: str) -> list[dict[str, Any]]:
    done = dump(topic, *arguments)
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def program(folder: Path, text: str) -> str:
    """Return a command that runs a Python text."""
    path = folder / "own decoder.py"
    path.write_text(text, encoding="utf-8")
    return shlex.join([sys.executable, str(path)])


def test_a_function_decodes_keys_and_values(tmp_path: Path) -> None:
    """Its result is JSON, with bytes, decimals and dates as text; an exception is the reason, in one line."""
    path = tmp_path / "own.py"
    path.write_text(FUNCTION, encoding="utf-8")
    place = f"{path}:decode"
    found = rows("events", "--decoder", place)[1]
    headers = found["value_decoded"].pop("headers")
    assert found["value_decoded"] == {
        "topic": "events", "side": "value", "data": "eyJu", "d": "1.0", "t": "2026-01-02", "nan": "NaN"
    }  # fmt: skip
    assert [header[0] for header in headers] == ["__key_schema_id", "__value_schema_id"]
    assert found["value_kind"] == place
    first = rows("orders", "--decoder", place, "--key-as", "string")[0]
    assert (first["key_kind"], first["key_decoded"]) == ("string", "order-0")
    assert (first["value_decoded"], first["value_error"]) == (None, "LookupError: two lines")
    assert first["value"]
    assert rows("orders", "--decoder", f"{path}:other")[0]["value_error"] == (
        "ValueError: the result has a object, which JSON does not have"
    )
    assert "nested deeper than 100" in rows("orders", "--decoder", f"{path}:deep")[0]["value_error"]


def test_a_program_decodes_keys_and_values(tmp_path: Path) -> None:
    """One process answers all values, a line each; null is not asked for."""
    found = rows("orders", "--decode-with", program(tmp_path, SIZES))
    assert [row["value_decoded"] for row in found[3:]] == [None, *[["orders", "value", 19, []]] * 2, None]
    assert found[0]["value_error"] == "ends with zero"
    assert found[6]["value_error"] is None
    assert found[0]["key_decoded"] == ["orders", "key", 7, []]
    assert rows("events", "--decode-with", program(tmp_path, SIZES))[1]["key_decoded"][3] == [
        "__key_schema_id",
        "__value_schema_id",
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the program has ended"),
        ("import sys\nfor line in sys.stdin: print('[]', flush=True)", "expected an object with value or error"),
        ("import sys\nfor line in sys.stdin: print('no', flush=True)", "not JSON"),
        (
            "import sys\nfor line in sys.stdin: print(line, end='', flush=True)",
            "expected an object with value or error",
        ),
        ("import sys\nfor line in sys.stdin: print('{\"value\":1}', flush=True)", "an answer has no id"),
        ("import sys\nwhile True: sys.stdout.write('x' * 65536)", "an answer is larger than"),
        ("import time\ntime.sleep(60)", "no answer within 0.5 s"),
    ],
)
def test_a_program_that_fails_does_not_hold_up_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, reason: str
) -> None:
    """It ends, is silent, answers nonsense, or answers without an end: values stay as they are, with the reason."""
    monkeypatch.setattr(command_decoder, "_MOST_BYTES", 1 << 20)
    monkeypatch.setattr(command_decoder, "_END_TIMEOUT", 0.1)
    monkeypatch.setattr(command_decoder, "_TIMEOUT", 0.5 if "sleep" in text else 30)
    found = rows("users", "--key-as", "int32", "--decode-with", program(tmp_path, text))
    assert reason in found[0]["value_error"]
    assert found[1]["value_error"]
    assert found[0]["key_decoded"] == 0


@pytest.mark.parametrize(
    ("answer", "decoded", "reason"),
    [
        ("print(json.dumps(answer)); print(json.dumps(answer), flush=True)", [1], "has the id 1 instead of 2"),
        ("n == 1 and print('hi'); print(json.dumps(answer), flush=True)", [None], "id 1 instead of 2"),
        ("print(json.dumps(answer), flush=True) if n != 2 else print('{', flush=True)", [1, None, 3, 4], None),
        ("print(json.dumps({**answer, 'id': '1'}), flush=True)", [None], "has the id \"1\" instead of 1"),
    ],
)  # fmt: skip
def test_values_never_come_from_another_answer(
    tmp_path: Path, answer: str, decoded: list[int | None], reason: str | None
) -> None:
    """Two lines for a value, or a line at the start of the program, do not move values to other records."""
    text = (
        f"import json, sys\nfor n, line in enumerate(sys.stdin, 1):\n    answer = dict(id=n, value=n)\n    {answer}\n"
    )
    own = command_decoder.Program(program(tmp_path, text))
    try:
        decoder = command_decoder.CommandDecoder("value", own)
        found = [decoder.decode("t", b"x") for _ in range(4)]
    finally:
        own.close()
    assert [one.value for one in found] == decoded + [None] * (4 - len(decoded))
    assert all((one.value is None) == bool(one.error) for one in found)
    if reason:
        assert reason in (found[-1].error or "")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("raise BaseException('x')", "BaseException: x"),
        ("import sys; sys.exit(5)", "SystemExit: 5"),
        ("raise type('Own', (Exception,), {'__str__': lambda self: 1 / 0})", "Own"),
        ("return 10 ** 5000", "ValueError: the result has a whole number of more than 4,000 digits"),
        ("x = []; x.append(x); return x", "ValueError: the result is nested deeper than 100 levels"),
    ],
)
def test_a_function_cannot_end_the_run(tmp_path: Path, body: str, reason: str) -> None:
    """What it raises or returns is the reason of its value, and all records are there."""
    path = tmp_path / "own.py"
    path.write_text(f"def decode(*_): {body}\n", encoding="utf-8")
    found = rows("orders", "--decoder", f"{path}:decode")
    assert len(found) == 7
    assert found[0]["value_error"] == reason


def test_results_that_are_not_unicode_are_written(tmp_path: Path) -> None:
    """A half of a surrogate pair in a result does not end the run."""
    path = tmp_path / "own.py"
    path.write_text("def decode(*_): return '\\ud800'\n", encoding="utf-8")
    assert rows("orders", "--decoder", f"{path}:decode")[0]["value_decoded"]


def test_large_values_and_early_answers_do_not_block(tmp_path: Path) -> None:
    """The program answers before it has read its request, and more than a pipe holds."""
    text = "import sys\nprint('{\"id\":1,\"value\":\"' + 'x' * 300000 + '\"}', flush=True)\nsys.stdin.read()"
    own = command_decoder.Program(program(tmp_path, text))
    try:
        decoder = command_decoder.CommandDecoder("value", own)
        assert len(decoder.decode("t", bytes(3_000_000)).value) == 300_000
    finally:
        own.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--decoder", "json"], "expected module:function or file.py:function"),
        (["--decoder", "absent_module:f"], "ModuleNotFoundError: No module named 'absent_module'"),
        (["--decoder", "absent.py:f"], "No such file or directory"),
        (["--decoder", "ends.py:f"], "SystemExit: 3"),
        (["--decoder", "json:absent"], "there is no function 'absent'"),
        (["--decode-with", "absent-program"], "--decode-with: absent-program: No such file or directory"),
        (["--decode-with", "'"], "--decode-with: No closing quotation"),
        (["--decode-with", ""], "--decode-with is empty"),
        (["--decode-with", "cat", "--decoder", "json:loads"], "exclude each other"),
    ],
)
def test_wrong_arguments(tmp_path: Path, arguments: list[str], message: str) -> None:
    """One clear line each, before the first row."""
    arguments = [argument.replace("ends.py", str(tmp_path / "ends.py")) for argument in arguments]
    (tmp_path / "ends.py").write_text("import sys; sys.exit(3)", encoding="utf-8")
    done = dump("orders", *arguments)
    assert (done.exit_code, "Traceback" in done.output) == (2, False)
    assert message in done.output
