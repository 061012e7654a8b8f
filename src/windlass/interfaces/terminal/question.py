"""A question as text: the question, its options, and the command to answer it from another shell."""

from __future__ import annotations

from windlass.events import QuestionAsked
from windlass.text import Page
from windlass.views.outlook import answer_command
from windlass.views.state import QuestionView, question_from


def render_question(
    question: QuestionAsked | QuestionView, *, run: str = "", place: str = "", width: int = 80, unicode: bool = True
) -> str:
    asked = question if isinstance(question, QuestionView) else question_from(question, 0.0)
    page = Page(width, unicode=unicode)
    if asked.title:
        page.line(f"─── {asked.title} ───")
    if asked.detail:
        page.block(asked.detail, indent=2)
    page.line(f"? {asked.text}")
    for number, option in enumerate(asked.options, 1):
        label = f" — {option.label}" if option.label != option.key else ""
        about = f": {option.about}" if option.about else ""
        usual = " (default)" if option.key == asked.default and asked.default else ""
        page.line(f"{number}) {option.key}{label}{about}{usual}", indent=2, hang=3)
    if asked.default and not any(option.key == asked.default for option in asked.options):
        page.line(f"default: {asked.default}", indent=2)
    page.line("From another shell:", indent=2)
    page.command(answer_command(asked, run, place), indent=4)
    return page.text()
