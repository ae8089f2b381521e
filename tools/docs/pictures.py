"""The pictures of the documentation as SVG: commands in a terminal, and the bytes of batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from html import escape
from pathlib import Path

from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from tools.docs import benchmark_bars, byte_pictures
from tools.docs.terminal import Terminal

_THEME = TerminalTheme(
    (24, 27, 34),
    (220, 224, 232),
    [(24, 27, 34), (240, 113, 120), (158, 206, 106), (224, 175, 104), (122, 162, 247), (187, 154, 247), (125, 207, 255),
     (200, 204, 212)],
    [(90, 96, 110), (240, 113, 120), (158, 206, 106), (224, 175, 104), (122, 162, 247), (187, 154, 247), (125, 207, 255),
     (255, 255, 255)],
)  # fmt: skip
_CHAR, _LINE, _MARGIN, _SIZE = 8.4, 19, 18, 14
_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"

#: Name of a picture of a terminal -> the commands in it.
SESSIONS: Mapping[str, tuple[str, ...]] = {"validate": ("kseg validate kafka-logs",)}


def images(terminal: Terminal, home: Path) -> dict[str, str]:
    """Return the text of each picture by its file name. The commands run in ``home``."""
    made = {f"{name}.svg": _session(commands, terminal, home) for name, commands in SESSIONS.items()}
    pictures: Mapping[str, Callable[[], str]] = byte_pictures.PICTURES
    made["benchmark-bars.svg"] = benchmark_bars.bars()
    return made | {f"{name}.svg": make() for name, make in pictures.items()}


def _session(commands: tuple[str, ...], terminal: Terminal, home: Path) -> str:
    lines = []
    for command in commands:
        lines += [Text.assemble(("$ ", "bold green"), (command, "bold"))]
        lines += Text.from_ansi(terminal.run(command, home).styled.strip("\n")).split("\n", allow_blank=True)
    for line in lines:
        line.rstrip()
    return _terminal(lines, " && ".join(commands))


def _terminal(lines: list[Text], title: str) -> str:
    width = 2 * _MARGIN + _CHAR * max(len(line.plain) for line in lines)
    top = 44
    height = top + _LINE * len(lines) + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
        f'height="{height}" role="img" aria-label="The output of {escape(title)}">',
        f'<rect width="100%" height="100%" rx="8" fill="{_THEME.background_color.hex}"/>',
        *(f'<circle cx="{20 + 18 * at}" cy="20" r="6" fill="{color}"/>' for at, color in enumerate(
            ("#ff5f57", "#febc2e", "#28c840"))),
        f'<g font-family="{_FONT}" font-size="{_SIZE}" fill="{_THEME.foreground_color.hex}">',
    ]  # fmt: skip
    for number, line in enumerate(lines):
        parts += [_run(text, style, at, top + _LINE * number) for text, style, at in _runs(line)]
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _runs(line: Text) -> list[tuple[str, Style, int]]:
    """Return the pieces of a line that have one style, with their columns."""
    from rich.console import Console

    console = Console(color_system="truecolor", width=1000)
    runs, column = [], 0
    for segment in line.render(console):
        # Viewers draw several spaces as one: text is split there.
        for piece in re.finditer(r"\S+(?: \S+)*", segment.text):
            runs.append((piece[0], segment.style or Style(), column + piece.start()))
        column += len(segment.text)
    return runs


def _run(text: str, style: Style, column: int, baseline: int) -> str:
    """Return one piece of text; ``textLength`` keeps the columns whatever font there is."""
    attributes = [f'x="{_MARGIN + _CHAR * column:.1f}" y="{baseline}" textLength="{_CHAR * len(text):.1f}"']
    if style.color:
        attributes.append(f'fill="{style.color.get_truecolor(_THEME).hex}"')
    if style.bold:
        attributes.append('font-weight="bold"')
    if style.dim:
        attributes.append('opacity="0.7"')
    return f"<text {' '.join(attributes)}>{escape(text)}</text>"
