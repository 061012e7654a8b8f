"""Starts a run. Every problem with the request is reported before anything is recorded."""

from __future__ import annotations

import difflib
import itertools
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from msgspec import Struct, field

from windlass.agents import prices as pricing
from windlass.agents import registry
from windlass.agents.assignment import assign
from windlass.agents.base import Adapter
from windlass.agents.contracts.task_list import parse_plan
from windlass.agents.criteria import read_criteria
from windlass.agents.roles import Role
from windlass.answers import AnswerPolicy
from windlass.config.schema import Config
from windlass.cost import dollars
from windlass.errors import UserError, near
from windlass.events import RunStarted, StepEntered
from windlass.flow.load import FlowSource, list_flows
from windlass.flow.route_graph import back_options
from windlass.flow.schema import Flow
from windlass.git import run as git
from windlass.git import user_repo
from windlass.git.disk import MIN_FREE_BYTES, space_problem
from windlass.git.engine_repo import EngineRepo
from windlass.git.publish import enter_in_place
from windlass.git.user_repo import UserRepo
from windlass.kinds.visit_cost import holds
from windlass.model import Json, RunState, Usage, content_id, slugify
from windlass.paths import state_dir
from windlass.runs.project import Project
from windlass.runs.role_overrides import AS_CONFIGURED, RoleOverrides, check_capable, check_roles
from windlass.store.rows import RunRow


class Start(Struct, frozen=True):
    """The options of `windlass run`."""

    request: str
    flow: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    agent: str = ""
    roles: Mapping[str, str] = field(default_factory=dict)
    """Role -> AGENT[:MODEL[:EFFORT]]. Overrides `agent` and the config."""
    script: str = ""
    budget: float | None = None
    slots: int | None = None
    mode: str = ""
    in_place: bool = False
    keep: bool = False
    """Keep the slots when the run ends."""
    detached: bool = False
    plan: str = ""
    """The text of the user's own plan."""
    policy: AnswerPolicy = AnswerPolicy()


def start_run(project: Project, start: Start, run: str) -> str:
    """Record a new run and return its id. Nothing is dispatched yet."""
    git.require_git()
    repo = user_repo.discover(project.host.cwd)
    # Shallow and partial clones are supported: commits before the base are not needed.
    odd = [text for text in user_repo.oddities(repo) if not text.startswith(("shallow clone", "partial clone"))]
    if odd:
        raise UserError(f"this repository is not supported: {'; '.join(odd)}", hint="windlass doctor shows the details")
    for folder in (repo.common_dir, state_dir(project.host.environ)):
        problem = space_problem(folder, MIN_FREE_BYTES)
        if problem:
            raise UserError(problem, hint="free some space, or run `windlass gc`")
    config = project.config(start.budget, start.roles)
    roles = project.roles()
    for name in config.roles:
        # An unknown name that is not similar to a known one may be another project's role.
        meant = difflib.get_close_matches(name, roles, n=1, cutoff=0.8)
        if name not in roles and meant:
            raise UserError(f"[roles.{name}] in config.toml: there is no such role", hint=f"did you mean '{meant[0]}'?")
    source = project.find_flow(start.flow or config.flow)
    flow = project.parse(source, roles)
    settings = check_settings(project, flow, config, start.settings, in_place=start.in_place)
    _check_answers(flow, start.policy)
    _check_criteria(project, flow)
    overrides = RoleOverrides(start.agent, start.roles)
    check_agents(project.adapters(config, start.script), flow, roles, config, overrides, settings)
    return _create(project, run, start, repo, config, source, flow, settings)


