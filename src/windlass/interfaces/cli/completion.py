"""Shell completions. Contract: never fails and never writes; without a result, the list is empty."""

from __future__ import annotations

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from windlass.errors import WindlassError
from windlass.interfaces.cli.common import Session
from windlass.runs.app import App
from windlass.text import clean

LONGEST_HELP = 60


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    try:
        return _matches(incomplete, ((row.id, row.request) for row in _app(ctx).service.runs()))
    except WindlassError:
        return []


def answers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The options of the active run's open questions."""
    from windlass.model import question_of

    try:
        service = _app(ctx).service
        active = service.active()
        asked = [question_of(row.data) for row in service.questions.pending(active.id)] if active else []
        options = ((option.key, option.label) for question in asked for option in question.options)
        return _matches(incomplete, options)
    except WindlassError:
        return []


def flows(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from windlass.runs.flows import flow_names

    try:
        folders = [folder / "flows" for folder in _app(ctx).project.folders()]
        return _matches(incomplete, ((name, "") for name in flow_names(folders)))
    except WindlassError:
        return []


def _app(ctx: click.Context) -> App:
    """During completion, click runs no command: there is no current context, and `--repo` is only parsed."""
    root = ctx.find_root()
    assert isinstance(root.obj, Session)
    return root.obj.apps.at(str(root.params.get("repo") or ""))


def _matches(incomplete: str, found: Iterable[tuple[str, str]]) -> list[CompletionItem]:
    return [
        CompletionItem(name, help=clean(about, LONGEST_HELP)) for name, about in found if name.startswith(incomplete)
    ]
