"""`ringfence completion`: print the script that completes commands and options in a shell."""

from __future__ import annotations

from typing import Final

import click
from click.shell_completion import get_completion_class

from ringfence.control.cli.exit_codes import Exit

PROGRAM: Final = "ringfence"
# click reads this variable: the script runs the program with it to get the possible next words.
VARIABLE: Final = "_RINGFENCE_COMPLETE"
SHELLS: Final = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> int:
    """Print the script that completes commands, options and their values in SHELL. bash needs 4.4 or newer.

    The script works where `ringfence` is on the PATH.

    \b
    Example:
      ringfence completion bash > ~/.local/share/bash-completion/completions/ringfence
      echo 'eval "$(ringfence completion zsh)"' >> ~/.zshrc
      ringfence completion fish > ~/.config/fish/completions/ringfence.fish
    """  # noqa: D301 - click's \b keeps the lines
    completion = get_completion_class(shell)
    assert completion is not None, shell
    # The template without click's check of the version: it runs the shell, which need not be installed here.
    script = completion(ctx.find_root().command, {}, PROGRAM, VARIABLE)
    click.echo(script.source_template % script.source_vars())
    return Exit.OK
