"""The documentation: its generated parts are current, its links lead somewhere, and README stays short."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kseg.cli.main import COMMANDS
from kseg.rule_table import RULES
from tools.docs import benchmark_bars, documents, examples, option_tables, site
from tools.docs.terminal import WIDTH
from tools.lab.remedy_record import actions

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGES.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: What may be in a block of each language. Commands of kseg belong into `console`, whose output is compared.
LANGUAGES = {"console", "python", "text", "sh", "toml", "yaml", "sql", "json", ""}


def test_the_documentation_is_what_the_program_prints() -> None:
    """The output of every command, all tables, pictures, pages of rules and commands, and man pages; `make docs` updates."""
    assert documents.differences() == []


def test_the_page_about_spark_names_the_commands_that_run_there() -> None:
    """A reader learns which ones accept ``--spark``: the sentence has those that do, in their order."""
    page = (ROOT / "docs" / "how-to" / "query-with-spark.md").read_text(encoding="utf-8")
    *names, last = (f"`{name}`" for name in COMMANDS if "spark" in option_tables.fields_of(name))
    assert f"\n{', '.join(names)} and {last} accept `--spark MASTER`." in page


def test_readme_is_short() -> None:
    """A newcomer reads two screens, and sees in the first how to look at a file."""
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 250
    assert any("kseg dump" in line for line in lines[:20])


def test_links_lead_to_files_and_headings() -> None:
    """A reader who follows a link finds the page and the heading, also without the site."""
    for page in PAGES:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s]+)\)", text):
            if "://" in target:
                continue
            path, _, anchor = target.partition("#")
            linked = (page.parent / path).resolve() if path else page
            assert linked.exists(), (page, target)
            assert not anchor or anchor in anchors(linked), (page, target)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as Markdown renderers make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


#: Blocks of commands that are carried out on brokers: tests/checks/test_remedies.py.
# Pages whose scripts a test of their room runs.
RUN_ELSEWHERE = {
    "decode-values.md",  # tests/schemas/test_restore.py
    "controllers-are-lost.md",  # tests/adopt/test_lost_controllers_broker.py
}
REMEDIES = {"".join(f"{command}\n" for command in action.commands) for _, _, action in actions()}


def test_every_command_is_run_or_marked() -> None:
    """Output that is typed by hand grows old: each command is in a block that is run, or is marked with a reason."""
    known = {"lines", "width", "now", "needs", "no", "by", "fails", "tier"}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for language, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            if page.name in RUN_ELSEWHERE and language in ("sh", "bash"):
                continue
            assert language in LANGUAGES, page
            if language != "console" and block not in REMEDIES:
                assert not re.search(r"^(\$ )?kseg ", block, re.MULTILINE), (page, block)
        for options in re.findall(r"^<!-- run: (.*) -->$", text, re.MULTILINE):
            assert examples.options_of(options).keys() <= known, page


def test_tables_of_examples_fit_the_page() -> None:
    """The column of text on a screen of 1280 pixels has 88 characters: a wider table would have to be scrolled."""
    for page in PAGES:
        widest = max((len(line) for line in page.read_text(encoding="utf-8").split("\n") if "────" in line), default=0)
        assert widest <= WIDTH, page


def test_the_answer_of_the_benchmarks_comes_first() -> None:
    """A sentence and ten bars before the table. Both are made of the table, with what speaks against kseg."""
    text = benchmark_bars.PAGE.read_text(encoding="utf-8")
    assert text.index(benchmark_bars.sentence()) < text.index("benchmark-bars.svg") < text.index("bench:begin")
    assert len(benchmark_bars.CASES) == 10
    against = [figure for figure in benchmark_bars.figures() if figure.peer == benchmark_bars.PEER]
    shown = [figure.times for figure in against if figure.case in benchmark_bars.CASES]
    assert min(shown) == min(figure.times for figure in against)


def test_rules_in_output_are_links() -> None:
    """A reader of any page comes to the rule of a finding with one click; names that are not rules stay text."""

    class Page:
        url = "tutorials/example.html"

    shown = site.on_page_content("K201 crc-mismatch <code>zero-tail</code> <code>not-a-rule</code>", Page())
    assert shown == (
        'K201 <a href="../reference/rules/crc-mismatch.html">crc-mismatch</a> '
        '<code><a href="../reference/rules/zero-tail.html">zero-tail</a></code> <code>not-a-rule</code>'
    )


def test_every_rule_has_a_page_and_is_listed() -> None:
    """The list of rules is a tab of the site, so each page is two clicks away."""
    index = (ROOT / "docs" / "reference" / "rules" / "index.md").read_text(encoding="utf-8")
    assert set(RULES) == site.RULES == set(re.findall(r"\]\(([a-z0-9-]+)\.md\)", index))


def test_every_page_is_in_the_navigation() -> None:
    """A page that no menu has is not found. The rules are listed on a page of their own."""
    listed = set(re.findall(r"[\w/-]+\.md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert {page for page in pages - listed if not page.startswith("reference/rules/")} == set()


def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    """Links and anchors are right, and no cell of a table shows Markdown's escapes; `make site` builds the same.

    Not with --quiet: it hides warnings from the count of --strict.
    """
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    for built in tmp_path.rglob("*.html"):
        cells = re.findall(r"<td[^>]*>(.*?)</td>", built.read_text(encoding="utf-8"), re.DOTALL)
        assert [cell for cell in cells if re.search(r"\\(\||&lt;|\[|\*)", cell)] == [], built.name
    page = (tmp_path / "reference" / "rules" / "crc-mismatch.html").read_text(encoding="utf-8")
    assert not re.search(r'<(script|link|img)[^>]*(src|href)="(https?:)?//', page), (
        "it loads something from the network"
    )


def test_every_command_has_its_exit_codes_in_the_reference() -> None:
    """A pipeline reads them there: a new command without a row is found."""
    page = (ROOT / "docs" / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"| `{name}` | " not in page] == []


def test_the_environment_variables_of_the_code_are_listed() -> None:
    """Nobody finds a variable that no page names. Those that only a script of kseg sets are not for users."""
    own = {"KSEG_COMPLETE", "KSEG_ABI3"}
    sources = [*(ROOT / "kseg").rglob("*.py"), ROOT / "setup.py"]
    found = {
        name for path in sources for name in re.findall(r'"_?(KSEG_[A-Z0-9_]+)"', path.read_text(encoding="utf-8"))
    }
    page = (ROOT / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(KSEG_[A-Z0-9_]+)`", page, re.MULTILINE)) == found - own
