"""One question on the screen: what is chosen, typed and wrong so far. Values in, values out; no terminal."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from windlass.answers import comment_wanted, validate
from windlass.model import Answer, Choice, Question

BY = "terminal"
YES_NO = (Choice("yes", "Yes"), Choice("no", "No"))
CHOOSE = "choose one: with the arrow keys, or type its key, number or label"


class Dialog(Struct, frozen=True):
    question: Question
    cursor: int = -1
    """The option that Enter takes; -1: none yet, so that a stray Enter approves nothing."""
    marked: frozenset[int] = frozenset()
    scroll: int = 0
    """First line of the long text in sight."""
    problem: str = ""
    chosen: str = ""
    """The option that was taken, while its comment is asked for."""
    note: str = ""
    """What came of the editor."""

    @property
    def options(self) -> tuple[Choice, ...]:
        asked = self.question
        return YES_NO if asked.type == "confirm" and not asked.options else asked.options

    @property
    def lists(self) -> bool:
        """Options to choose from, not words to write."""
        return bool(self.options) and not self.chosen and self.question.type not in ("input", "editor")

    @property
    def several(self) -> bool:
        return self.lists and self.question.type == "multi"

    @property
    def wants_editor(self) -> bool:
        long = self.question.comment == "editor" if self.chosen else self.question.type == "editor"
        return not self.lists and long

    @property
    def asks(self) -> str:
        return "What shall change?" if self.chosen else self.question.text


def opened(question: Question, problem: str = "") -> Dialog:
    dialog = Dialog(question, problem=problem)
    keys = [option.key for option in dialog.options]
    wanted = question.default.split(",") if dialog.several else [question.default]
    marked = frozenset(n for n, key in enumerate(keys) if dialog.several and key in wanted)
    cursor = keys.index(question.default) if question.default in keys else -1
    return replace(dialog, cursor=cursor, marked=marked)


def moved(dialog: Dialog, by: int) -> Dialog:
    if not dialog.lists:
        return dialog
    start = dialog.cursor if dialog.cursor >= 0 else (-1 if by > 0 else 0)
    return replace(dialog, cursor=(start + by) % len(dialog.options), problem="")


def toggled(dialog: Dialog) -> Dialog:
    if not dialog.several or dialog.cursor < 0:
        return dialog
    return replace(dialog, marked=dialog.marked ^ {dialog.cursor}, problem="")


def typed(dialog: Dialog, text: str) -> Dialog:
    """The option that the words stand for is shown as chosen; nothing else is guessed."""
    if not dialog.lists or dialog.several or not text.strip():
        return replace(dialog, problem="")
    found = validate(replace(dialog.question, comment="", default=""), text)
    keys = [option.key for option in dialog.options]
    cursor = -1 if isinstance(found, str) else keys.index(found.value)
    return replace(dialog, cursor=cursor, problem="")


def entered(dialog: Dialog, text: str) -> Dialog | Answer:
    """The answer, or the dialog that goes on: with what is wrong, or with the comment that is wanted."""
    if not dialog.lists:
        return _written(dialog, text)
    said = text.strip() or _picked(dialog)
    if not said and not dialog.question.default:
        return replace(dialog, problem=CHOOSE)
    found = validate(replace(dialog.question, comment=""), said)
    if isinstance(found, str):
        return replace(dialog, problem=found)
    if comment_wanted(dialog.question, found.value):
        return replace(dialog, chosen=found.value, problem="", scroll=0)
    return Answer(found.value, "", BY)


def _picked(dialog: Dialog) -> str:
    if dialog.several:
        return ",".join(dialog.options[n].key for n in sorted(dialog.marked))
    return dialog.options[dialog.cursor].key if dialog.cursor >= 0 else ""


def _written(dialog: Dialog, text: str) -> Dialog | Answer:
    value, comment = (dialog.chosen, text) if dialog.chosen else (text, "")
    found = validate(dialog.question, value, comment)
    if isinstance(found, str):
        return replace(dialog, problem=found)
    return Answer(found.value, found.comment, BY)
