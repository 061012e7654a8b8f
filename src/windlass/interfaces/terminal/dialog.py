"""The state of one question on the screen: the choice, the typed text, the problem. Pure functions; no terminal."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from windlass.answers import comment_wanted, validate
from windlass.model import Answer, Choice, Question

BY = "terminal"
YES_NO = (Choice("yes", "Yes"), Choice("no", "No"))
CHOOSE = "choose one with the arrow keys, or type its key, number or label"


class Dialog(Struct, frozen=True):
    question: Question
    cursor: int = -1
    """The option that Enter selects. -1: none yet, so that an accidental Enter approves nothing."""
    marked: frozenset[int] = frozenset()
    scroll: int = 0
    """The first visible line of the long text."""
    problem: str = ""
    chosen: str = ""
    """The selected option, while the dialog asks for its comment."""
    note: str = ""
    """The editor's message."""

    @property
    def options(self) -> tuple[Choice, ...]:
        asked = self.question
        return YES_NO if asked.type == "confirm" and not asked.options else asked.options

    @property
    def lists(self) -> bool:
        """Whether the dialog shows options, not a text field."""
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
        return "What should change?" if self.chosen else self.question.text


def open_dialog(question: Question, problem: str = "") -> Dialog:
    dialog = Dialog(question, problem=problem)
    keys = [option.key for option in dialog.options]
    wanted = question.default.split(",") if dialog.several else [question.default]
    marked = frozenset(n for n, key in enumerate(keys) if dialog.several and key in wanted)
    cursor = keys.index(question.default) if question.default in keys else -1
    return replace(dialog, cursor=cursor, marked=marked)


def move(dialog: Dialog, by: int) -> Dialog:
    if not dialog.lists:
        return dialog
    start = dialog.cursor if dialog.cursor >= 0 else (-1 if by > 0 else 0)
    return replace(dialog, cursor=(start + by) % len(dialog.options), problem="")


def toggle(dialog: Dialog) -> Dialog:
    if not dialog.several or dialog.cursor < 0:
        return dialog
    return replace(dialog, marked=dialog.marked ^ {dialog.cursor}, problem="")


def match_text(dialog: Dialog, text: str) -> Dialog:
    """Move the cursor to the option that the typed text names."""
    if not dialog.lists or dialog.several or not text.strip():
        return replace(dialog, problem="")
    found = validate(replace(dialog.question, comment="", default=""), text)
    keys = [option.key for option in dialog.options]
    cursor = -1 if isinstance(found, str) else keys.index(found.value)
    return replace(dialog, cursor=cursor, problem="")


def submit(dialog: Dialog, text: str) -> Dialog | Answer:
    """The answer, or the next dialog: with the problem, or with a request for a comment."""
    if not dialog.lists:
        value, comment = (dialog.chosen, text) if dialog.chosen else (text, "")
        found = validate(dialog.question, value, comment)
        return replace(dialog, problem=found) if isinstance(found, str) else Answer(found.value, found.comment, BY)
    selected = sorted(dialog.marked) if dialog.several else [dialog.cursor] if dialog.cursor >= 0 else []
    value = text.strip() or ",".join(dialog.options[n].key for n in selected)
    if not value and not dialog.question.default:
        return replace(dialog, problem=CHOOSE)
    found = validate(replace(dialog.question, comment=""), value)
    if isinstance(found, str):
        return replace(dialog, problem=found)
    if comment_wanted(dialog.question, found.value):
        return replace(dialog, chosen=found.value, problem="", scroll=0)
    return Answer(found.value, "", BY)
