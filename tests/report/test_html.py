"""The HTML page of `kseg validate`: complete without JavaScript, searchable with it, small, and safe for hostile content."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kseg.cli.main import main
from kseg.extras.html import collected
from kseg.extras.html.page import bars, columns
from kseg.extras.html.validation_page import write_html
from kseg.findings import RULES, Finding, Severity, Verdict
from kseg.format.writer.records_builder import PlainRecord, build_batch
from kseg.report import wording
from kseg.report.formats import Run
from kseg.results import FileResult
from kseg.text import size_text
from tests.support.browser import Browser
from tests.support.cli import invoke
from tests.support.fixtures import SEGMENTS
from tests.support.reported import HOSTILE, SOUND, UNREAD, WORST, every_rule, facts_for, finding_for, result_of, written

RUN = Run("kseg validate t-0", ("t-0",), "broker-7", 1_700_000_000_000, "1.2.3", ("fail-on = warning",))


class Page(HTMLParser):
    """Checks that the elements nest, and keeps the tags, the attributes, the text, and the data of the script."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.parts: list[str] = []
        self.data: dict[str, Any] = {}
        self.feed(text)
        self.close()
        assert not self.stack, self.stack
        self.text = " ".join(" ".join(self.parts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.stack.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.stack[-1:] == ["script"] and self.tags[-1][1].get("id") == "data":
            self.data = json.loads(data)
        elif self.stack and self.stack[-1] not in ("script", "style"):
            self.parts.append(data)


def page_of(*results: FileResult) -> Page:
    return Page(written(write_html, *results))


def many(files: int, each: int, rule: str = "crc-mismatch") -> list[FileResult]:
    """Return results of damaged files with a number of findings each."""
    return [
        result_of(
            f"logs/topic-{file % 40}/{100 * file:020}.log",
            [finding_for(RULES[rule], at=61 * number) for number in range(each)],
            size=61 * each,
            limit=each,
        )
        for file in range(files)
    ]


# -- without JavaScript


def test_each_rule_has_its_remedy_and_the_reaction_of_a_broker() -> None:
    """A reader learns the consequence of each finding, and what to do, also without JavaScript."""
    every = [verdict.finding for verdict in every_rule().verdicts]
    # On two pages: one shows at most 100 rows of findings.
    for n in (0, 1):
        half = result_of("t-0/00000000000000000000.log", every[n::2])
        text = page_of(half, SOUND, UNREAD).text
        for verdict in half.verdicts:
            assert verdict.message in text
            assert verdict.rule.broker.replace("`", "").replace(" ", "") in text.replace(" ", "")
            assert verdict.rule.remedy.replace("`", "").replace(" ", "") in text.replace(" ", "")
            assert all(part in text for part in wording.places(verdict.finding))
        assert "no permission" in text


def test_the_verdict_and_the_damaged_partitions_come_before_the_findings() -> None:
    """The answer is read first."""
    text = page_of(SOUND, every_rule("a-0/00000000000000000000.log"), UNREAD).text
    places = [
        text.index(part)
        for part in ("2 of 2 partitions need attention", "Partitions that need attention", "What to do", "Findings")
    ]
    assert places == sorted(places)


def test_the_worst_findings_come_first() -> None:
    """A page of hundreds of infos must not begin with them."""
    listed = [group[2] for group in page_of(every_rule()).data["groups"]]
    assert listed == sorted(listed, reverse=True)
    assert set(listed) == {collected.DAMAGED, collected.WARNING, collected.INFO}


def test_equal_findings_of_a_file_are_one_row_with_count_and_range() -> None:
    """Thousands of equal findings are one fact."""
    page = page_of(*many(1, 40))
    assert page.text.count("crc-mismatch ×40") == 1
    assert "bytes 0..2439" in page.text
    ((_, _, _, _, count, findings, unlisted),) = page.data["groups"]
    assert (count, len(findings), unlisted) == (40, 40, None)


def test_findings_beyond_the_limit_per_rule_are_counted_and_have_their_range() -> None:
    """A row has the number and the range of all findings: who reads it must not take what is after the 16th as valid."""
    page = page_of(result_of("f", [finding_for(RULES["crc-mismatch"], at=100 * i) for i in range(30)]))
    ((_, _, _, _, count, findings, unlisted),) = page.data["groups"]
    assert (count, len(findings), unlisted) == (30, 16, [1600, 2961, 1600, 2904])
    assert "bytes 0..2960, offsets 0..2904" in page.text
    assert "offsets 0..4, 100..104, 200..204 and more within offsets 300..2904" in page.text


def test_findings_beyond_the_limit_of_the_page_are_in_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page lists fewer findings than the run; its ranges are those of all."""
    monkeypatch.setattr(collected, "MAX_FINDINGS", 5)
    page = page_of(result_of("f", [finding_for(RULES["crc-mismatch"], at=100 * i) for i in range(30)]))
    ((_, _, _, _, count, findings, unlisted),) = page.data["groups"]
    assert (count, len(findings), unlisted) == (30, 5, [500, 2961, 500, 2904])


def test_offsets_of_a_wrong_crc_are_uncertain_everywhere() -> None:
    """The CRC covers the header with the offsets: no list may name them without that reservation."""
    one, several = page_of(result_of("f", [finding_for(RULES["crc-mismatch"])])), page_of(*many(1, 9))
    assert one.text.count("offsets 0..4 (if the header is right)") == 1
    assert several.text.count("(if the headers are right)") == 2
    assert "(if the header" not in page_of(result_of("f", [finding_for(RULES["zero-tail"])])).text


def test_the_reason_of_an_unreadable_file_does_not_repeat_its_name() -> None:
    """The table has a column for it."""
    page = page_of(result_of("t-0/a.log", [], size=0, unread="t-0/a.log: Permission denied"))
    assert "t-0/a.log Permission denied" in page.text


def test_the_page_names_its_run() -> None:
    """Weeks later a reader must know the paths, the host, the time and the options."""
    text = Page(written(lambda results, total, out: write_html(results, total, out, run=RUN), SOUND)).text
    for part in ("kseg validate t-0", "broker-7", "2023-11-14T22:13:20.000Z", "kseg 1.2.3", "fail-on = warning"):
        assert part in text


def test_known_findings_are_marked() -> None:
    """A finding of the baseline is not news."""
    result = every_rule()
    known = tuple(Verdict(one.file, one.severity, one.finding, known=True) for one in result.verdicts)
    page = page_of(FileResult(result.file, known, result.summary))
    assert "error (known)" in page.text
    assert all(group[3] for group in page.data["groups"])


def test_exact_numbers_survive_javascript() -> None:
    """JavaScript rounds integers above 2**53: damaged offsets are larger."""
    offset = (1 << 62) + 1
    finding = Finding("crc-mismatch", position=0, offset=offset, last_offset=5, facts=facts_for(RULES["crc-mismatch"]))
    ((*_, findings, _),) = page_of(result_of("f", [finding])).data["groups"]
    assert findings[0][:4] == [0, None, str(offset), 5]


def test_valid_segments_are_listed_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet has a million segments; the page must still open."""
    monkeypatch.setattr(collected, "MAX_FILES", 5)
    results = [result_of(f"t-0/{number:020}.log", []) for number in range(9)]
    page = page_of(*results)
    assert len(page.data["files"]) == 5
    assert page.data["partitions"] == [["t-0/", 9, 0, 9 * 4096, 0, 4]]


def test_files_with_infos_are_listed_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each segment of a fleet without indexes has an info: damaged files are listed in addition to the first of them."""
    monkeypatch.setattr(collected, "MAX_FILES", 5)
    page = page_of(*many(9, 1, "no-indexes"), *many(3, 1))
    assert [row[2] for row in page.data["files"]] == [collected.INFO] * 5 + [collected.DAMAGED] * 3
    assert len(page.data["groups"]) == 8
    assert "4 findings not in this page" in page.text


def test_findings_are_listed_up_to_a_limit_the_worst_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory and the page are bounded, and errors are never left out for infos."""
    monkeypatch.setattr(collected, "MAX_FINDINGS", 50)
    page = page_of(*many(10, 10, "no-indexes"), *many(10, 10))
    listed = page.data["groups"]
    assert sum(len(group[5]) for group in listed) <= 50
    assert {group[2] for group in listed} == {collected.DAMAGED}
    assert re.search(r"\d+ findings not in this page", page.text)


# -- hostile content


def test_content_of_files_is_never_markup() -> None:
    """Names and messages come from damaged or hostile files: the elements of the page do not depend on them."""
    plain = Page(written(write_html, every_rule("x", "y"), result_of("x", [], unread="y")))
    for hostile in (*HOSTILE, WORST):
        page = page_of(every_rule(hostile, hostile), result_of(hostile, [], unread=hostile))
        assert [tag for tag, _ in plain.tags] == [tag for tag, _ in page.tags]
        assert page.data["partitions"][0][0] + page.data["files"][0][1] == wording.printable(hostile)


def test_the_page_needs_and_allows_no_other_file() -> None:
    """It is opened from a mail or a CI artifact: its policy allows its own style and script, by their hashes."""
    page = page_of(every_rule())
    names = {name for _, attributes in page.tags for name in attributes}
    assert not names & {"src", "srcset", "style", "onclick"}
    assert all((attributes.get("href") or "#").startswith("#") for _, attributes in page.tags)
    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "base", "form"}
    (policy,) = [tag[1]["content"] for tag in page.tags if "http-equiv" in tag[1]]
    own = "style-src 'sha256-HASH'; script-src 'sha256-HASH'"
    without_hashes = re.sub(r"'sha256-[\w+/]{43}='", "'sha256-HASH'", policy or "")
    assert without_hashes == f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'"


def test_the_script_sets_text_and_never_markup() -> None:
    """One assignment of markup would undo all escaping."""
    scripts = sorted(Path(collected.__file__).parent.glob("*.js"))
    assert len(scripts) == 5
    script = "".join(path.read_text(encoding="ascii") for path in scripts)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|DOMParser", script)


# -- plots


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 bytes"), (1, "1 byte"), (1023, "1,023 bytes"), (1536, "1.5 KiB"), (1 << 60, "1,024.0 PiB")],
)
def test_sizes(size: int, shown: str) -> None:
    """Numbers of bytes have a unit that people read."""
    assert size_text(size) == shown


