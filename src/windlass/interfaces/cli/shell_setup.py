"""windlass completions: shell code for Tab completion, and for a notice of runs in progress."""

from __future__ import annotations

import click
from click.shell_completion import ShellComplete, get_completion_class

NOTICES = {
    "bash": """
_windlass_notice() {
  [ "$PWD" = "$_WINDLASS_SEEN" ] && return
  _WINDLASS_SEEN=$PWD
  windlass status --brief
}
PROMPT_COMMAND="_windlass_notice${PROMPT_COMMAND:+;$PROMPT_COMMAND}"
""",
    "zsh": """
_windlass_notice() { windlass status --brief; }
autoload -Uz add-zsh-hook
add-zsh-hook chpwd _windlass_notice
_windlass_notice
""",
    "fish": """
function _windlass_notice --on-variable PWD
    status is-interactive; and windlass status --brief
end
_windlass_notice
""",
}


@click.command(short_help="Print completion code for bash, zsh and fish.")
@click.argument("shell", type=click.Choice(tuple(NOTICES)))
@click.option("--notice", is_flag=True, help="Also print a line when you enter a repository with a run in progress.")
def completions(shell: str, notice: bool) -> None:
    """Print shell code for your shell's start-up file.

    \b
      eval "$(windlass completions bash --notice)"      in ~/.bashrc
      eval "$(windlass completions zsh --notice)"       in ~/.zshrc, after compinit
      windlass completions fish --notice | source       in ~/.config/fish/config.fish
    """
    from windlass.interfaces.cli import cli

    found = get_completion_class(shell)
    assert found is not None
    # Not the subclass's method: the one for bash starts a bash process to read its version.
    source = ShellComplete.source(found(cli, {}, "windlass", "_WINDLASS_COMPLETE"))
    click.echo(source + (NOTICES[shell] if notice else ""), nl=False)


COMMANDS = {"completions": completions}
