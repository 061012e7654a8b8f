"""Checks whether a run can start here, and lists what Windlass cannot detect."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path

from msgspec import Struct

from windlass.agents import installed, registry
from windlass.agents.assignment import assign
from windlass.agents.contracts import registry as contracts
from windlass.agents.process.supervise import marked_processes
from windlass.engine.journal import Journal
from windlass.engine.repair import record_of, repair_repositories
from windlass.errors import UserError, WindlassError
from windlass.flow.load import parse_recorded_flow
from windlass.git import run as git
from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.repair import find_damage, replace_engine
from windlass.git.slots import Slots, SlotUse
from windlass.git.state_folder import repo_id
from windlass.locks import driver_lock
from windlass.paths import state_dir
from windlass.runs.agents_info import NOT_FOUND, inspect_agent
from windlass.runs.check import RUN as CHECK
from windlass.runs.project import Project
from windlass.runs.service import Service
from windlass.runs.settle import settle_checkout
from windlass.runs.start import check_settings, needed_roles, unknown_settings, unpriced_models
from windlass.store.epoch import EpochClaim
from windlass.text import plural

LITTLE_BYTES, ENOUGH_BYTES = 200 * 2**20, 2 * 2**30
UNSEEN = (
    "Windlass does not see what an agent writes outside its slot and your repository (home folder, /tmp, ...)",
    "Windlass does not see what an agent does over the network; an agent has the rights of your user",
    "Windlass reports a file that changes in your checkout while an agent works, even if you changed it yourself",
    "Windlass does not look at files that git ignores",
    "if an agent reports no cost, Windlass assumes budget.unknown_usd and shows it as assumed",
)
UNSEEN_ELSEWHERE = "on this system Windlass may miss a process that detaches itself"


class Level(StrEnum):
    OK = "ok"
    NOTE = "note"
    #: it works, but not as well as it could
    WARN = "warn"
    #: no run can start until it is fixed
    FIX = "fix"
    #: what Windlass cannot detect
    BLIND = "blind"


class DoctorFinding(Struct, frozen=True):
    level: Level
    topic: str
    text: str
    hint: str = ""


Probe = Callable[[Project], Iterator[DoctorFinding]]


def examine(project: Project) -> list[DoctorFinding]:
    found = [*on_machine()]
    for topic, probe in PROBES.items():
        try:
            found += probe(project)
        except WindlassError as error:
            found.append(DoctorFinding(Level.FIX, topic, error.message, error.hint))
    # Several probes may find the same problem.
    first: dict[str, DoctorFinding] = {}
    for finding in found:
        first.setdefault(finding.text, finding)
    return list(first.values())


def on_machine() -> Iterator[DoctorFinding]:
    """Checks that need no repository."""
    try:
        git.require_git()
        yield DoctorFinding(Level.OK, "git", f"version {'.'.join(map(str, git.git_version()))}")
    except WindlassError as error:
        yield DoctorFinding(Level.FIX, "git", error.message, error.hint)


def blind() -> Iterator[DoctorFinding]:
    yield from (DoctorFinding(Level.BLIND, "limits", text) for text in UNSEEN)
    if sys.platform != "linux":
        yield DoctorFinding(Level.BLIND, "limits", UNSEEN_ELSEWHERE)


# -- probes


def _repository(project: Project) -> Iterator[DoctorFinding]:
    repo = user_repo.discover(project.host.cwd)
    where = f"on branch '{repo.branch}'" if repo.branch else "with a detached HEAD"
    yield DoctorFinding(Level.OK, "repository", f"{repo.root} {where} at {repo.head[:12]}")
    for odd in user_repo.oddities(repo):
        yield DoctorFinding(Level.FIX, "repository", f"not supported: {odd}", "use a full clone without it")
    if not repo.branch:
        yield DoctorFinding(Level.NOTE, "repository", "windlass land needs a branch to land on", "git switch main")
    if user_repo.is_dirty(repo):
        yield DoctorFinding(
            Level.NOTE, "repository", "there are uncommitted changes; a run starts from HEAD and does not include them"
        )


def _checkout(project: Project) -> Iterator[DoctorFinding]:
    """Complete or undo a killed landing, which left the checkout half changed."""
    settled = settle_checkout(Service(project.host))
    if settled:
        level = Level.WARN if settled.untouched or settled.how == "left" else Level.NOTE
        yield DoctorFinding(level, "checkout", settled.text)


def _config(project: Project) -> Iterator[DoctorFinding]:
    config = project.config()
    yield DoctorFinding(
        Level.OK,
        "config",
        f"readable; a run warns at ${config.budget.warn_usd:g} and stops at ${config.budget.stop_usd:g}",
    )


def _settings(project: Project) -> Iterator[DoctorFinding]:
    config = project.config()
    flow = project.parse(project.find_flow(config.flow), project.roles())
    check_settings(project, flow, config, {})
    for name in unknown_settings(project, flow, config):
        hint = f"windlass flow show {flow.flow}, for example"
        yield DoctorFinding(Level.WARN, "settings", f"no flow has the setting '{name}' of the config", hint)


def _checks(project: Project) -> Iterator[DoctorFinding]:
    commands = [" ".join(argv) for argv in project.config().checks.commands]
    if commands:
        yield DoctorFinding(Level.OK, "checks", f"{'; '.join(commands)} (windlass check runs them)")
    else:
        hint = "windlass init proposes some"
        yield DoctorFinding(Level.WARN, "checks", "none are configured, so landings are 'unchecked'", hint)


def _agents(project: Project) -> Iterator[DoctorFinding]:
    config, roles = project.config(), project.roles()
    flow = project.parse(project.find_flow(config.flow), roles)
    needed = needed_roles(flow)
    pairs = sorted(flow.parts(config.settings))
    players = {role: assign(config, roles, role, profile).agent for role, profile in pairs if role in needed}
    without = [role for role, player in players.items() if player in ("", "none")]
    if without:
        hint = 'choose one from windlass agents: default = "NAME" under [agents] in .windlass/config.toml'
        yield DoctorFinding(Level.FIX, "agents", f"flow '{config.flow}' has no agent for {', '.join(without)}", hint)
        if not installed.first(project.host.environ):
            for name in registry.CLIS:
                yield DoctorFinding(Level.NOTE, "agents", f"{name} is not on the PATH", installed.install_command(name))
    for name in sorted(set(players.values()) - {"", "none"}):
        one = inspect_agent(project, config, name)
        text = one.problem or f"{one.path} {one.version}".strip()
        install = "" if one.path else installed.install_command(name)
        hint = "" if one.usable else install or "windlass agents"
        yield DoctorFinding(Level.OK if one.usable else Level.FIX, "agents", f"{name}: {text}", hint)
        if one.warning:
            yield DoctorFinding(Level.WARN, "agents", one.warning)
        if one.usable and one.login.startswith(NOT_FOUND):
            hint = f"log in with '{name}' itself; windlass doctor --try tests it"
            yield DoctorFinding(Level.NOTE, "agents", f"{name}: {one.login}", hint)
    for text in unpriced_models(project.parse(project.find_flow(config.flow), roles), roles, config):
        hint = "for a model on your own machine, set cost_usd = 0 in its [agents] table; see docs/guides/agents.md"
        yield DoctorFinding(Level.WARN, "agents", text, hint)


def _space(project: Project) -> Iterator[DoctorFinding]:
    folder = _existing(state_dir(project.host.environ) / "windlass")
    left = shutil.disk_usage(folder).free
    text = f"{left / 2**30:.1f} GiB left on the disk of '{folder}'"
    level = Level.FIX if left < LITTLE_BYTES else Level.WARN if left < ENOUGH_BYTES else Level.OK
    yield DoctorFinding(level, "disk", text, "" if level is Level.OK else "free some space, or: windlass gc")


def _folders(project: Project) -> Iterator[DoctorFinding]:
    for folder in (project.host.place.home, state_dir(project.host.environ) / "windlass"):
        writable = os.access(_existing(folder), os.W_OK | os.X_OK)
        hint = "" if writable else "check its permissions and its owner"
        text = f"'{folder}' is {'' if writable else 'not '}writable"
        yield DoctorFinding(Level.OK if writable else Level.FIX, "folders", text, hint)


def _database(project: Project) -> Iterator[DoctorFinding]:
    if not project.host.has_store:
        yield DoctorFinding(Level.OK, "database", "there is none yet; the first run creates it")
        return
    service = Service(project.host)
    count = len(service.runs())
    yield DoctorFinding(Level.OK, "database", f"readable, schema {service.store.schema}, {plural(count, 'run')}")


def _engine(project: Project) -> Iterator[DoctorFinding]:
    """Check the engine's repository: it exists, it is sealed, and it has every commit that the journal names."""
    if not project.host.has_store:
        return
    service = Service(project.host)
    engine = EngineRepo.at(user_repo.discover(project.host.cwd), state_dir(project.host.environ))
    rows = [row for row in service.runs() if not row.state.final]
    if engine.about and engine.about.note and rows:
        yield DoctorFinding(Level.NOTE, "engine", engine.about.note, "windlass doctor --repair")
    if not engine.path.exists() and not rows:
        return
    damage = find_damage(engine, [record_of(service.store, row) for row in rows])
    for text in damage:
        yield DoctorFinding(
            Level.FIX, "engine", f"its repository in '{engine.home}': {text}", "windlass doctor --repair"
        )
    if not damage:
        yield DoctorFinding(Level.OK, "engine", f"its repository in '{engine.home}' is complete")


