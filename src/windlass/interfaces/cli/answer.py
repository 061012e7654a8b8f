"""windlass answer: from any shell, by key, number or label."""

from __future__ import annotations

from typing import Any

import click

from windlass.errors import UserError
from windlass.interfaces.cli import completion
from windlass.interfaces.cli.common import app, echo_json, json_option
from windlass.runs.app import App
from windlass.runs.service import Service


@click.command(short_help="Answer a run's open question.")
@click.argument("words", nargs=-1, metavar="[RUN] [KEY] VALUE", shell_complete=completion.answers)
@click.option("--comment", "-m", default="", help="What to change, for answers that take a comment.")
@click.option("--no-resume", is_flag=True, help="Only store the answer.")
@json_option
def answer(words: tuple[str, ...], comment: str, no_resume: bool, as_json: bool) -> int | None:
    """Answer an open question; the run goes on as it was started.

    VALUE is an option's key, its number or its label. RUN and KEY are only needed when there is more than one.

    \b
      windlass answer approve
      windlass answer revise -m "split task 2"
      windlass answer 3f2a execution_mode 2
    """
    here = app()
    run, key, value = _meant(here.service, words)
    row, given = here.service.answer(run, key, value, comment, "windlass answer")
    rests = no_resume or here.service.driven(run)
    if as_json:
        code, result = (0, None) if rests else _went_on(here, run)
        echo_json({"run": run, "question": row.key, "answer": given.value, "comment": given.comment, "went_on": result})
        return code
    click.echo(f"{row.id}: {given.value}")
    if rests:
        return None
    from windlass.interfaces.cli.drive import go_on

    return go_on(here, run)


def _went_on(here: App, run: str) -> tuple[int, dict[str, Any]]:
    from windlass.interfaces.cli.drive import go_on_silently

    return go_on_silently(here, run)


def _meant(service: Service, words: tuple[str, ...]) -> tuple[str, str, str]:
    """RUN and KEY are told apart by what exists."""
    if not words:
        raise UserError("an answer is missing", hint="windlass status shows the question and its options")
    if len(words) > 3:
        raise UserError(
            "too many words", hint='windlass answer [RUN] [KEY] VALUE; quote a value with spaces: "two words"'
        )
    *names, value = words
    runs = [row.id for row in service.runs()]
    run = service.run(names.pop(0)).id if names and any(id.startswith(names[0]) for id in runs) else service.asking().id
    if len(names) > 1:
        raise UserError(f"there is no run '{names[0]}'", hint="windlass runs lists them")
    return run, names[0] if names else "", value


COMMANDS = {"answer": answer}
