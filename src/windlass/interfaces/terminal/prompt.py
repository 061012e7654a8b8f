"""Questions at the terminal: asked in the engine's own loop, closed when somebody else answers."""

from __future__ import annotations

import click
from prompt_toolkit import PromptSession
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from windlass.interfaces.terminal.question import comment_wanted
from windlass.model import Answer, Question


class TerminalAsker:
    """Contract: None when the person closed the prompt (Escape, Ctrl-D); Ctrl-C interrupts the run."""

    def __init__(self) -> None:
        keys = KeyBindings()

        @keys.add("escape", eager=True)
        def _close(event: KeyPressEvent) -> None:
            event.app.exit(exception=EOFError)

        self._session: PromptSession[str] = PromptSession(key_bindings=keys)

    async def __call__(self, key: str, question: Question, problem: str) -> Answer | None:
        if problem:
            click.echo(f"  {problem}")
        default = f" [{question.default}]" if question.default else ""
        try:
            value = await self._session.prompt_async(f"answer{default}> ")
            comment = await self._session.prompt_async("comment> ") if comment_wanted(question, value) else ""
        except EOFError:
            return None
        return Answer(value, comment, "terminal")
