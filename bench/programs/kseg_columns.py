"""kseg's columns over a segment: CRCs checked, every record split. ``seconds`` leaves out the imports."""

import json
import sys
import time

from kseg.findings import Finding
from kseg.format.segment.deep_reader import DeepIterator
from kseg.reading import open_segment


def refuse(finding: Finding) -> None:
    raise SystemExit(f"a sound corpus has {finding}")


begin = time.perf_counter()
batches = records = value_bytes = 0
with open_segment(sys.argv[1], report=refuse) as reader:
    opener = DeepIterator(refuse)
    for window in reader.windows():
        batches += window.batches.count
        for chunk in opener.chunks(window):
            count = chunk.records.count
            records += count
            value_bytes += sum(memoryview(chunk.records.value_size)[:count])
seconds = time.perf_counter() - begin
print(json.dumps({"batches": batches, "records": records, "value_bytes": value_bytes, "seconds": seconds}))