def test_bars_add_up() -> None:
    """The smaller values are summed, so that the bars show all of them."""
    drawn = Page(bars("Bytes", [(f"p-{number}", number) for number in range(15)], str))
    assert "5 others 10" in drawn.text
    assert "100.0" in [attributes["width"] for tag, attributes in drawn.tags if tag == "rect"]


def test_columns_have_their_numbers_as_text() -> None:
    """A plot without its numbers is decoration."""
    values = [("small", 3), *[("none", 0)] * 5, ("large", 6)]
    assert Page(columns("Sizes", values, str, ("1", "9"))).text == "Sizes small: 3 large: 6 1 9"
    assert Page(columns("Sizes", [("a", 3), ("b", 4)], str, ("1", "9"))).text == "Sizes a 3 b 4"
    assert columns("Sizes", [("a", 0)], str, ("", "")) == ""


# -- in a browser


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Any:
    """Return a function that opens the page of some results."""

    def open_page(*results: FileResult, **how: Any) -> Browser:
        path = tmp_path / "report.html"
        path.write_text(written(write_html, *results), encoding="ascii")
        browser.open(path, **how)
        assert browser.errors == []
        return browser

    return open_page


MANY_ROWS = "document.querySelectorAll('#results tbody tr').length"
STATUS = "document.querySelector('#search [role=status]').textContent"