def _create(
    project: Project,
    run: str,
    start: Start,
    repo: UserRepo,
    config: Config,
    source: FlowSource,
    flow: Flow,
    settings: dict[str, str],
) -> str:
    user_repo.fetch_missing(repo, repo.head)
    now = project.host.clock()
    date = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")
    slug = _free_slug(flow, repo, slugify(start.request), date)
    branch = flow.branch.format_map({"slug": slug, "id8": run[:8], "date": date, "n": "1"})
    store = project.host.open_store(create=True)
    engine = EngineRepo.open(repo, state_dir(project.host.environ))
    engine.user_refs.pin_base(run, repo.head)
    engine.refs.set_tip(run, repo.head, "")
    if start.in_place:
        enter_in_place(repo, branch, repo.head)
    given = _given_artifacts(flow, start)
    row = RunRow(
        *(run, start.request, flow.flow, source.text, slug, date, repo.head, branch, settings),
        options={**_options(start, given), "from": repo.branch},
        state=RunState.PAUSED,
        started_at=now,
        updated_at=now,
        budget_usd=config.budget.stop_usd,
        warn_usd=config.budget.warn_usd,
    )
    dirty = user_repo.is_dirty(repo)
    event = RunStarted(start.request, flow.flow, repo.head, branch, row.budget_usd, row.warn_usd, dirty)
    engine.barrier.settle()
    with store.transaction():
        claim = store.runs.add(row)
        store.tips.add(claim, repo.head, "", "")
        store.events.add(claim, event)
        if flow.source.labels:
            store.events.add(claim, StepEntered("source", flow.source.labels[0]))
        for content in given.values():
            store.blobs.put(claim, content_id(content), content)
    store.close()
    return run


def check_agents(
    make: Callable[[str], Adapter],
    flow: Flow,
    roles: Mapping[str, Role],
    config: Config,
    overrides: RoleOverrides,
    settings: Mapping[str, str],
) -> None:
    """S0-19: refuse a role without an agent before anything is dispatched."""
    check_roles(overrides.roles, flow, roles)
    needed = needed_roles(flow)
    for role, profile in sorted(flow.parts(settings)):
        found = assign(config, roles, role, profile, everyone=overrides.agent, named=overrides.roles)
        if not found.has_agent and role not in needed:
            continue
        if not found.has_agent:
            raise UserError(
                f"no agent is available for role '{role}'",
                hint=f"--agent NAME, or agent = … under [roles.{role}] in .windlass/config.toml; see windlass agents",
            )
        check_capable(make(found.agent), role, found.effort)


def unpriced_models(
    flow: Flow, roles: Mapping[str, Role], config: Config, overrides: RoleOverrides = AS_CONFIGURED
) -> list[str]:
    """Warnings about the models of this flow that have no known price."""
    asked: dict[tuple[str, str], None] = {}
    for role, profile in sorted(flow.parts(config.settings)):
        found = assign(config, roles, role, profile, everyone=overrides.agent, named=overrides.roles)
        options = config.agents.options(found.agent)
        model = found.model or str(options.get("model", ""))
        if model and found.agent in registry.CLIS and registry.FLAT not in options:
            asked[found.agent, model] = None
    # Loading the price list takes half a second.
    unknown = [(name, model) for name, model in asked if pricing.cost(model, Usage(1, 1)) is None] if asked else []
    budget = config.budget
    limits = ((budget.dispatch_tokens, "a dispatch"), (budget.run_tokens, "a run"))
    most = [f"{count:,} tokens {of}" for count, of in limits if count]
    limit = f"it may use {' and '.join(most)}" if most else "its tokens have no limit"
    assumed = f"if the agent reports no cost, {dollars(budget.unknown_usd)} are assumed for each dispatch"
    return [f"{name}: no price is known for model '{model}'; {assumed}, and {limit}" for name, model in unknown]


def _free_slug(flow: Flow, repo: UserRepo, slug: str, date: str) -> str:
    """Choose a name for which no plan exists: an existing plan is never overwritten or mistaken for an agent's."""
    templates = [a.path for a in flow.artifacts.values() if "{slug}" in a.path or "{session}" in a.path]
    for n in itertools.count(1):
        own = slug if n == 1 else f"{slug}-{n}"
        names = {"slug": own, "date": date, "session": f"{date}-{own}", "id8": ""}
        if not any(user_repo.is_tracked(repo, template.format_map(names)) for template in templates):
            return own
    raise AssertionError("counting never ends")


