"""Compile ``.proto`` texts with protoc. It is a separate process: a hostile text can take long, or can end it."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path, PurePosixPath

from kseg.errors import UsageError
from kseg.format.serialization.schemas import SchemaError

_TIMEOUT = 30
_ROOT = "kseg_schema.proto"
_MOST_BYTES = 16 << 20
#: Files that Confluent's registry knows, so that schemas can import them without a reference.
_KNOWN_IMPORTS = {
    "confluent/meta.proto": """syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta {
          string doc = 1; map<string, string> params = 2; repeated string tags = 3; repeated Rule rules = 4;
        }
        message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }
        """
    + "\n".join(
        f"extend google.protobuf.{name}Options {{ Meta {snake}_meta = 1088; }}"
        for name, snake in (
            ("File", "file"), ("Message", "message"), ("Field", "field"), ("Enum", "enum"), ("EnumValue", "enum_value"),
        )
    ),
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
}  # fmt: skip
#: Warnings on stderr, of protoc's own libraries.
_NOTE = re.compile(r"WARNING|[IW]\d{4} ")


@lru_cache(maxsize=8)
def compile_proto(label: str, text: str, imported: tuple[tuple[str, str], ...] = ()) -> bytes:
    """Return the FileDescriptorSet of a ``.proto`` text, with its imports first.

    ``imported`` has the names and texts of imports. Raises SchemaError if the text is not valid, and UsageError if there is
    no protoc.
    """
    command = _protoc()
    with tempfile.TemporaryDirectory(prefix="kseg-") as folder:
        source = Path(folder) / "source"
        for name, content in {**_KNOWN_IMPORTS, **dict(imported), _ROOT: text}.items():
            _write(label, source, name, content)
        result = Path(folder) / "result"
        arguments = [f"-I{source}", f"--descriptor_set_out={result}", "--include_imports", _ROOT]
        try:
            done = subprocess.run(
                [*command, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, timeout=_TIMEOUT, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise SchemaError(f"{label}: protoc did not finish within {_TIMEOUT} s") from None
        if done.returncode or not result.is_file():
            raise SchemaError(f"{label} is not valid Protobuf: {_reason(done.stderr, done.returncode)}")
        if result.stat().st_size > _MOST_BYTES:
            raise SchemaError(f"{label}: its descriptors are larger than {_MOST_BYTES:,} bytes")
        return result.read_bytes()


def _protoc() -> list[str]:
    if importlib.util.find_spec("grpc_tools"):
        return [sys.executable, "-P", "-m", "grpc_tools.protoc"]  # -P: no modules from the current folder
    if found := shutil.which("protoc"):
        return [found]
    raise UsageError("Protobuf schemas as text need protoc: pip install grpcio-tools")


def _write(label: str, folder: Path, name: str, text: str) -> None:
    """Write a file of an import; a name that leads out of the folder is rejected."""
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts or "\0" in name or len(name) > 1000:
        raise SchemaError(f"{label} imports {name!r}, which is not a relative path")
    if parts[:2] == ("google", "protobuf"):
        return  # protoc has its own
    path = folder.joinpath(*parts)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise SchemaError(f"{label} imports {name!r}: {error.strerror}") from None


def _reason(messages: bytes, code: int) -> str:
    """Return the first error of protoc, without the folder of the files and without the notes of its libraries."""
    lines = messages.decode("utf-8", "replace").splitlines()
    errors = [line for line in lines if ": " in line and not _NOTE.match(line)]
    if code < 0 or not errors:
        return f"protoc ended with {code}"
    return re.sub(rf"\S*{re.escape(_ROOT)}:", "line ", errors[0]).strip()[:200]