def test_a_click_on_a_segment_shows_its_bytes_offsets_and_findings(opened: Any) -> None:
    """The map leads to the damage, and back."""
    browser = opened(SOUND, *many(3, 2))
    browser.click(".partitions .cell.damaged")
    assert browser.value("document.getElementById('segment').open")
    assert browser.value("document.getElementById('segment-name').textContent") == "logs/topic-0/" + "0" * 20 + ".log"
    text = browser.value("document.getElementById('segment').textContent")
    assert all(part in text for part in ("By byte", "By offset", "crc-mismatch", "damaged"))
    assert browser.value("document.querySelectorAll('#segment .strip rect').length") == 4
    assert browser.value("location.hash").startswith("#file-")
    browser.press_escape()
    assert not browser.value("document.getElementById('segment').open")
    assert browser.errors == []


def test_a_segment_shows_where_findings_are_that_are_not_listed(opened: Any) -> None:
    """The strip covers the damage up to its end, and the list names the range of the rest."""
    path = "t-0/00000000000000000000.log"
    browser = opened(result_of(path, [finding_for(RULES["crc-mismatch"], at=100 * i) for i in range(40)], size=4096))
    browser.click(".partitions .cell.damaged")
    rest = "document.querySelector('#segment .strip.marks .rest')"
    assert "24 more findings within bytes 1,600..3,960" in browser.value(f"{rest}.textContent")
    assert browser.value(f"Number({rest}.getAttribute('x')) + Number({rest}.getAttribute('width'))") > 960
    text = "document.querySelector('#segment .findings').textContent"
    assert "bytes 0..3,960, offsets 0..3,904" in browser.value(text)
    browser.click("#segment .findings button.link")
    assert "24 more findings not listed (--limit): within bytes 1,600..3,960" in browser.value(text)


