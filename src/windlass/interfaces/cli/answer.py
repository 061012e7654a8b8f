"""windlass answer: answer a question from any shell, by key, number or label."""

from __future__ import annotations

import click

from windlass.errors import UserError
from windlass.interfaces.cli import completion
from windlass.interfaces.cli.common import app, echo_json, json_option
from windlass.runs.service import Service


@click.command(short_help="Answer a run's open question.")
@click.argument("words", nargs=-1, metavar="[RUN] [KEY] VALUE", shell_complete=completion.answers)
@click.option("--comment", "-m", default="", help="What to change, for an option that takes a comment.")
@click.option("--no-resume", is_flag=True, help="Store the answer, but do not continue the run.")
@json_option
def answer(words: tuple[str, ...], comment: str, no_resume: bool, as_json: bool) -> int | None:
    """Answer an open question and continue the run.

    VALUE is an option's key, its number or its label. Name RUN and KEY only when more than one question is open.

    \b
      windlass answer approve
      windlass answer revise -m "split task 2"
      windlass answer 3f2a execution_mode 2
    """
    here = app()
    run, key, value = _parse_words(here.service, words)
    row, given = here.service.questions.answer(run, key, value, comment, "windlass answer")
    stored_only = no_resume or here.service.is_driven(run)
    if as_json:
        from windlass.interfaces.cli.drive import continue_silently

        code, result = (0, None) if stored_only else continue_silently(here, run)
        echo_json({"run": run, "question": row.key, "answer": given.value, "comment": given.comment, "went_on": result})
        return code
    click.echo(f"{row.id}: {given.value}")
    if stored_only:
        return None
    from windlass.interfaces.cli.drive import continue_run

    return continue_run(here, run)


def _parse_words(service: Service, words: tuple[str, ...]) -> tuple[str, str, str]:
    """The first word is RUN if a run has such an id; otherwise it is KEY."""
    if not words:
        raise UserError("the answer is missing", hint="windlass status shows the question and its options")
    if len(words) > 3:
        raise UserError(
            "too many words", hint='windlass answer [RUN] [KEY] VALUE; quote a value with spaces: "two words"'
        )
    *names, value = words
    runs = [row.id for row in service.runs()]
    run = (
        service.run(names.pop(0)).id
        if names and any(id.startswith(names[0]) for id in runs)
        else service.run_to_answer().id
    )
    if len(names) > 1:
        raise UserError(f"there is no run '{names[0]}'", hint="windlass runs lists them")
    return run, names[0] if names else "", value


COMMANDS = {"answer": answer}
