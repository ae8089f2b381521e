"""The descriptions for Kaitai Struct and ImHex: current, and what they read is what Kafka's own reader finds."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from kseg.format.record.layout import LOG_OVERHEAD, RECORD_BATCH_OVERHEAD
from tests.support.fixtures import FOLDERS, expected
from tools.layout_specs import FOLDER, WRITTEN

LOGS = [log for folder in FOLDERS for log in sorted(folder.glob("*.log")) if log.stat().st_size]
FINDINGS = Path(__file__).parents[2] / "fixtures" / "findings"

# Prints a line per file: its batches, and those of their records that the description reads.
READER = """
const fs = require('fs'), compiler = require('kaitai-struct-compiler'), yaml = require('js-yaml');
const { KaitaiStream } = require('kaitai-struct');
const [spec, folder, ...logs] = process.argv.slice(1);
const hex = (field) => field.content === undefined ? null : Buffer.from(field.content).toString('hex');
compiler.compile('javascript', yaml.load(fs.readFileSync(spec, 'utf8')), null, false).then((files) => {
  fs.writeFileSync(folder + '/KafkaLog.js', files['KafkaLog.js']);
  const { KafkaLog } = require(folder + '/KafkaLog.js');
  for (const log of logs) {
    const { batches } = new KafkaLog(new KaitaiStream(fs.readFileSync(log)));
    const whole = batches.filter((one) => one.body);
    console.log(JSON.stringify(whole.map(({ baseOffset, body: { message, recordBatch: v2 } }) => v2
      ? { magic: v2.magic, crc: v2.crc, base_offset: baseOffset, record_count: v2.recordCount, producer_id: v2.producerId,
          records: (v2.records || []).map((one) => [baseOffset + one.offsetDelta.value, hex(one.key), hex(one.value)]) }
      : { magic: message.magic, crc: message.crc,
          records: [[baseOffset, hex({ content: message.key }), hex({ content: message.value })]] })));
  }
});
"""


def test_the_descriptions_are_current() -> None:
    """They are made from the layouts: `python -m tools.layout_specs --write` updates them."""
    for file, text in WRITTEN.items():
        assert (FOLDER / file).read_text(encoding="utf-8") == text()


def test_a_reader_that_kaitai_made_finds_what_kafka_finds(tmp_path: Path) -> None:
    """Batches of every version and codec, and all records that are not compressed, of every segment of a real broker."""
    packages = "kaitai-struct-compiler", "kaitai-struct", "js-yaml"
    node = shutil.which("node")
    if node is None or subprocess.run([node, "-e", f"{list(packages)}.map(require)"], capture_output=True).returncode:
        pytest.skip(f"needs node with {', '.join(packages)} in NODE_PATH")
    command = [node, "-e", READER, str(FOLDER / "kafka_log.ksy"), str(tmp_path), *map(str, LOGS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    _compare(map(json.loads, done.stdout.splitlines()), bytes.hex)


def test_the_pattern_of_imhex_finds_what_kafka_finds() -> None:
    """The same by ImHex's own interpreter, batches at Kafka's positions, and records that fill them."""
    _compare(([_imhex_batch(row) for row in _imhex_rows(log)] for log in LOGS), _imhex_text)


def test_the_pattern_of_imhex_shows_files_with_damage() -> None:
    """No damage is an error in the pattern, which would hide what was read before it."""
    shown = 0
    for log in sorted(FINDINGS.glob("*/**/*.log")):
        if log.stat().st_size:
            shown += len(_imhex_rows(log))
    assert shown > 100


def _imhex_rows(log: Path) -> list[dict[str, Any]]:
    """Return the batches with a body that ImHex's interpreter finds in a file."""
    plcli = shutil.which("plcli")
    if plcli is None:
        pytest.skip("needs plcli of ImHex's PatternLanguage on the PATH")
    command = [plcli, "format", "-f", "json", "-m", "-p", str(FOLDER / "kafka_log.hexpat"), "-i", str(log)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
    assert done.returncode == 0, (log, done.stdout[-2000:])
    return [row for row in json.loads(done.stdout).get("batches", []) if "message" in row or "record_batch" in row]


def _imhex_batch(row: dict[str, Any]) -> dict[str, Any]:
    """Return a batch as READER prints it. Its records must fill it."""
    body: dict[str, Any] = row.get("message") or row["record_batch"]
    batch = body | {"position": int(row["__address"]), "base_offset": row["base_offset"]}
    at, end = batch["position"] + RECORD_BATCH_OVERHEAD, batch["position"] + LOG_OVERHEAD + row["batch_length"]
    if "message" in row:
        return batch | {"records": [[row["base_offset"], body.get("key"), body.get("value")]]}
    records = body.get("records", [])
    for record in records:
        assert int(record["__address"]) == at
        at += int(record["__size"])
    assert at == end or not records
    contents = [(one, one["key"].get("content"), one["value"].get("content")) for one in records]
    return batch | {"records": [[row["base_offset"] + int(one["offset_delta"]), *both] for one, *both in contents]}


def _imhex_text(content: bytes) -> str:
    """Return bytes as its interpreter writes them: the bytes that are not UTF-8 as Latin-1."""
    escaped = content.decode("utf-8", "surrogateescape")
    return "".join(chr(ord(one) - 0xDC00) if "\udc80" <= one <= "\udcff" else one for one in escaped)


def _compare(found: Iterable[list[dict[str, Any]]], content: Callable[[bytes], str]) -> None:
    """Compare the batches of LOGS, whose keys and values ``content`` made, with what Kafka's reader returned."""
    records = 0
    for log, batches in zip(LOGS, found, strict=True):
        rows = expected(log.parent).get(log.name, [])
        others = [row for row in rows if row["kind"] == "batch"]
        assert [(one["magic"], one["crc"]) for one in batches] == [(one["magic"], one["crc"]) for one in others], log
        for one, other in zip(batches, others, strict=True):
            assert one.get("position", other["position"]) == other["position"]
            if one["magic"] == 2:
                for name in ("base_offset", "record_count", "producer_id"):
                    assert one[name] == other[name]
            if other["compression"] == "none":
                of_batch = [row for row in rows if row["kind"] == "record" and row["position"] == other["position"]]
                keys_and_values = [[_content(row[name], content) for name in ("key", "value")] for row in of_batch]
                assert one["records"] == [
                    [row["offset"], *both] for row, both in zip(of_batch, keys_and_values, strict=True)
                ]
                records += len(of_batch)
    assert records > 500


def _content(stored: str | None, content: Callable[[bytes], str]) -> str | None:
    return None if stored is None else content(base64.b64decode(stored))
