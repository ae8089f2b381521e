"""Bytes that a payload still has as they were pass for stored ones, whichever codec of Kafka's clients wrote it."""

from __future__ import annotations

import random
import zlib
from collections import Counter
from collections.abc import Iterator

import pytest
import snappy
from lz4 import frame

from kseg.format.compress.codecs import compress
from kseg.format.compress.stored_bytes import can_be_stored
from kseg.format.writer.records_builder import PlainRecord, build_message
from tests.support.fuzzing import cases
from tests.support.stored_sets import TIME, random_value


def _payloads(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield payloads as the writers of clients make them."""
    for size in (frame.BLOCKSIZE_MAX64KB, frame.BLOCKSIZE_MAX1MB, frame.BLOCKSIZE_MAX4MB):
        yield "lz4", frame.compress(data, block_size=size)
    yield "lz4", frame.compress(data, block_size=frame.BLOCKSIZE_MAX64KB, compression_level=9)
    yield "snappy", compress(2, data, magic=1)
    yield "snappy", snappy.compress(data)
    for level in range(1, 10):
        yield "gzip", zlib.compress(data, level)


def _stored_runs(messages: list[bytes], payload: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the messages that a payload has as they were: those next to each other as one, with their position."""
    number = 0
    while number < len(messages):
        begin = end = payload.find(messages[number])
        while begin >= 0 and number < len(messages) and payload.startswith(messages[number], end):
            end += len(messages[number])
            number += 1
        if end > begin:
            yield payload[begin:end], begin
        else:
            number += 1


@pytest.mark.slow
@pytest.mark.fuzz
def test_what_a_codec_stored_can_be_stored() -> None:
    """Messages of random sets, also text after incompressible values, which LZ4 and snappy store."""
    runs: Counter[str] = Counter()
    for seed in range(cases(60)):
        dice = random.Random(seed)
        style = dice.choice(["text", "random", "both", "both"])
        messages = [
            build_message(PlainRecord(n, b"k", random_value(dice, n, 0, style), TIME), magic=1)
            for n in range(dice.choice([1, 3, 12, 25, 100, 400]))
        ]
        for codec, payload in _payloads(b"".join(messages)):
            for run, before in _stored_runs(messages, payload):
                runs[codec] += 1
                assert can_be_stored(run, before), (seed, codec, len(run), before)
    assert min(runs["lz4"], runs["snappy"], runs["gzip"]) > 50, runs


def test_text_is_not_stored() -> None:
    """A few messages of a usual kind show it, and more after more other bytes."""
    for count, before in ((20, 0), (20, 100), (30, 512), (300, 4096)):
        messages = [
            PlainRecord(n, b"user-%d" % n, b'{"event":%d,"page":"/item/%d"}' % (n, n * n), TIME) for n in range(count)
        ]
        assert not can_be_stored(b"".join(build_message(one, magic=1) for one in messages), before), count
