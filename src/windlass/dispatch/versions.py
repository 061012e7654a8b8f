"""A CLI of a version that nobody tried: said once per run, and the work goes on."""

from __future__ import annotations

import asyncio

from windlass.agents import installed, registry
from windlass.engine.services import CheckServices
from windlass.events import Warned


class Versions:
    def __init__(self, parts: CheckServices) -> None:
        self._parts = parts
        self._looked: set[str] = set()

    async def look(self, agent: str) -> None:
        if agent in self._looked or agent not in registry.CLIS:
            return
        self._looked.add(agent)
        text = installed.untested(agent, await asyncio.to_thread(self._version, agent))
        if text:
            self._parts.journal.emit("agents", Warned("agent", text))
            self._parts.journal.flush()

    def _version(self, agent: str) -> str:
        options, environ = self._parts.config.agents.options(agent), self._parts.machine.environ
        binary = installed.find(agent, environ, str(options.get("bin", "")))
        return installed.version(binary, environ, str(options.get("node", ""))) if binary else ""
