"""The description for Kaitai Struct: current, and readers made from it find what Kafka's own reader finds."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.fixtures import FOLDERS, expected
from tools import layout_specs

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
      : { magic: message.magic, crc: message.crc })));
  }
});
"""


def test_the_description_is_current() -> None:
    """It is made from the layouts: `python -m tools.layout_specs --write` updates it."""
    assert layout_specs.FILE.read_text(encoding="utf-8") == layout_specs.written()


def test_a_reader_made_from_it_finds_what_kafka_finds(tmp_path: Path) -> None:
    """Batches of every version and codec, and all records that are not compressed, of every segment of a real broker."""
    packages = "kaitai-struct-compiler", "kaitai-struct", "js-yaml"
    node = shutil.which("node")
    if node is None or subprocess.run([node, "-e", f"{list(packages)}.map(require)"], capture_output=True).returncode:
        pytest.skip(f"needs node with {', '.join(packages)} in NODE_PATH")
    logs = [log for folder in FOLDERS for log in sorted(folder.glob("*.log")) if log.stat().st_size]
    command = [node, "-e", READER, str(layout_specs.FILE), str(tmp_path), *map(str, logs)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(logs), done.stderr
    records = 0
    for log, batches in zip(logs, found, strict=True):
        rows = expected(log.parent).get(log.name, [])
        others = [row for row in rows if row["kind"] == "batch"]
        assert [(one["magic"], one["crc"]) for one in batches] == [(one["magic"], one["crc"]) for one in others], log
        for one, other in zip(batches, others, strict=True):
            if one["magic"] < 2:
                continue
            for name in ("base_offset", "record_count", "producer_id"):
                assert one[name] == other[name]
            if other["compression"] == "none":
                of_batch = [row for row in rows if row["kind"] == "record" and row["position"] == other["position"]]
                assert one["records"] == [[row["offset"], _hex(row["key"]), _hex(row["value"])] for row in of_batch]
                records += len(of_batch)
    assert records > 500


def _hex(stored: str | None) -> str | None:
    return None if stored is None else base64.b64decode(stored).hex()
