"""A dispatch as plain data, and the job for one attempt at it."""

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
"""The contract of an agent that builds a task, if its role has no contract."""


def addressees(role: Role) -> tuple[str, ...]:
    """The addressees of the messages that a dispatch of this role receives: the role, and '' if it writes code."""
    return (role.name, "") if role.writes == "code" else (role.name,)


class DispatchRequest(Struct, frozen=True, dict=True):
    """Which role is asked for what, for which step of the run, and how this attempt begins. Plain data."""

    key: Key
    phase: str
    call: Call
    flow: Flow
    role: Role
    assignment: Assignment
    agent: str
    """The name of the agent that plays the role."""
    resumes: bool
    """The agent can continue its sessions."""
    outs: Mapping[str, str]
    """Declared files: name -> path below the working directory."""
    secret: str
    """The secret of the run, for the tag of the reply's block."""
    cycle: int = 0
    task: Task | None = None
    completed: tuple[Task, ...] = ()
    attempt: int = 1
    reminder: str = ""
    """What was wrong with the last answer."""
    messages: tuple[str, ...] = ()
    """Messages from a person to this role that are not delivered yet."""
    interrupted: InterruptedAttempt | None = None
    """An attempt to continue, in its checkout and its session."""
    instructions: Mapping[str, str] = field(default_factory=dict)
    """Instruction files of the project: path -> content."""

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
        """The contract of the reply: from the call, from a data output, or from the role. '' if a file meets it."""
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
        """The tag of the reply's block; '' without a contract."""
        if not self.contract:
            return ""
        return block_tag(self.secret, self.key.text, contracts.CONTRACTS[self.contract].tags[0])

    @property
    def accepts_untagged(self) -> bool:
        """Whether a block without the tag counts. An agent that can resume its session is first reminded of the tag."""
        if self.contract == WORK:
            return False  # an agent that builds a task may quote a block
        return not self.resumes or bool(self.reminder)

    @property
    def must_change(self) -> bool:
        """The agent builds a task. It must change files, or declare that there is nothing to change."""
        return self.call.purpose == "implement" and self.role.writes == "code" and self.task is not None

    @property
    def has_tdd_guard(self) -> bool:
        """The TDD guard applies: the flow and the role have it, and the call does not switch it off."""
        return self.flow.tdd == "required" and self.role.guard == "tdd" and self.call.guard

    @property
    def is_tdd_exempt(self) -> bool:
        """The approved plan requires no new test for this task."""
        return self.task is not None and self.task.tdd in ("exempt", "preserve")


def inputs_of(call: Call) -> dict[str, Json]:
    """The inputs that a replay compares with the recorded inputs of the step."""
    return {"role": call.role, "purpose": call.purpose, **call.inputs}


async def make_job(
    request: DispatchRequest, values: RunValues, workspace: Workspace, limits: Limits, recovery: str
) -> Job:
    """`recovery`: a text about earlier attempts, for an agent that starts a new session."""
    call, role, task, contract = request.call, request.role, request.task, request.contract
    # The artifacts in force, by path. Inside tasks the tree already has them.
    used = {*call.context, *call.outs}
    files = values.needed_files(used) if task is None else {}
    unused = {values.path(name) for name, artifact in values.flow.artifacts.items() if not artifact.commit}
    # No schema for an optional block, because a CLI that enforces a schema would always demand it.
    is_required = bool(contract) and not contracts.CONTRACTS[contract].optional
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
        files=files,
        absent=tuple(sorted(unused - {"", *files})) if not request.interrupted else (),
        earlier=request.interrupted.attempt if request.interrupted else "",
        model=request.assignment.model,
        effort=request.assignment.effort,
        tools=role.tools,
        writes=role.writes,
        contract=contract,
        tag=request.tag,
        schema=contracts.json_schema(contract) if is_required else None,
        outs=request.outs,
        limits=limits,
        task_id=request.task_id,
        task_title=task.title if task else "",
        phase=request.phase,
        cycle=request.cycle,
        session=request.interrupted.session if request.interrupted else "",
    )


async def _prompt(request: DispatchRequest, values: RunValues, workspace: Workspace, recovery: str) -> str:
    """A session that continues already has the task, so its prompt only says what happened."""
    if request.interrupted:
        why = plain(request.interrupted.why)
        again = f"{request.reminder}\n" if request.reminder else continuation_prompt(why, request.tag)
        return again + messages_text(request.messages)
    since, shown = request.call.since, variables(request.role, request.call.purpose)
    known = prompt_values(
        values,
        request.call,
        phase=request.phase,
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
        tdd="required" if request.has_tdd_guard else "",
    )
    before = instructions_text(request.instructions) + wishes_text(wishes_of(request.call))
    return before + render(request.role, request.call.purpose, known) + messages_text(request.messages)


def recovery_text(attempts: Sequence[AttemptRow], half_done: str) -> str:
    """How earlier attempts ended; '' when the agent need not know."""
    lost = sum(row.state == "interrupted" for row in attempts)
    failed = [str(row.error) for row in attempts if row.state == "failed" and row.error != ErrorClass.BAD_OUTPUT]
    ended = [f"{lost} earlier attempt(s) ended when the machine or Windlass was stopped"] if lost else []
    if failed:
        ended += [f"{len(failed)} earlier attempt(s) ended before they were done ({', '.join(sorted(set(failed)))})"]
    state = half_done or "this directory is clean"
    return f"{' and '.join(ended)}; {state}." if ended else ""