def test_a_segment_shows_its_codecs_batches_and_times(browser: Browser, tmp_path: Path) -> None:
    """The page of a real segment has its plots, and those of the whole run."""
    page = tmp_path / "report.html"
    done = invoke("validate", SEGMENTS / "2.8.2-v0v1v2-mixed", "--format", "html", "-o", page)
    assert done.exit_code == 0
    browser.open(page)
    text = browser.value("document.getElementById('content').textContent")
    assert all(title in text for title in ("Bytes by timestamp", "Batches by size", "Bytes by codec"))
    browser.click(".partitions .cell")
    shown = browser.value("document.getElementById('segment').textContent")
    assert all(part in shown for part in ("By byte", "By offset", "Timestamps", "Largest batch", "gzip", "offset 0"))
    assert browser.value("document.querySelectorAll('#segment .codecs rect').length") > 50
    assert browser.errors == []


def test_many_valid_segments_in_a_row_are_one_mark(opened: Any) -> None:
    """A damaged segment among thousands is seen without scrolling; a click shows the others."""
    results = [result_of(f"t-0/{number:020}.log", []) for number in range(300)]
    browser = opened(*results[:200], result_of(results[200].file, [finding_for(RULES["lost-bytes"])]), *results[201:])
    marks = "[...document.querySelectorAll('.cells > *')].map(mark => mark.textContent)"
    assert browser.value(marks) == ["200 valid", "✕", "99 valid"]
    browser.click(".run")
    assert browser.value(marks) == [*[""] * 200, "✕", "99 valid"]


def test_captures_and_standard_input_are_files(browser: Browser, tmp_path: Path) -> None:
    """A capture is neither a segment nor a side file."""
    page = tmp_path / "report.html"
    stream = SEGMENTS.parent / "streams" / "4.3.0-java" / "06.requests"
    invoke("validate", "--as", "requests", stream, "--format", "html", "-o", page)
    browser.open(page)
    assert browser.value("document.querySelector('#segments h2').textContent") == "Files"
    assert browser.value("document.querySelectorAll('.partitions .side').length") == 0
    log = next((SEGMENTS / "2.8.2-v0v1v2-mixed").glob("*.log")).read_bytes()
    CliRunner().invoke(main, ["validate", "-", "--report", f"html={page}"], input=log)
    browser.open(page)
    assert "standard input" in browser.value("document.querySelector('.facts').textContent")
    assert browser.value("document.querySelectorAll('.partitions .side').length") == 0


def test_damaged_timestamps_are_shown_as_numbers(browser: Browser, tmp_path: Path) -> None:
    """Nanoseconds in a field of milliseconds are outside of the range of a JavaScript date, which throws."""
    records = [
        PlainRecord(offset=at, timestamp=1_700_000_000_000_000_000 + at, key=None, value=b"x") for at in range(2)
    ]
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(build_batch([record]) for record in records))
    page = tmp_path / "report.html"
    invoke("validate", path, "--report", f"html={page}")
    browser.open(page)
    browser.click(".partitions .cell")
    assert "1,700,000,000,000,000,000" in browser.value("document.getElementById('segment').textContent")
    assert browser.errors == []


def test_segments_have_signs_and_names_besides_colours(opened: Any) -> None:
    """Colours alone say nothing to a screen reader, on a grey printout, or to one man in twelve."""
    browser = opened(SOUND, UNREAD, *many(1, 1))
    cells = browser.value("[...document.querySelectorAll('.partitions .cell')].map(c => [c.textContent, c.ariaLabel])")
    assert [sign for sign, _ in cells] == ["✕", "", "?"]
    assert all(
        name.endswith((": damaged, crc-mismatch ×1", ": valid", ": undetermined, could not be read ×1"))
        for _, name in cells
    )


def test_the_findings_are_searched_and_filtered(opened: Any) -> None:
    """Whoever has thousands of findings looks for one topic or one rule."""
    browser = opened(*many(80, 3), *many(1, 1, "no-indexes"), every_rule("odd name/00000000000000000000.log"))
    total = 241 + len(RULES)
    assert browser.value(STATUS).startswith(f"{total} findings in")
    assert browser.value(MANY_ROWS) == 12
    browser.click("#search > p button")
    assert browser.value(MANY_ROWS) == min(81 + len(RULES), 250)
    browser.type("#search input[type=search]", "TOPIC-7/")
    assert browser.value(STATUS).startswith("6 findings in 2 rows")
    browser.value("document.querySelector('#search input[type=search]').value = ''")
    browser.click("#search label:nth-of-type(1) input")
    errors = sum(rule.severity >= Severity.ERROR for rule in RULES.values())
    assert browser.value(STATUS).startswith(f"{1 + len(RULES) - errors} findings")
    browser.value(
        "(() => { const one = document.querySelector('#search select'); one.value = 'no-indexes';"
        " one.dispatchEvent(new Event('change')); })()"
    )
    assert browser.value(STATUS).startswith("2 findings in 2 rows")


