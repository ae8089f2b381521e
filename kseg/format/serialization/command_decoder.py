"""``--decode-with``: a program of the user's own decodes keys and values.

The program runs once. It reads a line of JSON per value, and answers each with a line of JSON. No shell is involved. Its
standard input is closed when kseg ends, and it is killed if it then does not end.
"""

from __future__ import annotations

import atexit
import base64
import os
import selectors
import shlex
import subprocess
import time
from typing import Any

from kseg.errors import UsageError
from kseg.format.serialization.decoding import NOT_DECODED, Decoded, Headers
from kseg.format.serialization.plain import parse_json
from kseg.format.serialization.schemas import one_line
from kseg.text import os_error_text, to_json

#: The seconds for one value, and for the end of the program.
_TIMEOUT, _END_TIMEOUT = 30.0, 2.0
_MOST_BYTES = 16 << 20
_PIECE = 1 << 16


class CommandDecoder:
    """Decodes the keys or the values with a program.

    A request has ``id`` (a number), ``topic``, ``side`` ("key" or "value"), ``data`` in base64, and ``headers``: a list of
    ``key``, and ``value`` in base64 or null. The answer is ``{"id": …, "value": …}`` or ``{"id": …, "error": "reason"}``.
    """

    def __init__(self, side: str, program: Program) -> None:
        self._side = side
        self._program = program

    def decode(self, topic: str | None, data: bytes | None, headers: Headers = ()) -> Decoded:
        if data is None:
            return NOT_DECODED
        request = {
            "topic": topic,
            "side": self._side,
            "data": base64.b64encode(data).decode(),
            "headers": [_header(name, value) for name, value in headers],
        }
        try:
            answer = self._program.ask(request)
        except (OSError, ValueError) as error:
            return Decoded(self._program.name, error=str(error))
        if answer.get("error") is not None:
            return Decoded(self._program.name, error=one_line(answer["error"]))
        return Decoded(self._program.name, answer["value"])


def _header(name: Any, value: Any) -> dict[str, Any]:
    key = name if isinstance(name, str) else str(name, "utf-8", "replace")
    return {"key": key, "value": None if value is None else base64.b64encode(value).decode()}


class Program:
    """A running program that answers lines. Raises UsageError.

    After a failure it is not asked again. An answer to another request is a failure: a program that prints too many or too
    few lines would give values to the wrong records.
    """

    def __init__(self, command: str) -> None:
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"--decode-with: {error}") from None
        if not words:
            raise UsageError("--decode-with is empty: give a program with its arguments")
        try:
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        except OSError as error:
            raise UsageError(f"--decode-with: {os_error_text(error)}") from None
        atexit.register(self.close)
        self.name = os.path.basename(words[0])
        self._failed = ""
        self._asked = 0
        self._received = bytearray()
        assert self._process.stdin
        assert self._process.stdout
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        for descriptor in (self._input, self._output):
            os.set_blocking(descriptor, False)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a request. Raises OSError if the program failed, and ValueError for a wrong answer."""
        if self._failed:
            raise OSError(self._failed)
        self._asked += 1
        try:
            line = self._exchange(to_json({"id": self._asked, **request}).encode("utf-8", "backslashreplace") + b"\n")
            return self._checked(line)
        except OSError as error:
            self._failed = f"{self.name}: {error.strerror or error}"
            self.close()
            raise OSError(self._failed) from None

    def _checked(self, line: bytes) -> dict[str, Any]:
        """Return the answer of a line. Raises as ``ask`` does."""
        try:
            answer = parse_json(line)
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None
        if not isinstance(answer, dict) or not ("value" in answer or answer.get("error") is not None):
            raise ValueError(f"{self.name}: expected an object with value or error, got {to_json(answer)[:50]}")
        if "id" not in answer:
            raise OSError("an answer has no id: it must repeat the id of its request")
        if answer["id"] != self._asked:
            given = to_json(answer["id"])[:20]
            raise OSError(f"an answer has the id {given} instead of {self._asked}: expected one line for each request")
        return answer

    def close(self) -> None:
        """Close the program's input, and end the program."""
        atexit.unregister(self.close)
        for stream in (self._process.stdin, self._process.stdout):
            if stream:
                stream.close()
        try:
            self._process.wait(_END_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _exchange(self, request: bytes) -> bytes:
        """Write a request, and return the next line. Both at once: the program can answer before it has read all."""
        left, deadline = memoryview(request), time.monotonic() + _TIMEOUT
        with selectors.DefaultSelector() as ready:
            ready.register(self._output, selectors.EVENT_READ)
            ready.register(self._input, selectors.EVENT_WRITE)
            while True:
                if not left and (end := self._received.find(b"\n")) >= 0:
                    line = bytes(self._received[:end])
                    del self._received[: end + 1]
                    return line
                events = ready.select(max(deadline - time.monotonic(), 0))
                if not events:
                    raise OSError(f"no answer within {_TIMEOUT:g} s")
                for key, _ in events:
                    if key.fd == self._input:
                        left = left[os.write(self._input, left[:_PIECE]) :]
                        if not left:
                            ready.unregister(self._input)
                    else:
                        self._read()

    def _read(self) -> None:
        piece = os.read(self._output, _PIECE)
        if not piece:
            raise OSError("the program has ended")
        self._received += piece
        if len(self._received) > _MOST_BYTES:
            raise OSError(f"an answer is larger than {_MOST_BYTES:,} bytes")
