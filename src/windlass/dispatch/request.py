"""A dispatch as plain data, and the job that an attempt at it becomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from msgspec import Struct, field

from windlass.agents.assignment import Assignment
from windlass.agents.base import Job, Limits
from windlass.agents.contracts import registry as contracts
from windlass.agents.contracts.block_tags import block_tag
from windlass.agents.roles import (
    Role,
    continuation_prompt,
    contract_for,
    instructions_text,
    messages_text,
    render,
    variables,
    wishes_text,
)
from windlass.dispatch.prompt import prompt_values, wishes_of
from windlass.dispatch.site import InterruptedAttempt
from windlass.dispatch.workspace import Workspace
from windlass.engine.values import RunValues
from windlass.flow.schema import Flow
from windlass.kinds.base import Call
from windlass.model import ErrorClass, Json, Key, Task
from windlass.store.rows import AttemptRow
from windlass.text import plain

WORK = "work"
"""The contract of whoever builds a task and has no other."""


def addressees(role: Role) -> tuple[str, ...]:
    """Whose messages a dispatch of this role is given: its own, and what is for whoever writes code."""
    return (role.name, "") if role.writes == "code" else (role.name,)


class DispatchRequest(Struct, frozen=True, dict=True):
    """Who is asked for what, at which place of the run, and how this attempt at it begins. Plain data."""

    key: Key
    phase: str
    call: Call
    flow: Flow
    role: Role
    assignment: Assignment
    agent: str
    """The name of the agent that plays the role."""
    resumes: bool
    """The agent can continue a session of its own."""
    outs: Mapping[str, str]
    """Declared files: name -> path below the working directory."""
    secret: str
    """Of the run, for the tag of the reply's block."""
    cycle: int = 0
    task: Task | None = None
    completed: tuple[Task, ...] = ()
    attempt: int = 1
    reminder: str = ""
    """What was wrong with the answer before."""
    messages: tuple[str, ...] = ()
    """What a person said to this role and no dispatch was given yet."""
    interrupted: InterruptedAttempt | None = None
    """An attempt to continue, in its checkout and its session."""
    instructions: Mapping[str, str] = field(default_factory=dict)
    """Files of the project that the agent is told to follow: path -> content."""

    @property
    def token(self) -> str:
        return f"{self.key}@{self.attempt}"

    @property
    def inputs(self) -> dict[str, Json]:
        return inputs_of(self.call)

    @property
    def addressees(self) -> tuple[str, ...]:
        return addressees(self.role)

    @property
    def task_id(self) -> str:
        return self.task.id if self.task else ""

    @cached_property
    def contract(self) -> str:
        """The reply's: the call's own, that of a data output, else the role's, unless that one is met by a file."""
        if self.call.contract:
            return self.call.contract
        artifacts = self.flow.artifacts
        data = [artifacts[name].contract for name in self.call.outs if artifacts[name].kind == "json"]
        own = contract_for(self.role, self.call.purpose)
        if not own and not self.call.outs and self.must_change:
            return WORK
        return data[0] if data else "" if own and own == self.file_contract else own

    @cached_property
    def file_contract(self) -> str:
        artifacts = self.flow.artifacts
        return next((artifacts[n].contract for n in self.call.outs if artifacts[n].kind == "file"), "")

    @cached_property
    def tag(self) -> str:
        """Of the reply's block; '' without a contract."""
        if not self.contract:
            return ""
        return block_tag(self.secret, self.key.text, contracts.CONTRACTS[self.contract].tags[0])

    @property
    def takes_untagged(self) -> bool:
        """An agent that can be asked again in its session is asked for its tag once; another one cannot be."""
        if self.contract == WORK:
            return False  # who builds something may well quote a block
        return not self.resumes or bool(self.reminder)

    @property
    def must_change(self) -> bool:
        """A task is built: whoever builds it changes files, or declares that there is nothing to change."""
        return self.call.purpose == "implement" and self.role.writes == "code" and self.task is not None

    @property
    def guarded(self) -> bool:
        """The TDD guard applies: the flow demands it, the role has it, the call did not switch it off."""
        return self.flow.tdd == "required" and self.role.guard == "tdd" and self.call.guard

    @property
    def exempted(self) -> bool:
        """The approved plan wants no new test of this task."""
        return self.task is not None and self.task.tdd in ("exempt", "preserve")


