"""Helpers that commands share: the app, the size of the screen, JSON output."""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from windlass.errors import UserError
from windlass.events import Recorded, encode
from windlass.runs.app import App, Apps
from windlass.text import Page

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")


def run_hints(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Import the completions only when the user presses Tab."""
    from windlass.interfaces.cli import completion

    return completion.runs(ctx, param, incomplete)


run_argument = click.argument("run", default="", metavar="[RUN]", shell_complete=run_hints)


class Session(Struct, frozen=True):
    """What every command of one invocation needs. Click passes it as the context's object."""

    apps: Apps
    place: str = ""
    """The repository from `windlass --repo PLACE COMMAND`."""


def session() -> Session:
    found = click.get_current_context().find_root().obj
    assert isinstance(found, Session)
    return found


def app() -> App:
    """The app of the current folder, or of the repository named with --repo."""
    here = session()
    return here.apps.at(here.place)


def width() -> int:
    return max(40, min(shutil.get_terminal_size((80, 24)).columns, 120))


def unicode_fits() -> bool:
    encoding = (sys.stdout.encoding or "").lower()
    return "utf" in encoding and session().apps.environ.get("TERM") != "dumb"


def colour_fits() -> bool:
    env = session().apps.environ
    return sys.stdout.isatty() and "NO_COLOR" not in env and env.get("TERM") != "dumb"


def is_interactive() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def echo_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def event_json(recorded: Recorded) -> str:
    event = {"seq": recorded.seq, "at": recorded.at, "type": recorded.event.type, **json.loads(encode(recorded.event))}
    return json.dumps(event)


def page() -> Page:
    return Page(width(), unicode=unicode_fits())


def pairs(given: tuple[str, ...], option: str, example: str = "review_mode=iterative") -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UserError(f"'{option} {text}' does not have the form NAME=VALUE", hint=f"{option} {example}")
        found[name] = value
    return found
