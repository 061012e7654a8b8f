"""The command line: a thin layer over `runs`. A command's module loads only when the command is called."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from windlass import __version__
from windlass.interfaces.cli.common import Session
from windlass.interfaces.interrupts import raise_on_interrupt

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "run": "drive",
    "resume": "drive",
    "retry": "drive",
    "restart": "drive",
    "skip": "drive",
    "task": "drive",
    "workflow": "drive",
    "drive": "drive",
    "demo": "demo",
    "status": "read",
    "runs": "read",
    "show": "read",
    "log": "read",
    "answer": "answer",
    "tell": "control",
    "pause": "control",
    "abort": "control",
    "fork": "control",
    "land": "repo",
    "take": "repo",
    "gc": "repo",
    "check": "repo",
    "doctor": "setup",
    "init": "setup",
    "agents": "setup",
    "flow": "flows",
    "mcp": "mcp",
    "completions": "shell_setup",
}
HIDDEN = {"drive"}
"""A detached run starts `drive` in the background."""
NO_JSON = {
    "demo": "is for people; use --json with the other commands in its sample repository",
    "workflow": "combines several commands; use --json with those",
    "mcp": "speaks the Model Context Protocol",
    "completions": "prints shell code",
    "flow show": "prints the flow's YAML",
    "flow graph": "prints a drawing, or Mermaid code with --mermaid",
}
"""Commands without --json, and the reason."""


class Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if name not in HIDDEN]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"windlass.interfaces.cli.{COMMANDS[name]}")
        command: click.Command = module.COMMANDS[name]
        raise_on_interrupt()
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names only: the help texts would load every command module, and the shell waits for this."""
        from click.shell_completion import CompletionItem

        names = [CompletionItem(name) for name in self.list_commands(ctx) if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        from windlass.errors import near

        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"there is no command '{args[0]}'; {near(args[0], self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Lazy, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="windlass", message="%(prog)s %(version)s")
@click.option("--repo", default="", metavar="PLACE", help="The repository: a folder, or the URL given to `run --repo`.")
@click.pass_context
def cli(ctx: click.Context, repo: str) -> int | None:
    """Drive coding agents from a request to reviewed, tested, landed code.

    \b
      windlass run "Add rate limiting"     start a run
      windlass                             continue the active run
      windlass status                      show its progress and what it waits for
      windlass answer approve              answer its question
      windlass land                        merge the result into your branch
    """
    ctx.obj = Session(ctx.obj.apps, repo)
    if ctx.invoked_subcommand is not None:
        return None
    from windlass.interfaces.cli.drive import resume_active

    raise_on_interrupt()
    return resume_active()
