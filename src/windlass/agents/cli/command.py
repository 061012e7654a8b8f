"""Any CLI by a template of its arguments: its output is the answer, exit code 0 means success, its cost is unknown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from windlass.agents.base import AgentEvent, Capabilities, Done, Invocation, Job, Said
from windlass.agents.cli.failures import classify_text
from windlass.errors import UserError, near
from windlass.model import ErrorClass

PLACEHOLDERS = ("prompt_file", "cwd", "model", "role")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


class CommandAdapter:
    capabilities = Capabilities()
    flat_usd: float | None = None

    def __init__(self, argv: Sequence[str], name: str = "command") -> None:
        self.name = name
        self.credential = name
        self.template = tuple(argv)
        hint = 'like argv = ["mycli", "--model", "{model}", "{prompt_file}"]'
        if not self.template or not all(isinstance(item, str) for item in self.template):
            raise UserError(f"agent '{name}' needs 'argv', a list of its command and arguments", hint=hint)
        for word in (word for item in self.template for word in _PLACEHOLDER.findall(item)):
            if word not in PLACEHOLDERS:
                raise UserError(f"agent '{name}' has an unknown '{{{word}}}' in argv", hint=near(word, PLACEHOLDERS))

    def invocation(self, job: Job) -> Invocation:
        values = {
            "prompt_file": str(job.folder / "input.md"),
            "cwd": str(job.cwd),
            "model": job.model,
            "role": job.role,
        }
        text = f"{job.system}\n\n{job.prompt}" if job.system else job.prompt
        argv = tuple(_PLACEHOLDER.sub(lambda found: values[found[1]], item) for item in self.template)
        if any("{prompt_file}" in item for item in self.template):
            return Invocation(argv, files={"input.md": text})
        return Invocation(argv, stdin=text)

    def parse(self, line: str) -> list[AgentEvent]:
        return [Said(line)]

    def at_exit(self, text: str, code: int | None) -> Done | None:
        return Done(text.strip()) if code == 0 else None

    def classify(self, stderr: str, code: int | None) -> tuple[ErrorClass, str]:
        return classify_text(stderr, code)