def test_an_address_leads_to_one_finding(opened: Any) -> None:
    """A colleague gets a link to the finding, not to a page with 10,000."""
    browser = opened(*many(80, 3))
    browser.value("location.hash = '#finding-70'")
    shown = "document.getElementById('results').textContent"
    assert browser.value("new Promise(done => setTimeout(() => done(location.hash), 100))") == "#finding-70"
    assert browser.value(MANY_ROWS) == 2  # the row, and what to do
    assert "What to do: " in browser.value(shown)
    assert browser.value("document.querySelector('#results a').hash") == "#finding-70"
    browser.click("#results > p button")
    assert browser.value(MANY_ROWS) == 12
    listed = browser.value("document.querySelector('#listed #finding-70').textContent")
    assert "crc-mismatch" in listed  # the same anchor without JavaScript


def test_a_row_opens_to_all_its_findings_and_what_to_do(opened: Any) -> None:
    """A folded row hides nothing."""
    browser = opened(*many(1, 150))
    browser.click("#results .link")
    assert browser.value("document.querySelectorAll('#results .several li').length") == 100
    browser.click("#results .expanded button")
    assert browser.value("document.querySelectorAll('#results .several li').length") == 150
    assert "What to do: If another replica is in sync" in browser.value(
        "document.querySelector('#results .expanded').textContent"
    )
    browser.click("#results .link")
    assert browser.value("document.querySelector('#results .expanded')") is None


@pytest.mark.parametrize("hostile", [*HOSTILE, WORST])
def test_hostile_names_and_messages_run_nothing(opened: Any, hostile: str) -> None:
    """The browser is the judge: no element, no request and no script comes from a name or a message."""
    browser = opened(every_rule(hostile, hostile), result_of(hostile, [], unread=hostile))
    browser.click("#results .link")
    browser.click(".partitions .cell.damaged")
    assert browser.value("document.scripts.length") == 2
    shown = browser.value("document.getElementById('segment-name').textContent")
    assert shown == wording.printable(hostile)
    assert browser.errors == []


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_the_page_is_as_wide_as_the_window(opened: Any, width: int) -> None:
    """On a phone nobody scrolls sideways to read a verdict."""
    browser = opened(every_rule("a" * 200 + "/" + "b" * 60 + ".log"), *many(3, 3), UNREAD, width=width, height=800)
    assert browser.value("document.documentElement.scrollWidth") <= width
    browser.click(".partitions .cell.damaged")
    assert browser.value("document.getElementById('segment').scrollWidth") <= width
    button = "document.querySelector('.dialog-head button')"
    assert browser.value(f"{button}.getBoundingClientRect().height") < 50  # its text is one line
    assert browser.errors == []


@pytest.mark.parametrize("dark", [False, True])
def test_text_has_contrast_in_both_schemes(opened: Any, dark: bool) -> None:
    """WCAG AA: 4.5 to 1 for text on its own background."""
    browser = opened(every_rule(), UNREAD, dark=dark)
    worst = browser.value(
        """(() => {
        const linear = (c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        const light = (text) => { const [r, g, b] = text.match(/[\\d.]+/g).map((c) => linear(c / 255));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const back = (one) => { const color = getComputedStyle(one).backgroundColor;
          return color === 'rgba(0, 0, 0, 0)' && one.parentElement ? back(one.parentElement) : color; };
        const shown = 'h1,.lead,dt,dd,.verdict,.badge,.steps .faint,.partitions .cell,.link,td,th,.partition small';
        return Math.min(...[...document.querySelectorAll(shown)].map((one) => {
          const [a, b] = [light(getComputedStyle(one).color), light(back(one))].sort((x, y) => y - x);
          return (a + 0.05) / (b + 0.05); })); })()"""
    )
    assert worst >= 4.5


def test_ten_thousand_findings_are_a_small_page_that_prints_on_few_sheets(opened: Any, tmp_path: Path) -> None:
    """The browser draws only the rows that are shown; paper gets the verdict and the first folded rows."""
    browser = opened(*many(500, 20))
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
    assert browser.value(STATUS) == "10,000 findings in 500 rows"
    assert browser.value("document.querySelectorAll('*').length") < 6000
    assert browser.pages_on_paper() < 12


def test_the_page_is_complete_without_javascript(opened: Any) -> None:
    """Some mail clients and CI servers run no scripts."""
    browser = opened(*many(2, 3), script=False)
    text = browser.value("document.body.innerText")
    assert all(part in text for part in ("2 of 2 partitions need attention", "crc-mismatch ×3", "What to do"))
