"""What counts as an answer. Light: `windlass answer` loads no more than this and the store."""

from __future__ import annotations

import re

from windlass.errors import UserError
from windlass.events import QuestionAnswered
from windlass.model import Answer, Question, question_of
from windlass.store.rows import QuestionRow
from windlass.store.sqlite import Store


def answer_from_outside(store: Store, run: str, row: QuestionRow, raw: str, comment: str, by: str) -> Answer:
    """What `windlass answer` does: validate, store, tell the loser who won."""
    checked = validate(question_of(row.data), raw, comment)
    if isinstance(checked, str):
        raise UserError(f"'{raw}' is not an answer to '{row.id}': {checked}", hint="the question stays open")
    with store.tx():
        if store.answer(run, row.key, checked.value, checked.comment, by):
            store.add_event(run, QuestionAnswered(row.key, row.id, checked.value, by, checked.comment))
            return Answer(checked.value, checked.comment, by)
    winner = store.question(run, row.key)
    assert winner is not None
    raise UserError(f"'{row.id}' was already answered with '{winner.answer}' by {winner.by}", hint="windlass status")


def validate(question: Question, raw: str, comment: str = "") -> Answer | str:
    """The answer in its canonical form, or what is wrong with it. Never a guess."""
    text = raw.strip()
    if not text and question.default:
        text = question.default
    if not text:
        return "it is empty"
    value = _input(question, text) if question.type in ("input", "editor") else _choice(question, text)
    if value is None:
        return _expected(question)
    missing = _comment_missing(question, value, comment)
    return missing or Answer(value, comment.strip())


def _input(question: Question, text: str) -> str | None:
    if question.check == "int":
        return str(int(text)) if re.fullmatch(r"[0-9]{1,9}", text) and int(text) > 0 else None
    return text


def _choice(question: Question, text: str) -> str | None:
    """By key, number or label; case does not matter, anything ambiguous is refused."""
    keys = [option.key for option in question.options]
    if text in keys:
        return text
    if re.fullmatch(r"[0-9]{1,4}", text):
        number = int(text)
        return keys[number - 1] if 1 <= number <= len(keys) else None
    low = text.casefold()
    alias = {name.casefold(): key for name, key in question.aliases.items()}.get(low)
    named = {o.key for o in question.options if low in (o.key.casefold(), o.label.casefold())}
    found = named | ({alias} if alias else set())
    return found.pop() if len(found) == 1 else None


def _expected(question: Question) -> str:
    if question.check == "int":
        return "a whole number from 1 is expected"
    numbered = ", ".join(f"{i}) {o.key}" for i, o in enumerate(question.options, 1))
    return f"one of {numbered} is expected"


def _comment_missing(question: Question, value: str, comment: str) -> str:
    rule = question.comment
    if comment.strip() or not rule.startswith("required"):
        return ""
    exempt = rule.removeprefix("required-unless-") if "-unless-" in rule else ""
    return "" if value == exempt else f"'{value}' needs a comment: say what to change"
