"""windlass completions: what a shell's start-up file takes in, for Tab and for a notice of runs in progress."""

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


@click.command(short_help="Completion and notices for bash, zsh and fish.")
@click.argument("shell", type=click.Choice(tuple(NOTICES)))
@click.option("--notice", is_flag=True, help="Also tell of a run in progress when a session enters its repository.")
def completions(shell: str, notice: bool) -> None:
    """Print what the start-up file of a shell takes in.

    \b
      eval "$(windlass completions bash --notice)"      in ~/.bashrc
      eval "$(windlass completions zsh --notice)"       in ~/.zshrc, after compinit
      windlass completions fish --notice | source       in ~/.config/fish/config.fish
    """
    click.echo(_source(shell) + (NOTICES[shell] if notice else ""), nl=False)


def _source(shell: str) -> str:
    from windlass.interfaces.cli import cli

    found = get_completion_class(shell)
    assert found is not None
    # Not the class's own: that of bash starts a bash to look at its version.
    return ShellComplete.source(found(cli, {}, "windlass", "_WINDLASS_COMPLETE"))


COMMANDS = {"completions": completions}
