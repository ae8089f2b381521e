"""aiokafka's compiled reader over a segment: CRCs checked, every record made. ``seconds`` leaves out the imports."""

import json
import sys
import time

from aiokafka.record import memory_records  # type: ignore[import-not-found]

# Without the compiled module aiokafka falls back to Python without a message.
if "_crecords" not in memory_records.MemoryRecords.__module__:
    raise SystemExit("aiokafka's compiled reader is not there")

begin = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    reader = memory_records.MemoryRecords(file.read())
batches = records = value_bytes = 0
while reader.has_next():
    batch = reader.next_batch()
    if not batch.validate_crc():
        raise SystemExit(f"bad CRC in batch {batches}")
    batches += 1
    for record in batch:
        records += 1
        value_bytes += len(record.value)
seconds = time.perf_counter() - begin
print(json.dumps({"batches": batches, "records": records, "value_bytes": value_bytes, "seconds": seconds}))
