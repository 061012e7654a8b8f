"""Files of the project that agents are told to follow: a clean room keeps them out unless somebody asks for them.

They are read as they were when the scope began: no agent rewrites what its own reviewers are told.
"""

from __future__ import annotations

from windlass.config.schema import Config
from windlass.dispatch.request import DispatchRequest
from windlass.dispatch.workspace import Workspace
from windlass.engine.journal import Journal
from windlass.events import Warned

MAX_BYTES = 64_000
"""Of all of them together."""
CUT = "\n[cut here: it is longer than what is passed on]"


async def read_instructions(
    request: DispatchRequest, workspace: Workspace, config: Config, journal: Journal
) -> dict[str, str]:
    """Path -> content. What cannot be passed on is a warning, once per run."""
    found: dict[str, str] = {}
    for path in _wanted(request, config):
        left = MAX_BYTES - sum(len(text.encode("utf-8", "replace")) for text in found.values())
        read = await workspace.read_at_base(path, max(left, 0))
        if read is None:
            problem = f"'{path}' is not in the repository; agents work without it"
        elif "\0" in read[0]:
            problem = f"'{path}' is not text; agents work without it"
        else:
            text, cut = read
            found[path] = text + CUT * cut
            problem = f"'{path}' goes beyond {MAX_BYTES} bytes of instructions; agents get its beginning" if cut else ""
        if problem:
            journal.emit("instructions", Warned("instructions", problem))
    return found


def _wanted(request: DispatchRequest, config: Config) -> tuple[str, ...]:
    # a profile lends its agent, not its prompt
    own = config.role(request.call.role).instructions
    role = request.role.instructions if own is None else own
    every = (*config.workspace.instructions, *request.flow.instructions, *role, *request.call.instructions)
    return tuple(dict.fromkeys(every))
