"""`windlass doctor --try`: asks each agent that a run would use for one word. This costs a little."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

from windlass.agents.assignment import assign
from windlass.agents.base import Adapter, AgentResult, Job, Limits
from windlass.agents.output_redaction import redacted_result
from windlass.agents.process.supervise import agent_env
from windlass.config.schema import Config
from windlass.dispatch.local_site import run_agent
from windlass.engine.retry import STOPS
from windlass.engine.services import known_secrets
from windlass.errors import UserError
from windlass.redaction import redactor
from windlass.runs.doctor import DoctorFinding, Level
from windlass.runs.project import Project
from windlass.runs.start import needed_roles

RUN = "try"
"""Used in place of a run id in process markers. It cannot clash: run ids are hexadecimal."""
LIMITS = Limits(wall_s=120.0, turns=5, usd=0.5)
PROMPT = "Answer with the one word: ready. Do not use any tool."


def try_agents(project: Project) -> Iterator[DoctorFinding]:
    config, roles = project.config(), project.roles()
    flow = project.parse(project.find_flow(config.flow), roles)
    needed = needed_roles(flow)
    pairs = flow.parts(config.settings)
    names = {assign(config, roles, role, profile).agent for role, profile in pairs if role in needed}
    for name in sorted(names - {"", "none"}):
        try:
            adapter = project.adapters(config, "")(name)
        except UserError as error:
            yield DoctorFinding(Level.FIX, "try", f"{name}: {error.message}", error.hint)
            continue
        result = _ask_for_word(project, config, adapter)
        cost = "cost unknown" if result.usage.cost_usd is None else f"${result.usage.cost_usd:.4f}"
        took = f"{result.seconds:.1f} s, {cost}"
        if result.error is None:
            yield DoctorFinding(Level.OK, "try", f"{name}: answered in {took}")
            continue
        text = f"{name}: {result.error} after {took}: {result.reason}"
        hint = STOPS.get(result.error, "try again later, or start it by hand to see more").partition(" then: ")[0]
        yield DoctorFinding(Level.FIX, "try", text, hint.rstrip(",;"))


def _ask_for_word(project: Project, config: Config, adapter: Adapter) -> AgentResult:
    environ = project.host.environ
    with tempfile.TemporaryDirectory(prefix="windlass-try-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        slot = folder / "slot"
        slot.mkdir()
        job = Job(
            run=RUN,
            key=f"{RUN}/{adapter.name}",
            attempt=1,
            role="doctor",
            purpose=RUN,
            system="",
            prompt=PROMPT,
            cwd=slot,
            folder=folder / "attempt",
            agent=adapter.name,
            tools=("read",),
            limits=LIMITS,
            options={"state": str(folder / "state")},
        )
        result = asyncio.run(
            run_agent(
                adapter,
                job,
                env=agent_env(environ, config.workspace.env),
                stop=asyncio.Event(),
                on_event=lambda event: None,
                on_started=lambda proc: None,
                clock=project.host.clock,
            )
        )
    return redacted_result(result, redactor(known_secrets(config, environ, project.host.place.root)))
