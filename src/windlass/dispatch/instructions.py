"""Files of the project that agents are told to follow: a clean room keeps them out unless somebody asks for them.

They are read as they were when the scope began: no agent rewrites what its own reviewers are told.
"""

from __future__ import annotations

from msgspec.structs import replace

from windlass.dispatch.request import DispatchRequest
from windlass.events import Warned

MAX_BYTES = 64_000
"""Of all of them together."""
CUT = "\n[cut here: it is longer than what is passed on]"


async def with_instructions(order: DispatchRequest) -> DispatchRequest:
    if order.left:
        # a session that goes on was told
        return order
    found: dict[str, str] = {}
    for path in wanted(order):
        left = MAX_BYTES - sum(len(text.encode("utf-8", "replace")) for text in found.values())
        found |= await _read(order, path, max(left, 0))
    return replace(order, instructions=found)


def wanted(order: DispatchRequest) -> tuple[str, ...]:
    config, call = order.parts.config, order.call
    # a profile lends its agent, not its prompt
    own = config.role(call.role).instructions
    role = order.role.instructions if own is None else own
    every = (*config.workspace.instructions, *order.parts.world.flow.instructions, *role, *call.instructions)
    return tuple(dict.fromkeys(every))


async def _read(order: DispatchRequest, path: str, most: int) -> dict[str, str]:
    read = await order.place.desk.read_at_base(path, most)
    if read is None:
        _warn(order, f"'{path}' is not in the repository; agents work without it")
        return {}
    text, more = read
    if "\0" in text:
        _warn(order, f"'{path}' is not text; agents work without it")
        return {}
    if more:
        _warn(order, f"'{path}' goes beyond {MAX_BYTES} bytes of instructions; agents get its beginning")
    return {path: text + CUT * more}


def _warn(order: DispatchRequest, text: str) -> None:
    """Once per run, whichever dispatch sees it first."""
    order.parts.journal.emit("instructions", Warned("instructions", text))
