"""``kseg completion``: print or install the shell's completion of kseg's commands, options and paths."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from kseg.cli import common
from kseg.cli.messages import check_stdout, note
from kseg.cli.typed_command import command
from kseg.errors import KsegError, UsageError
from kseg.format.storage.atomic_write import whole_file
from kseg.format.writer.output_rule import check_output
from kseg.text import shell_word, unknown_name

VARIABLE = "_KSEG_COMPLETE"
SHELLS = ("bash", "zsh", "fish")
#: zsh sources the script from .zshrc, where compinit may not have run yet.
_ZSH_PREFIX = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }\n"


@dataclass(frozen=True, kw_only=True)
class CompletionOptions:
    shell: str | None
    install: bool


@command(
    CompletionOptions,
    arguments=(click.Argument(["shell"], type=common.Choice(SHELLS), required=False),),
    examples=("kseg completion --install", "kseg completion zsh", "source <(kseg completion bash)"),
)
def completion(asked: CompletionOptions) -> None:
    """Print the completion script of a shell, or install it.

    The default is the shell in $SHELL. --install writes the script below the home folder. For bash and zsh it also adds
    a line to ~/.bashrc or ~/.zshrc. Completion works in new shells.
    """
    shell = asked.shell or os.path.basename(os.environ.get("SHELL", ""))
    if not shell:
        raise UsageError(f"the environment has no variable SHELL: give one of {', '.join(SHELLS)}")
    if shell not in SHELLS:
        raise KsegError(unknown_name("shell", shell, SHELLS))
    script = source(click.get_current_context().find_root().command, shell)
    if not asked.install:
        check_stdout()
        click.echo(script, nl=False)
        return
    for path in _install(shell, script):
        home = Path.home()
        note(f"wrote {Path('~', path.relative_to(home)) if path.is_relative_to(home) else path}")


def source(command: click.Command, shell: str) -> str:
    """Return the script that asks ``kseg`` itself for completions."""
    found = get_completion_class(shell)
    assert found is not None
    # Not found.source(), which runs bash to ask for its version: bash 4.4 is of 2016.
    completer = found(command, {}, "kseg", VARIABLE)
    script = completer.source_template % completer.source_vars()
    return (_ZSH_PREFIX if shell == "zsh" else "") + script.strip() + "\n"


def _install(shell: str, script: str) -> list[Path]:
    """Write the script where the shell reads it. Returns the files that were written."""
    home = Path.home()
    if shell == "fish":
        config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
        target, start = config / "fish" / "completions" / "kseg.fish", None
    else:
        data = Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
        target = data / "kseg" / f"completion.{shell}"
        start = (Path(os.environ.get("ZDOTDIR") or home) / ".zshrc") if shell == "zsh" else home / ".bashrc"
    target.parent.mkdir(parents=True, exist_ok=True)
    _write(target, script)
    if start is None:
        return [target]
    quoted = shell_word(str(target))
    mark = "  # completion of kseg\n"
    line = f"[ ! -r {quoted} ] || . {quoted}{mark}"
    present = start.read_text(encoding="utf-8", errors="surrogateescape") if start.exists() else ""
    if line in present:
        return [target]
    # An older version quoted the path in another way.
    present = "".join(one for one in present.splitlines(keepends=True) if not one.endswith(mark))
    _write(start, present + (line if not present or present.endswith("\n") else f"\n{line}"))
    return [target, start]


def _write(path: Path, text: str) -> None:
    """Write a file atomically. A symbolic link stays: its target is replaced. Raises KsegError."""
    check_output(str(path), (), "--install")
    with whole_file(path.resolve()) as out:
        out.write(text.encode("utf-8", "surrogateescape"))
