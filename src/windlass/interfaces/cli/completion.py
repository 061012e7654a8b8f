"""What a shell offers after a Tab. A hint that cannot be given is none: nothing here may fail or write."""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from windlass.errors import WindlassError
from windlass.text import clean

LONGEST_HELP = 60


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _matching(incomplete, _rows())


def answers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The options of the questions that are open in the active run."""
    try:
        return _matching(incomplete, _options())
    except WindlassError:
        return []


def flows(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from windlass.interfaces.cli.common import app
    from windlass.runs.flows import flow_names

    try:
        folders = [folder / "flows" for folder in app().kit.folders()]
        return _matching(incomplete, ((name, "") for name in flow_names(folders)))
    except WindlassError:
        return []


def _rows() -> list[tuple[str, str]]:
    from windlass.interfaces.cli.common import app

    try:
        return [(row.id, row.request) for row in app().service.runs()]
    except WindlassError:
        return []


def _options() -> list[tuple[str, str]]:
    from windlass.interfaces.cli.common import app
    from windlass.model import question_of

    service = app().service
    active = service.active()
    asked = [question_of(row.data) for row in service.pending(active.id)] if active else []
    return [(option.key, option.label) for question in asked for option in question.options]


def _matching(incomplete: str, found: Iterable[tuple[str, str]]) -> list[CompletionItem]:
    return [
        CompletionItem(name, help=clean(about, LONGEST_HELP)) for name, about in found if name.startswith(incomplete)
    ]
