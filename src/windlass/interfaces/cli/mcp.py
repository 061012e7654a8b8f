"""windlass mcp: tools for AI hosts."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec

import click

from windlass.errors import UserError
from windlass.interfaces.cli.common import session


@click.command(short_help="Serve tools for AI hosts (MCP).")
def mcp() -> None:
    """Speak the Model Context Protocol on stdin and stdout: the tool `workflow`, and one tool for each action.

    A host starts it in the repository. Runs continue in the background after the host ends.

    \b
      claude mcp add windlass -- windlass mcp
      windlass --repo ~/src/shop mcp
    """
    if find_spec("mcp") is None:
        raise UserError("the package 'mcp' is not installed", hint="pip install 'windlass[mcp]'")
    from windlass.interfaces.mcp.server import make_server

    here = session()
    make_server(partial(here.apps.at, here.place)).run("stdio")


COMMANDS = {"mcp": mcp}
