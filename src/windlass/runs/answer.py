"""An answer from another process. Light: `windlass answer` loads no more than this and the store."""

from __future__ import annotations

from windlass.answers import validate
from windlass.errors import UserError
from windlass.events import QuestionAnswered
from windlass.model import Answer, question_of
from windlass.store.epoch import Person
from windlass.store.port import Store
from windlass.store.rows import QuestionRow


def refuse_final(store: Store, run: str) -> None:
    state = store.runs.get(run).state
    if state.final:
        raise UserError(f"run {run} is {state}: there is nothing to answer any more", hint=f"windlass show {run}")


def answer_from_outside(store: Store, run: str, row: QuestionRow, raw: str, comment: str, by: str) -> Answer:
    """What `windlass answer` does: validate, store, tell the loser who won."""
    checked = validate(question_of(row.data), raw, comment)
    if isinstance(checked, str):
        raise UserError(f"'{raw}' is not an answer to '{row.id}': {checked}", hint="the question stays open")
    with store.transaction():
        refuse_final(store, run)
        if store.questions.answer(Person(run), row.key, checked.value, checked.comment, by):
            store.events.add(Person(run), QuestionAnswered(row.key, row.id, checked.value, by, checked.comment))
            return Answer(checked.value, checked.comment, by)
    winner = store.questions.find(run, row.key)
    assert winner is not None
    raise UserError(f"'{row.id}' was already answered with '{winner.answer}' by {winner.by}", hint="windlass status")