def inputs_of(call: Call) -> dict[str, Json]:
    """What is compared with the recorded inputs of the step."""
    return {"role": call.role, "purpose": call.purpose, **call.inputs}


async def make_job(
    request: DispatchRequest, values: RunValues, workspace: Workspace, limits: Limits, recovery: str
) -> Job:
    """`recovery`: what became of earlier attempts, for an agent that begins anew."""
    call, role, task = request.call, request.role, request.task
    return Job(
        run=values.facts.id,
        key=request.key.text,
        attempt=request.attempt,
        role=call.role,
        purpose=call.purpose,
        system=role.system,
        prompt=await _prompt(request, values, workspace, recovery),
        agent=request.agent,
        base=workspace.head,
        files=_files(values) if task is None else {},
        earlier=request.interrupted.attempt if request.interrupted else "",
        model=request.assignment.model,
        effort=request.assignment.effort,
        tools=role.tools,
        writes=role.writes,
        contract=request.contract,
        tag=request.tag,
        schema=_schema(request.contract),
        outs=request.outs,
        limits=limits,
        task_id=request.task_id,
        task_title=task.title if task else "",
        phase=request.phase,
        cycle=request.cycle,
        session=request.interrupted.session if request.interrupted else "",
    )


def _files(values: RunValues) -> dict[str, str]:
    """Artifacts in force, where agents expect them; inside tasks they are in the tree already."""
    return {path: held.content for name, held in values.artifacts.held.items() if (path := values.path(name))}


def _schema(contract: str) -> dict[str, Json] | None:
    """None where the answer is free to leave the block out: a CLI that enforces a schema would demand it."""
    return contracts.json_schema(contract) if contract and not contracts.CONTRACTS[contract].optional else None


async def _prompt(request: DispatchRequest, values: RunValues, workspace: Workspace, recovery: str) -> str:
    """A session that goes on has the task already: it is told what happened, nothing again."""
    if request.interrupted:
        why = plain(request.interrupted.why)
        again = f"{request.reminder}\n" if request.reminder else continuation_prompt(why, request.tag)
        return again + messages_text(request.messages)
    since, shown = request.call.since, variables(request.role, request.call.purpose)
    known = prompt_values(
        values,
        request.call,
        task=request.task,
        completed=request.completed,
        contract=request.contract or request.file_contract,
        tag=request.tag,
        outs=request.outs,
        cwd=workspace.checkout.directory,
        changed=workspace.changed,
        fix_diff=await workspace.diff(since) if since and "fix_diff" in shown else "",
        fix_places=await workspace.places(since) if since and "fix_places" in shown else "",
        diff=await workspace.diff(workspace.base) if "diff" in shown else "",
        reminder=request.reminder,
        recovery=recovery,
        tdd="required" if request.guarded else "",
    )
    before = instructions_text(request.instructions) + wishes_text(wishes_of(request.call))
    return before + render(request.role, request.call.purpose, known) + messages_text(request.messages)


def recovery_text(attempts: Sequence[AttemptRow], half_done: str) -> str:
    """What became of earlier attempts; '' when there was none that the agent must know of."""
    lost = sum(row.state == "interrupted" for row in attempts)
    failed = [str(row.error) for row in attempts if row.state == "failed" and row.error != ErrorClass.BAD_OUTPUT]
    ended = [f"{lost} earlier attempt(s) ended when the machine or Windlass was stopped"] if lost else []
    if failed:
        ended += [f"{len(failed)} earlier attempt(s) ended before they were done ({', '.join(sorted(set(failed)))})"]
    state = half_done or "this directory is clean"
    return f"{' and '.join(ended)}; {state}." if ended else ""
