"""An order for one attempt, and the job it becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from msgspec import Struct, field

from windlass.agents.assignment import Assignment
from windlass.agents.base import Adapter, Job, Limits
from windlass.agents.contracts import registry as contracts
from windlass.agents.contracts.block_tags import block_tag
from windlass.agents.roles import Role, contract_for, going_on, instructed, render, told, variables, wished
from windlass.dispatch.prompt import PromptExtra, values, wishes_of
from windlass.dispatch.workspace import Workspace
from windlass.engine.recovery import InterruptedAttempt
from windlass.engine.services import RunServices
from windlass.kinds.base import Call
from windlass.model import ErrorClass, Json, Key, Task
from windlass.store.rows import Intent
from windlass.text import plain

WORK = "work"
"""The contract of whoever builds a task and has no other."""


def addressees(role: Role) -> tuple[str, ...]:
    """Whose messages a dispatch of this role is given: its own, and what is for whoever writes code."""
    return (role.name, "") if role.writes == "code" else (role.name,)


class DispatchPlace(Struct, frozen=True):
    """Where in the run a dispatch stands."""

    key: Key
    phase: str
    cycle: int
    task: Task | None
    desk: Workspace
    completed: tuple[Task, ...] = ()


class DispatchRequest(Struct, frozen=True, dict=True):
    """All that is settled before an attempt begins."""

    parts: RunServices
    place: DispatchPlace
    call: Call
    role: Role
    adapter: Adapter
    inputs: dict[str, Json]
    n: int
    reminder: str = ""
    """What was wrong with the answer before, told to the agent."""
    told: tuple[str, ...] = ()
    """What a person said to this role and nobody was given yet."""
    left: InterruptedAttempt | None = None
    """An interrupted attempt to go on with, in its slot and its session."""
    half_done: str = ""
    """What an earlier attempt left in the working directory, in words, for an agent that begins afresh in it."""
    answered: Callable[[], None] = lambda: None
    """Called when the agent's model says or does something: its service can be used."""
    instructions: Mapping[str, str] = field(default_factory=dict)
    """Files of the project that the agent is told to follow: path -> content."""

    @property
    def addressees(self) -> tuple[str, ...]:
        return addressees(self.role)

    @property
    def token(self) -> str:
        return f"{self.key}@{self.n}"

    @property
    def cap(self) -> float | None:
        """The most that a dispatch of this role may cost."""
        return self.assignment.usd

    @property
    def reports(self) -> bool:
        """Its agent tells what it uses while it works."""
        return self.adapter.flat_usd is not None or self.adapter.capabilities.cost in ("stream", "tokens")

    @property
    def key(self) -> Key:
        return self.place.key

    @property
    def task_id(self) -> str:
        return self.place.task.id if self.place.task else ""

    @cached_property
    def assignment(self) -> Assignment:
        return self.parts.assignment(self.call.role, self.call.profile)

    @cached_property
    def outs(self) -> Mapping[str, str]:
        """Declared files: name -> path below the working directory."""
        world = self.parts.world
        return {name: path for name in self.call.outs if (path := world.path(name))}

    @cached_property
    def folder(self) -> str:
        return f"attempts/{self.key}/@{self.n}"

    @cached_property
    def contract(self) -> str:
        """The reply's: the call's own, that of a data output, else the role's, unless that one is met by a file."""
        if self.call.contract:
            return self.call.contract
        artifacts = self.parts.world.flow.artifacts
        data = [artifacts[name].contract for name in self.call.outs if artifacts[name].kind == "json"]
        own = contract_for(self.role, self.call.purpose)
        if not own and not self.call.outs and self.must_change:
            return WORK
        return data[0] if data else "" if own and own == self.file_contract else own

    @property
    def must_change(self) -> bool:
        """A task is built: whoever builds it changes files, or declares that there is nothing to change."""
        return self.call.purpose == "implement" and self.role.writes == "code" and self.place.task is not None

    @cached_property
    def tag(self) -> str:
        """Of the reply's block; '' without a contract."""
        if not self.contract:
            return ""
        return block_tag(self.parts.tag_secret, self.key.text, contracts.CONTRACTS[self.contract].tags[0])

    @property
    def takes_untagged(self) -> bool:
        """An agent that can be asked again in its session is asked for its tag once; another one cannot be."""
        if self.contract == WORK:
            return False  # who builds something may well quote a block
        return not self.adapter.capabilities.resume or bool(self.reminder)

    @cached_property
    def file_contract(self) -> str:
        artifacts = self.parts.world.flow.artifacts
        return next((artifacts[n].contract for n in self.call.outs if artifacts[n].kind == "file"), "")

    @property
    def guarded(self) -> bool:
        """The TDD guard applies: the flow demands it, the role has it, the call did not switch it off."""
        return self.parts.world.flow.tdd == "required" and self.role.guard == "tdd" and self.call.guard

    @property
    def exempted(self) -> bool:
        """The approved plan wants no new test of this task."""
        return self.place.task is not None and self.place.task.tdd in ("exempt", "preserve")


