"""Instruction files of the project. Agents get only the files that the configuration, the flow or the role names.

Their text is from the commit at which the scope began, so that an agent cannot rewrite the instructions of its
reviewers.
"""

from __future__ import annotations

from windlass.config.schema import Config
from windlass.dispatch.request import DispatchRequest
from windlass.dispatch.workspace import Workspace
from windlass.engine.journal import Journal
from windlass.events import Warned

MAX_BYTES = 64_000
"""The limit for all files together."""
CUT = "\n[cut here: the file is too long]"


async def read_instructions(
    request: DispatchRequest, workspace: Workspace, config: Config, journal: Journal
) -> dict[str, str]:
    """Path -> content. A file that cannot be used gives a warning, once per run."""
    found: dict[str, str] = {}
    for path in _instruction_paths(request, config):
        left = MAX_BYTES - sum(len(text.encode("utf-8", "replace")) for text in found.values())
        read = await workspace.read_at_base(path, max(left, 0))
        if read is None:
            problem = f"'{path}' is not in the repository; agents work without it"
        elif "\0" in read[0]:
            problem = f"'{path}' is not text; agents work without it"
        else:
            text, cut = read
            found[path] = text + CUT * cut
            problem = f"'{path}' exceeds the {MAX_BYTES} bytes of instructions; agents get its beginning" if cut else ""
        if problem:
            journal.emit("instructions", Warned("instructions", problem))
    return found


def _instruction_paths(request: DispatchRequest, config: Config) -> tuple[str, ...]:
    # A profile replaces the agent of a role, not its prompt.
    own = config.role(request.call.role).instructions
    role = request.role.instructions if own is None else own
    every = (*config.workspace.instructions, *request.flow.instructions, *role, *request.call.instructions)
    return tuple(dict.fromkeys(every))
