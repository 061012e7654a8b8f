"""Answers from another process. `windlass answer` loads only this module and the store."""

from __future__ import annotations

from msgspec import Struct

from windlass.answers import validate
from windlass.errors import UserError, near
from windlass.events import QuestionAnswered
from windlass.model import Answer, question_of
from windlass.store.epoch import Person
from windlass.store.port import Store
from windlass.store.rows import QuestionRow


class RunQuestions(Struct, frozen=True):
    """The stored questions of a repository's runs."""

    store: Store

    def pending(self, run: str) -> list[QuestionRow]:
        """The open questions. A final run has none."""
        return [] if self.store.runs.get(run).state.final else self.store.questions.all(run, pending=True)

    def answer(self, run: str, key: str, value: str, comment: str, by: str) -> tuple[QuestionRow, Answer]:
        """Validate and record an answer. The first valid answer wins; a later one raises and names the winner."""
        self._refuse_final(run)
        pending = self.pending(run)
        found = [row for row in pending if not key or key in (row.key, row.id)]
        if len(found) > 1:
            raise UserError("more than one question is open", hint=f"name one: {', '.join(row.key for row in found)}")
        if not found:
            for row in reversed(self.store.questions.all(run)):
                if row.state == "answered" and key in (row.key, row.id):
                    raise _already_answered(row)
            hint = near(key, [row.key for row in pending]) if pending else "windlass status shows what the run is doing"
            raise UserError(f"no question '{key}' is open" if key else "no question is open", hint=hint)
        [row] = found
        checked = validate(question_of(row.data), value, comment)
        if isinstance(checked, str):
            raise UserError(f"'{value}' is not an answer to '{row.id}': {checked}", hint="the question stays open")
        with self.store.transaction():
            self._refuse_final(run)
            if self.store.questions.answer(Person(run), row.key, checked.value, checked.comment, by):
                self.store.events.add(
                    Person(run), QuestionAnswered(row.key, row.id, checked.value, by, checked.comment)
                )
                return row, Answer(checked.value, checked.comment, by)
        winner = self.store.questions.find(run, row.key)
        assert winner is not None
        raise _already_answered(winner)

    def _refuse_final(self, run: str) -> None:
        state = self.store.runs.get(run).state
        if state.final:
            raise UserError(f"run {run} is {state} and takes no more answers", hint=f"windlass show {run}")


def _already_answered(row: QuestionRow) -> UserError:
    return UserError(f"'{row.id}' was already answered with '{row.answer}' by {row.by}", hint="windlass status")
