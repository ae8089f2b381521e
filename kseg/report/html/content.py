"""The plots of the content of a run: bytes by partition, codec, time and producer, and the sizes of batches."""

from __future__ import annotations

from collections import Counter

from kseg.format.compress.codecs import codec_name
from kseg.format.segment.outline import Outline
from kseg.report.html.plots import bars, columns, size_text
from kseg.text import count_of, iso_time

#: The most producers and time slots that are counted, and the columns of a plot over time.
_MOST_PRODUCERS = 4096
_MOST_SLOTS = 2048
_TIME_COLUMNS = 60


class Content:
    """The sums of the outlines of all segments."""

    def __init__(self) -> None:
        self._sizes: Counter[int] = Counter()
        self._codecs: Counter[int] = Counter()
        self._producers: dict[int, int] = {}
        # Bytes by time: the width of a slot in milliseconds doubles when there are too many slots.
        self._slots: dict[int, int] = {}
        self._width = 1000
        self._times: list[int] = []

    def add(self, outline: Outline) -> None:
        """Add a segment."""
        self._sizes.update(dict(enumerate(outline.sizes)))
        self._codecs.update(dict(enumerate(outline.bytes_by_codec)))
        for producer, size in outline.producers:
            self._producers[producer] = self._producers.get(producer, 0) + size
        if len(self._producers) > _MOST_PRODUCERS:
            largest = sorted(self._producers.items(), key=lambda item: -item[1])
            self._producers = dict(largest[: _MOST_PRODUCERS // 2])
        for time, size in zip(outline.times, outline.codec_bytes, strict=True):
            if time >= 0 and size:
                self._add_time(time, size)

    def _add_time(self, time: int, size: int) -> None:
        self._times = [min(time, *self._times), max(time, *self._times)] if self._times else [time, time]
        slot = time // self._width
        self._slots[slot] = self._slots.get(slot, 0) + size
        while len(self._slots) > _MOST_SLOTS:
            self._width *= 2
            self._slots = _halved(self._slots)

    def plots(self, partitions: list[tuple[str, int]]) -> str:
        """Return the plots as markup. ``partitions`` are (name, bytes); a single one is not worth a plot."""
        powers = [power for power, count in self._sizes.items() if count]
        first, last = min(powers, default=0), max(powers, default=-1) + 1
        sizes = [(f"{size_text(1 << power)} and more", self._sizes[power]) for power in range(first, last)]
        codecs = [(codec_name(codec), size) for codec, size in self._codecs.items() if size]
        producers = [(f"producer {producer}", size) for producer, size in self._producers.items()]
        drawn = (
            bars("File sizes by partition", partitions, size_text) if len(partitions) > 1 else "",
            self._by_time(),
            columns(
                "Batches by size", sizes, lambda count: count_of(count, "batch"),
                (size_text(1 << first), size_text(1 << last)),
            ),
            bars("Bytes by codec", codecs, size_text),
            bars("Bytes by producer", producers, size_text),
        )  # fmt: skip
        shown = "".join(drawn)
        return f'<div class="plots">\n{shown}</div>\n' if shown else ""

    def _by_time(self) -> str:
        slots, width = self._slots, self._width
        if not slots:
            return ""
        while max(slots) - min(slots) >= _TIME_COLUMNS:
            slots, width = _halved(slots), 2 * width
        first, last = min(slots), max(slots) + 1
        # The first slot begins before the first timestamp, and the last one ends after the last, possibly in the future.
        oldest, newest = self._times
        values = [(_second(max(slot * width, oldest)), slots.get(slot, 0)) for slot in range(first, last)]
        return columns("Bytes by timestamp", values, size_text, (_second(oldest), _second(newest)))


def _second(timestamp: int) -> str:
    return iso_time(timestamp // 1000 * 1000).replace(".000Z", "Z")


def _halved(slots: dict[int, int]) -> dict[int, int]:
    halved: dict[int, int] = {}
    for slot, size in slots.items():
        halved[slot // 2] = halved.get(slot // 2, 0) + size
    return halved