def repair(project: Project) -> Iterator[DoctorFinding]:
    """`doctor --repair`: repair the engine's repository, or rebuild it from the user's repository and the journal."""
    service = Service(project.host)
    rows = [row for row in service.runs() if not row.state.final]
    for row in rows:
        if service.is_driven(row.id):
            raise UserError(f"run {row.id} is running", hint=f"windlass pause {row.id}, then: windlass doctor --repair")
    engine = EngineRepo.open(user_repo.discover(project.host.cwd), state_dir(project.host.environ))
    if engine.about and engine.about.note:
        yield DoctorFinding(Level.NOTE, "repair", engine.about.note)
    records = [record_of(service.store, row) for row in rows]
    if find_damage(engine, records):
        aside = replace_engine(engine, records)
        yield DoctorFinding(Level.NOTE, "repair", f"the engine's repository was rebuilt; the old one is in '{aside}'")
    for row in rows:
        roles = set(project.roles())
        flow = parse_recorded_flow(row.flow_text, row.flow, roles=roles, contracts=set(contracts.CONTRACTS))
        with driver_lock(project.host.place.lock(row.id), row.id):
            tasks = {phase.id for phase in flow.all_phases() if phase.OWN_SLOTS}
            done = repair_repositories(service.store, row.id, engine, tasks)
            if done.notes or done.fallen:
                claim = EpochClaim(row.id, service.store.runs.get(row.id).epoch)
                Journal(service.store, claim).give_up(done.fallen, done.commits, "; ".join(done.notes))
        for text in done.notes:
            yield DoctorFinding(Level.NOTE, "repair", f"run {row.id}: {text}", f"windlass resume {row.id}")
    yield DoctorFinding(Level.OK, "repair", "the engine's repository is complete")