def check_settings(
    project: Project, flow: Flow, config: Config, given: Mapping[str, str], *, in_place: bool = False
) -> dict[str, str]:
    """The settings of a run. Refuses values with which it cannot start, and names that look misspelled."""
    settings = settings_for(flow, config, given)
    for name in unknown_settings(project, flow, config):
        meant = difflib.get_close_matches(name, flow.settings, n=1, cutoff=0.8)
        if meant:
            raise UserError(f"[settings] in config.toml: no flow has '{name}'", hint=f"did you mean '{meant[0]}'?")
    _check_roles_of_settings(flow, settings, project.roles())
    _check_stages(flow, settings, in_place=in_place)
    return settings


def unknown_settings(project: Project, flow: Flow, config: Config) -> list[str]:
    """The settings in the config that neither this flow nor another one has."""
    unknown = [name for name in config.settings if name not in flow.settings]
    if not unknown:
        return []
    known: set[str] = set()
    for source in list_flows([folder / "flows" for folder in project.folders()]):
        # An invalid flow has no settings.
        with suppress(UserError):
            known |= set(project.parse(source, project.roles()).settings)
    return [name for name in unknown if name not in known]


def settings_for(flow: Flow, config: Config, given: Mapping[str, str]) -> dict[str, str]:
    """Merge `--set` over the config. Each setting must exist in the flow and fit its type."""
    configured = {name: str(value) for name, value in config.settings.items() if name in flow.settings}
    for name in given:
        if name not in flow.settings:
            raise UserError(f"flow '{flow.flow}' has no setting '{name}'", hint=near(name, flow.settings))
    merged = {**configured, **given}
    for name, value in merged.items():
        setting = flow.settings[name]
        if setting.options and value not in setting.options:
            raise UserError(f"'{value}' is not a value of '{name}'", hint=near(value, setting.options))
        if setting.type == "int" and not (value.isdecimal() and int(value) >= setting.min):
            least = f"'{name}' must be a whole number from {setting.min}, not '{value}'"
            raise UserError(least, hint=f"--set {name}={setting.default}")
        if setting.type == "bool" and value not in ("true", "false"):
            raise UserError(f"'{name}' must be true or false, not '{value}'", hint=f"--set {name}=true")
    return merged


def _check_roles_of_settings(flow: Flow, settings: Mapping[str, str], roles: Mapping[str, Role]) -> None:
    for name, setting in flow.settings.items():
        value = settings.get(name, setting.default)
        if setting.type == "role" and value not in roles:
            raise UserError(f"'{name}' is '{value}', and there is no such role", hint=near(value, roles))


def _check_stages(flow: Flow, settings: Mapping[str, str], *, in_place: bool) -> None:
    """Refuse settings that leave no stage, or a stage that lacks what a disabled one makes."""
    known = {name: settings.get(name, setting.default) for name, setting in flow.settings.items()}
    code = flow.restarts.code if flow.restarts else ""
    if in_place and known.get(code.removeprefix("$"), code) == "reset":
        raise UserError(
            "--in-place cannot go with a reset of the code at a restart: your checkout never goes back",
            hint="start without --in-place, or keep the code of restarted stages",
        )
    on = [stage for stage in flow.stages if holds(stage.when, known.get)]
    if flow.stages and not on:
        switch = next((name for stage in flow.stages for name in stage.when), "")
        raise UserError(f"every stage of flow '{flow.flow}' is disabled", hint=f"--set {switch}=true")
    made = {name for stage in on for phase in stage.phases for name in phase.artifacts_out()}
    for stage in on:
        for phase in stage.phases:
            source = phase.task_list()
            if source and source not in made and not flow.artifacts[source].given:
                makers = [one.id for one in flow.stages for p in one.phases if source in p.artifacts_out()]
                raise UserError(
                    f"stage {stage.id} carries out '{source}', which the disabled stage {makers[0]} makes",
                    hint=f"enable {makers[0]}, or carry out a plan of your own: windlass task --plan FILE",
                )


def _check_criteria(project: Project, flow: Flow) -> None:
    calls = [call for phase in flow.all_phases() for _, call in phase.agent_calls()]
    calls += [call for p in flow.all_phases() for step in p.task_steps() for _, call in step.agent_calls()]
    for name in {call.criteria for call in calls if call.criteria}:
        read_criteria(name, project.prompts())


