"""Questions on a simple terminal. They run in the driver's event loop and close if another process answers."""

from __future__ import annotations

import click
from msgspec.structs import replace
from prompt_toolkit import PromptSession
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import create_output
from prompt_toolkit.output.vt100 import Vt100_Output

from windlass.answers import comment_wanted, validate
from windlass.errors import InterruptedDriverError
from windlass.model import Answer, Question


class TerminalAsker:
    """Contract: None if the person closes the prompt (Escape, Ctrl-D). Ctrl-C interrupts the run."""

    def __init__(self) -> None:
        keys = KeyBindings()

        @keys.add("escape", eager=True)
        def _close(event: KeyPressEvent) -> None:
            event.app.exit(exception=EOFError)

        output = create_output()
        if isinstance(output, Vt100_Output):
            # A one-line prompt needs no cursor position, and a simple terminal cannot report it.
            output.enable_cpr = False
        self._session: PromptSession[str] = PromptSession(key_bindings=keys, output=output)

    async def __call__(self, key: str, question: Question, problem: str) -> Answer | None:
        if problem:
            click.echo(f"  {problem}")
        default = f" [{question.default}]" if question.default else ""
        try:
            value, comment = await self._session.prompt_async(f"answer{default}> "), ""
            # An invalid choice is reported before a comment is asked for.
            chosen = validate(replace(question, comment=""), value)
            if not isinstance(chosen, str) and comment_wanted(question, chosen.value):
                comment = await self._session.prompt_async("what to change> ")
            return Answer(value, comment, "terminal")
        except EOFError:
            return None
        except KeyboardInterrupt:
            raise InterruptedDriverError("interrupted", hint="windlass resume asks again") from None