def _leftovers(project: Project) -> Iterator[DoctorFinding]:
    service = Service(project.host)
    rows = service.runs()
    at_rest = {row.id: row for row in rows if not service.is_driven(row.id)}
    for row in at_rest.values():
        if not row.state.final and service.store.attempts.running(row.id):
            text = f"run {row.id} lost its driver while an agent was running"
            yield DoctorFinding(Level.WARN, "leftovers", text, f"windlass resume {row.id}")
    for pid, marker in marked_processes(project.host.place.home):
        if marker.split(":")[0] in {*at_rest, CHECK}:
            yield DoctorFinding(Level.WARN, "leftovers", f"process {pid} is a leftover of {marker}", f"kill {pid}")
    repo = user_repo.discover(project.host.cwd)
    state = state_dir(project.host.environ)
    # Reading must not create the repository.
    if not (state.resolve() / "windlass" / repo_id(repo.common_dir) / "repo.git").exists():
        return
    needed = {row.id for row in rows if not row.state.final}
    leases = Slots(EngineRepo.open(repo, state)).leases()
    idle = [lease for lease in leases if lease.use is not SlotUse.FREE and lease.run not in needed]
    if idle:
        yield DoctorFinding(
            Level.NOTE, "leftovers", f"{plural(len(idle), 'slot')} of finished or aborted runs", "windlass gc"
        )


PROBES: dict[str, Probe] = {
    "checkout": _checkout,
    "repository": _repository,
    "config": _config,
    "settings": _settings,
    "checks": _checks,
    "agents": _agents,
    "disk": _space,
    "folders": _folders,
    "database": _database,
    "engine": _engine,
    "leftovers": _leftovers,
    "limits": lambda project: blind(),
}


def _existing(path: Path) -> Path:
    """The path, or its nearest existing parent. A file counts too, because no folder can be made below it."""
    return next(folder for folder in (path, *path.parents) if folder.exists())