def _check_answers(flow: Flow, policy: AnswerPolicy) -> None:
    asked = [*flow.questions, *(question.id for question in flow.questions.values() if question.id)]
    of_phases = {name for phase in flow.all_phases() for name in phase.answer_names()}
    known = {*asked, *of_phases, *flow.settings, "baseline", "adopt", *(("restore",) if flow.stages else ())}
    known |= {"over-budget"} if flow.over_budget == "ask" else set()
    for key, value in policy.answers.items():
        name = key.removesuffix("*")
        answered = name.rpartition("!")[2]
        if answered not in known:
            raise UserError(f"flow '{flow.flow}' asks no question '{name}'", hint=near(name, known))
        for id, question in flow.questions.items():
            if answered in (id, question.id) and value in back_options(flow, id):
                raise UserError(
                    f"'{answered}={value}' leads back; an answer given in advance must not make a loop",
                    hint="start without it and answer by hand: windlass answer",
                )
    for name in policy.yes_to - known:
        raise UserError(f"flow '{flow.flow}' asks no question '{name}'", hint=near(name, known))


def needed_roles(flow: Flow) -> set[str]:
    """Roles that a run requires. Optional reviewers may be missing."""
    phases = [*flow.all_phases(), *(step for phase in flow.all_phases() for step in phase.task_steps())]
    reviewers = [reviewer for phase in phases for reviewer in getattr(phase, "reviewers", ())]
    required = {reviewer.role for reviewer in reviewers if not reviewer.optional}
    optional = {reviewer.role for reviewer in reviewers if reviewer.optional}
    everyone = {role for phase in phases for role in phase.roles()}
    return (everyone - optional) | required


def _given_artifacts(flow: Flow, start: Start) -> dict[str, str]:
    """Artifacts that exist at the start: the user's plan, or a plan made from the request."""
    names = [name for name, artifact in flow.artifacts.items() if artifact.given]
    if start.plan and not names:
        raise UserError(f"flow '{flow.flow}' writes its own plan", hint="use windlass task --plan FILE for yours")
    if not names:
        return {}
    title = " ".join(start.request.split())[:120] or "Task"
    block = _block([{"title": title, "description": start.request}])
    content = start.plan or f"# {title}\n\n{block}"
    problem = parse_plan(content).problem
    if problem:
        raise _bad_plan(problem)
    return dict.fromkeys(names, content)


def task_of_plan(plan: str, name: str) -> tuple[str, str]:
    """Returns the title of one task, and the plan with only that task in its list. The other text stays.

    `name`: the task's title, id or number. The tasks that it depends on are not carried out; their code must exist.
    """
    parsed = parse_plan(plan)
    if parsed.problem:
        raise _bad_plan(parsed.problem)
    wanted = " ".join(name.split()).casefold()
    numbered = enumerate(parsed.tasks, 1)
    found = [task for n, task in numbered if wanted in (task.title.casefold(), task.id.casefold(), str(n), f"t{n}")]
    if len(found) != 1:
        listed = ", ".join(f"{n}. {task.title}" for n, task in enumerate(parsed.tasks, 1))
        what = f"{len(found)} tasks of the plan have the name '{name}'" if found else f"the plan has no task '{name}'"
        raise UserError(what, hint=f"its tasks: {listed}"[:1000])
    [task] = found
    # The last block of a plan counts.
    return task.title, f"{plan.rstrip()}\n\n{_block([{**task.to_json(), 'depends_on': []}])}"


def _block(tasks: list[dict[str, Json]]) -> str:
    text = json.dumps(tasks, ensure_ascii=False)
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}superteam-tasks\n{text}\n{fence}\n"


def _bad_plan(problem: str) -> UserError:
    return UserError(f"the plan cannot be carried out: {problem}", hint="docs/guides/plans.md describes the form")


def _options(start: Start, given: Mapping[str, str]) -> dict[str, Json]:
    return {
        **RoleOverrides(start.agent, start.roles).to_json(),
        "script": start.script,
        "slots": start.slots,
        "keep": start.keep,
        "mode": start.mode,
        "in_place": start.in_place,
        "detached": start.detached,
        "policy": start.policy.to_json(),
        "given": {name: content_id(content) for name, content in given.items()},
    }