async def make_job(order: DispatchRequest, cwd: Path) -> Job:
    call, role, task = order.call, order.role, order.place.task
    extra = await _extra(order, cwd)
    return Job(
        run=order.parts.world.facts.id,
        key=order.key.text,
        attempt=order.n,
        role=call.role,
        purpose=call.purpose,
        system=role.system,
        prompt=_prompt(order, values(order.parts.world, call, extra)),
        cwd=cwd,
        folder=order.parts.folder / order.folder,
        agent=order.adapter.name,
        model=order.assignment.model,
        effort=order.assignment.effort,
        tools=role.tools,
        writes=role.writes,
        contract=order.contract,
        tag=order.tag,
        schema=_schema(order.contract),
        outs=order.outs,
        limits=Limits(
            order.assignment.wall_s or 1800.0,
            order.assignment.turns,
            order.cap,
            order.parts.config.limits.output_mb << 20,
            order.parts.budget.left,
        ),
        task_id=order.task_id,
        task_title=task.title if task else "",
        phase=order.place.phase,
        cycle=order.place.cycle,
        session=order.left.session if order.left else "",
        options=_options(order),
    )


def _schema(contract: str) -> dict[str, Json] | None:
    """None where the answer is free to leave the block out: a CLI that enforces a schema would demand it."""
    return contracts.json_schema(contract) if contract and not contracts.CONTRACTS[contract].optional else None


def _options(order: DispatchRequest) -> dict[str, str]:
    """What an adapter may want to know besides: where the scripted agent counts, where an earlier session lies."""
    earlier = {"sessions": str(order.left.folder)} if order.left else {}
    return {"state": str(order.parts.folder / "scripted"), **earlier}


def _prompt(order: DispatchRequest, known: Mapping[str, str]) -> str:
    """A session that goes on has the task already: it is told what happened, nothing again."""
    if order.left:
        again = f"{order.reminder}\n" if order.reminder else going_on(plain(order.left.why), order.tag)
        return again + told(order.told)
    before = instructed(order.instructions) + wished(wishes_of(order.call))
    return before + render(order.role, order.call.purpose, known) + told(order.told)


async def _extra(order: DispatchRequest, cwd: Path) -> PromptExtra:
    desk, since = order.place.desk, order.call.since
    shown = variables(order.role, order.call.purpose)
    return PromptExtra(
        cwd=str(cwd),
        contract=order.contract or order.file_contract,
        tag=order.tag,
        outs=order.outs,
        changed=desk.changed,
        fix_diff=await desk.diff(since) if since and "fix_diff" in shown else "",
        fix_places=await desk.places(since) if since and "fix_places" in shown else "",
        diff=await desk.diff(desk.base) if "diff" in shown else "",
        reminder=order.reminder,
        recovery=_recovery(order),
        tdd="required" if order.guarded else "",
        task=order.place.task,
        completed=order.place.completed,
    )


def _recovery(order: DispatchRequest) -> str:
    rows = order.parts.journal.attempts.all(order.key)
    lost = sum(row.state == "interrupted" for row in rows)
    failed = [str(row.error) for row in rows if row.state == "failed" and row.error != ErrorClass.BAD_OUTPUT]
    told = [f"{lost} earlier attempt(s) ended when the machine or Windlass was stopped"] if lost else []
    told += (
        [f"{len(failed)} earlier attempt(s) ended before they were done ({', '.join(sorted(set(failed)))})"]
        if failed
        else []
    )
    state = order.half_done or "this directory is clean"
    return f"{' and '.join(told)}; {state}." if told else ""


def make_intent(order: DispatchRequest, job: Job, slot: int, reserved: float) -> Intent:
    machine = order.parts.machine
    return Intent(
        key=order.key.text,
        n=order.n,
        folder=order.folder,
        host=machine.host,
        boot=machine.boot,
        slot=str(slot),
        base=order.place.desk.head,
        role=order.call.role,
        agent=job.agent,
        model=job.model,
        credential=order.adapter.credential,
        reserved=reserved,
        wall_s=job.limits.wall_s,
    )
