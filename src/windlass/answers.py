"""Validates answers: by key, number or label, never by a guess."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct, field

from windlass.model import Answer, Json, Question


class Asker(Protocol):
    """An interface that can ask a person now. Contract: None if the person closed the prompt without an answer."""

    async def __call__(self, key: str, question: Question, problem: str) -> Answer | None: ...


class AnswerPolicy(Struct, frozen=True):
    """Answers given in advance."""

    answers: Mapping[str, str] = field(default_factory=dict)
    """id or key -> value, for the first time the question is asked; `id*` for every time."""
    yes: bool = False
    """Answer questions that declare `yes:`."""
    yes_to: frozenset[str] = frozenset()
    """Mandatory questions that the command line names."""
    wait: bool = False
    """Without a terminal: wait until another process answers, instead of ending."""

    def to_json(self) -> dict[str, Json]:
        yes_to: list[Json] = [*sorted(self.yes_to)]
        return {"answers": dict(self.answers), "yes": self.yes, "yes_to": yes_to, "wait": self.wait}

    @classmethod
    def from_json(cls, data: Json) -> AnswerPolicy:
        if not isinstance(data, dict):
            return cls()
        answers, yes_to = data["answers"], data["yes_to"]
        assert isinstance(answers, dict)
        assert isinstance(yes_to, list)
        given = {key: str(value) for key, value in answers.items()}
        return cls(given, bool(data["yes"]), frozenset(str(name) for name in yes_to), bool(data["wait"]))


def validate(question: Question, raw: str, comment: str = "") -> Answer | str:
    """Returns the answer in its canonical form, or the problem as a text."""
    text = raw.strip()
    if not (_is_text(text) and _is_text(comment)):
        return "it is not valid UTF-8"
    if not text and question.default:
        text = question.default
    if not text:
        return "it is empty"
    value = _value(question, text)
    if value is None:
        return _expected(question)
    rule = question.comment
    if rule.startswith("required") and not comment.strip():
        exempt = rule.removeprefix("required-unless-") if "-unless-" in rule else ""
        if value != exempt:
            return f"'{value}' needs a comment: say what to change"
    return Answer(value, comment.strip())


def _is_text(text: str) -> bool:
    """Bytes that are not UTF-8 become lone surrogates, which cannot be stored."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def _value(question: Question, text: str) -> str | None:
    if question.type in ("input", "editor"):
        if question.check == "int":
            return str(int(text)) if re.fullmatch(r"[0-9]{1,9}", text) and int(text) > 0 else None
        return text
    if question.type == "confirm" and not question.options:
        return text.casefold() if text.casefold() in ("yes", "no") else None
    whole = _choice(question, text)
    if question.type != "multi" or whole is not None:
        return whole
    # Keys, numbers or labels, separated by commas. The canonical form has the keys in the order of the options.
    found = [_choice(question, part.strip()) for part in text.split(",")]
    if None in found:
        return None
    return ",".join(dict.fromkeys(option.key for option in question.options if option.key in found))


def _choice(question: Question, text: str) -> str | None:
    """By key, number or label, ignoring case. An ambiguous text is refused."""
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
    if not question.options:
        return "yes or no is expected"
    numbered = ", ".join(f"{i}) {o.key}" for i, o in enumerate(question.options, 1))
    return f"{'some' if question.type == 'multi' else 'one'} of {numbered} is expected"


def comment_wanted(question: Question, value: str) -> bool:
    """Whether to ask a person who chose this option for a comment. The option that simply continues needs none."""
    exempt = question.comment.removeprefix("required-unless-") if "-unless-" in question.comment else question.yes
    return bool(question.comment) and value != exempt
