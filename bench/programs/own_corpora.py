"""Write corpora with kseg's own writer, without Maven: the arguments and events of Corpora.java.

    python own_corpora.py FILE MAGIC CODEC RECORDS BATCH_SIZE KIND PRODUCERS

The bytes differ from those of Kafka's writer, since libraries compress differently. Size and difficulty are the same.
"""

from __future__ import annotations

import json
import random
import string
import sys
from collections.abc import Iterator

from kseg.format.writer.records_builder import (
    PlainRecord,
    build_batch,
    build_message,
    build_wrapper,
)

FIRST_TIMESTAMP = 1_700_000_000_000
ACTIONS = ("view", "click", "add_to_cart", "purchase", "search", "logout", "refund")
AGENTS = ("Mozilla/5.0 (X11; Linux x86_64)", "Mozilla/5.0 (Macintosh)", "okhttp/4.9.3")
COUNTRIES = ("DE", "US", "BR", "IN", "JP", "FR", "ZA")
# About the bytes of a record without its key and value.
RECORD_OVERHEAD = 12

chance = random.Random(20)


def event(timestamp: int, chance: random.Random = chance) -> str:
    return (
        f'{{"event_id":"{chance.getrandbits(60):x}","ts":{timestamp},"user":{{"id":{chance.randrange(50_000)},'
        f'"country":"{chance.choice(COUNTRIES)}"}},"action":"{chance.choice(ACTIONS)}",'
        f'"session":"{chance.getrandbits(32):x}","agent":"{chance.choice(AGENTS)}",'
        f'"path":"/shop/item/{chance.randrange(9_000)}","price":{chance.randrange(100_000) / 100},'
        f'"ms":{chance.randrange(900)},"ok":{"true" if chance.randrange(20) else "false"},"tags":["web","v2"]}}'
    )


def value(kind: str, timestamp: int) -> bytes:
    if kind == "lines":
        return "".join(chance.choices(string.ascii_lowercase, k=100)).encode()
    if kind == "events":
        return event(timestamp).encode()
    if kind.isdigit():
        return (event(timestamp) * (int(kind) // 200 + 1))[: int(kind)].encode()
    size = 64 * 1024 + chance.randrange(960 * 1024)
    events = [event(timestamp)]
    room = size - 400 - len(events[0])
    while room > 0:
        events.append(event(timestamp))
        room -= len(events[-1]) + 1
    return f"[{','.join(events)}]".encode()


def records(kind: str, magic: int, count: int) -> Iterator[PlainRecord]:
    for offset in range(count):
        timestamp = FIRST_TIMESTAMP + offset
        key = None if kind == "lines" else f"user-{chance.randrange(50_000)}".encode()
        yield PlainRecord(offset, key, value(kind, timestamp), timestamp if magic else -1)


def entry(batch: list[PlainRecord], magic: int, codec: str, producer: tuple[int, int] | None) -> bytes:
    if magic == 2 and producer:
        producer_id, sequence = producer
        return build_batch(
            batch,
            compression=codec,
            partition_leader_epoch=0,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
    if magic == 2:
        return build_batch(batch, compression=codec, partition_leader_epoch=0)
    if codec == "none":
        return b"".join(build_message(record, magic=magic) for record in batch)
    return build_wrapper(batch, magic=magic, compression=codec)


def main() -> None:
    path, magic, codec, count, batch_size, kind, producers = sys.argv[1:]
    sequences = [0] * int(producers)
    producer = None
    batches = written = size = 0
    # Like the producer, estimate the compression ratio from closed batches.
    ratio = 1.0
    batch: list[PlainRecord] = []
    with open(path, "wb") as out:
        for record in records(kind, int(magic), int(count)):
            batch.append(record)
            size += RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
            if record.offset + 1 < int(count) and (size + 270) * ratio < int(batch_size):
                continue
            if sequences:
                turn = batches % len(sequences)
                producer = turn, sequences[turn]
                sequences[turn] += len(batch)
            stored = entry(batch, int(magic), codec, producer)
            out.write(stored)
            batches += len(batch) if magic != "2" and codec == "none" else 1
            written += len(stored)
            ratio = len(stored) / size * 1.05
            size = 0
            batch.clear()
    print(json.dumps({"batches": batches, "records": int(count), "bytes": written}))


if __name__ == "__main__":
    main()
