"""kafka-python's reader over a segment: CRCs checked, every record made. ``seconds`` leaves out the imports."""

import json
import sys
import time

from kafka.record import MemoryRecords  # type: ignore[import-not-found]

begin = time.perf_counter()
with open(sys.argv[1], "rb") as file:
    reader = MemoryRecords(file.read())
batches = records = value_bytes = 0
while (batch := reader.next_batch()) is not None:
    if not batch.validate_crc():
        raise SystemExit(f"bad CRC in batch {batches}")
    batches += 1
    for record in batch:
        records += 1
        value_bytes += len(record.value)
seconds = time.perf_counter() - begin
print(json.dumps({"batches": batches, "records": records, "value_bytes": value_bytes, "seconds": seconds}))
