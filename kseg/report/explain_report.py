"""Output of ``kseg explain``: one page about a file, or the kinds of files in a folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from textwrap import wrap
from typing import NamedTuple, TextIO

from kseg.commands.explain import Entry, FileKind, Lesson, Section
from kseg.findings import Verdict
from kseg.format.compress.codecs import codec_name
from kseg.format.record.field_facts import FACTS, FILES, KIPS, VERSIONS, main_source
from kseg.format.record.fields import StoredField
from kseg.format.storage.naming import is_snapshot
from kseg.report.formats import View
from kseg.report.hex import LABEL_WIDTH, colours_of, field_lines
from kseg.report.tables import LEAST_TEXT, may_colour, styled, terminal_width
from kseg.text import count_of, escape_controls, inclusive_range

#: The most fields of a part, bytes of a field, rules and KIPs that are shown: the page is for one or two screens.
MAX_FIELDS, MAX_BYTES, MAX_RULES, MAX_KIPS = 16, 32, 4, 8
#: The width of a page in a pipe, and the largest one on a terminal: longer lines are hard to read.
WIDTH, MAX_WIDTH = 80, 120


class Page(NamedTuple):
    """A page of the documentation by its title, and its path below ``docs``."""

    title: str
    path: str


LOG_FORMAT = Page("The log format", "explanation/log-format.md")
BY_EXAMPLE = Page("The message format by example", "explanation/message-format-by-example.md")
SIDE_FILES = Page("Read side files", "how-to/read-side-files.md")
INTERNAL = Page("Read internal topics", "how-to/read-internal-topics.md")
TRAFFIC = Page("Read captured traffic and single messages", "how-to/read-captured-traffic.md")
DAMAGE = Page("How damage is skipped", "explanation/resynchronisation.md")
#: The pages that the explanations name.
PAGES = (LOG_FORMAT, BY_EXAMPLE, SIDE_FILES, INTERNAL, TRAFFIC, DAMAGE)


class _Writer:
    """Writes a page in the width of the output. A fact about a field is written once."""

    def __init__(self, out: TextIO, view: View) -> None:
        self._out = out
        self._width = min(terminal_width(out), MAX_WIDTH) if view.terminal else WIDTH
        self._colours = colours_of(view)
        self._bold = view.terminal and may_colour()
        self._known: set[tuple[str, str]] = set()

    def heading(self, text: str) -> None:
        lines = wrap(text, self._width, subsequent_indent="  ")
        self._out.write("\n" + "".join(styled(line, "bold", self._bold) + "\n" for line in lines))

    def text(self, text: str, indent: int = 2) -> None:
        """Write a paragraph; words longer than a line, such as paths, stay whole."""
        first, rest = " " * indent, " " * (indent + 2)
        lines = wrap(
            escape_controls(text), self._width, initial_indent=first, subsequent_indent=rest,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip
        self._out.writelines(line + "\n" for line in lines)

    def section(self, section: Section, *, only: str = "") -> None:
        """Write the first fields of a part with their facts, or the one with the name ``only``."""
        part = section.part
        fields = [self._with_fact(one, section.group) for one in part.fields if not only or one.name == only]
        width = max(self._width - 80 + LABEL_WIDTH, LEAST_TEXT)
        lines = field_lines(fields[:MAX_FIELDS], part.data, part.shift, self._colours, width, MAX_BYTES)
        self._out.writelines(lines)
        if len(fields) > MAX_FIELDS:
            self._out.write(f"{'':12}... {count_of(len(fields) - MAX_FIELDS, 'more field')}\n")

    def _with_fact(self, one: StoredField, group: str) -> StoredField:
        fact = FACTS.get(group, {}).get(one.name)
        if fact is None or one.content or (group, one.name) in self._known:
            return one
        self._known.add((group, one.name))
        source = "" if fact.source == main_source(group) else f" [{fact.source}]"
        return one._replace(meaning=f"{one.meaning}; {fact.meaning}{source}")


def write_lesson(lesson: Lesson, out: TextIO, view: View) -> None:
    page = _Writer(out, view)
    page.text(f"{lesson.path}: {_title(lesson)}", indent=0)
    for line in _content(lesson):
        page.text(line)
    seen: set[str] = set()
    for entry in lesson.entries:
        _write_entry(page, entry, seen)
    page.heading("Unusual")
    for line in _unusual(lesson):
        page.text(line)
    page.heading("Read next")
    for line in _next(lesson):
        page.text(line)


def _title(lesson: Lesson) -> str:
    size = count_of(lesson.size, "byte")
    if lesson.side:
        name, state = lesson.side.side.title, lesson.side.state
        return f"{name}, {size}{f', {state}' if state else ''}"
    name = "KRaft snapshot in the format of a log segment" if is_snapshot(lesson.path) else "log segment"
    return f"{name}, {size}" if lesson.kind == "segment" else f"read as {lesson.kind}, {size}"


def _content(lesson: Lesson) -> Iterator[str]:
    """Yield the content of the file, and the releases of Kafka that write it."""
    if lesson.side:
        known = FILES[lesson.side.side.kind]
        yield f"Purpose: {known.purpose}."
        yield f"{count_of(lesson.counts.total(), 'entry')}, written by Kafka's {known.classes[0]}."
        columns = lesson.side.side.columns
        if lesson.first and lesson.side.side.kind not in FACTS:
            for column, value in zip(columns, lesson.first, strict=True):
                yield f"{column.name} = {'-' if value is None else value}: {column.meaning}"
        return
    if lesson.kind in ("segment", "message-set"):
        for magic, count in sorted(lesson.counts.items()):
            yield f"v{magic}: {count_of(count, 'batch')}, a format written by {VERSIONS[magic].releases}"
        if not lesson.counts:
            yield "No batch."
        codecs = ", ".join(codec_name(codec) for codec in sorted(lesson.codecs))
        if codecs:
            yield f"Compression: {codecs}"
        if lesson.topic:
            yield f"Records of the internal topic {lesson.topic}: `kseg dump --deep` decodes them."
        return
    noun = "frame" if lesson.kind in ("requests", "responses") else "message"
    counted = ", ".join(f"{name} {count:,}" for name, count in lesson.counts.most_common(8))
    more = f", {len(lesson.counts) - 8} others" if len(lesson.counts) > 8 else ""
    yield f"{count_of(lesson.counts.total(), noun)}: {counted}{more}"


def _write_entry(page: _Writer, entry: Entry, seen: set[str]) -> None:
    """Write an entry. Of the header of a batch whose version was shown before only the attributes are new."""
    header, *others = entry.sections
    version = f"{header.group} at {entry.position}"
    if header.group in ("message", "batch") and len(header.part.data) > 16:
        version = f"{header.group} {header.part.data[16]}"
    title = f"First {entry.title}: {inclusive_range('byte', entry.position, entry.end - 1)}"
    known = version in seen
    source = f" (fields from {main_source(header.group)} unless named)" if header.group in FACTS and not known else ""
    page.heading(f"{title}; its header differs in" if known else f"{title}{source}")
    page.section(header, only="attributes" if known else "")
    seen.add(version)
    for section in others:
        if section.part.title:
            kind = f"{section.group} in {version}{' control' * ('control' in entry.title)}"
            if kind in seen:
                page.text(f"{section.part.title}: the same fields as above")
                continue
            seen.add(kind)
            page.text(section.part.title)
        page.section(section)
    if entry.rest:
        page.text(f"{entry.end - entry.rest:8d}  {count_of(entry.rest, 'more byte')}, with the same fields")


def _unusual(lesson: Lesson) -> Iterator[str]:
    """Yield the findings of the quick check, one line for each rule."""
    by_rule: dict[str, list[Verdict]] = {}
    for verdict in lesson.result.verdicts if lesson.result else ():
        by_rule.setdefault(verdict.rule.name, []).append(verdict)
    worst = sorted(by_rule.values(), key=lambda found: -found[0].severity)
    for first, *_ in worst[:MAX_RULES]:
        assert lesson.result
        count = lesson.result.summary.rules[first.rule.name]
        place = "" if first.finding.position is None else f" at byte {first.finding.position}"
        more = f" ({count - 1:,} more)" if count > 1 else ""
        yield f"{first.severity.label} {first.rule.name}{place}: {first.message}{more}"
    if len(worst) > MAX_RULES:
        yield f"{count_of(len(worst) - MAX_RULES, 'other rule')}: `kseg validate` lists the findings"
    elif worst:
        yield f"`kseg rules {worst[0][0].rule.name}` explains the rule."
    else:
        yield "Nothing was found by a quick check."
    if not (lesson.deep or lesson.side):
        yield "Only headers were checked: `kseg validate` reads the records, too."


def _next(lesson: Lesson) -> Iterator[str]:
    """Yield the pages, KIPs and classes that continue where this page ends."""
    pages, classes, kips = [LOG_FORMAT], [], []
    for section in (section for entry in lesson.entries for section in entry.sections):
        for one in section.part.fields:
            fact = FACTS.get(section.group, {}).get(one.name)
            kips += [fact.source] if fact else []
    as_name = (
        f" --as {lesson.kind}" if lesson.kind in ("requests", "responses", "message", "wide-crc", "message-set") else ""
    )
    if lesson.side:
        known = FILES[lesson.side.side.kind]
        pages, classes, kips = [SIDE_FILES, LOG_FORMAT], [*known.classes], [*known.kips, *kips]
    elif lesson.kind in ("segment", "message-set"):
        versions = [VERSIONS[magic] for magic in sorted(lesson.counts) or VERSIONS]
        classes = [name for version in versions for name in version.classes]
        kips = [*(kip for version in versions for kip in version.kips), *kips]
        pages += [BY_EXAMPLE, *([INTERNAL] if lesson.topic else [])]
    else:
        pages = [TRAFFIC, BY_EXAMPLE]
        classes = ["RequestHeader", "ResponseHeader"] if lesson.kind in ("requests", "responses") else ["LegacyRecord"]
    if lesson.result and lesson.result.summary.errors:
        pages.append(DAMAGE)
    yield f"All bytes: `kseg dump{as_name} --format hex {lesson.path}`"
    yield f"Documentation: {'; '.join(page.title for page in pages)}"
    kips = ["KIP-630", *kips] if is_snapshot(lesson.path) else kips
    named = [kip for kip in dict.fromkeys(kips) if kip in KIPS]
    for kip in named[:MAX_KIPS]:
        yield f"{kip}: {KIPS[kip]}"
    yield f"Classes of Kafka: {', '.join(dict.fromkeys(classes))}"


def write_folder(path: str, kinds: Iterable[FileKind], out: TextIO, view: View) -> None:
    page = _Writer(out, view)
    page.text(f"{path}: a folder with these kinds of files. `kseg explain FILE` explains one of them.", indent=0)
    for kind in kinds:
        page.text(f"{kind.files:,} x {kind.title}{f': {kind.purpose}' if kind.purpose else ''}, such as {kind.example}")
