"""The configured checks as a run does them, without a run: on HEAD for `windlass check`, on what `land` would make."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from windlass.agents.process.supervise import agent_env
from windlass.checks.run import canary_tree
from windlass.config.schema import Config
from windlass.dispatch.commands import CommandRunner
from windlass.dispatch.local_checkout import LocalCheckout
from windlass.dispatch.workspace import Workspace
from windlass.engine.journal import Journal
from windlass.engine.services import StopRequests, known_secrets
from windlass.errors import LockHeldError, StoppedError, UserError
from windlass.events import CommandFinished
from windlass.git import user_repo
from windlass.git.engine_repo import EngineRepo
from windlass.git.keep import Attempt
from windlass.git.run_refs import tip_ref
from windlass.git.slots import Slots
from windlass.git.trees import commit_tree
from windlass.locks import driver_lock, holder
from windlass.model import Key
from windlass.paths import state_dir
from windlass.redaction import redactor
from windlass.runs.project import Project
from windlass.store.epoch import EpochClaim
from windlass.store.port import Store
from windlass.tasks.checker import Checker, CheckVerdict

RUN = "check"
"""Stands for a run where a slot or a ref needs one; the ids of runs are hexadecimal."""
KEY = Key().child(RUN)
NOTHING_TO_BREAK = "not possible: HEAD has no code besides tests, so nothing can be broken on purpose"
PROVED = "good: with all code broken on purpose the checks are red, so they look at the slot"


class CheckSetup(Struct, frozen=True):
    """How checks are run, for a person who wonders why they fail."""

    commands: tuple[str, ...]
    timeout_s: float
    setup: tuple[str, ...]
    setup_timeout_s: float
    copied: tuple[str, ...]
    variables: tuple[str, ...]
    """Names of what the checks see of the environment."""


class CheckReport(Struct, frozen=True):
    head: str
    dirty: bool
    """Uncommitted changes were not checked."""
    ok: bool
    results: tuple[CommandFinished, ...]
    canary: str = ""
    """In words; '' when it was not asked for."""


def circumstances(kit: Project) -> CheckSetup:
    config = _configured(kit)
    workspace = config.workspace
    return CheckSetup(
        tuple(" ".join(argv) for argv in config.checks.commands),
        config.checks.timeout,
        tuple(" ".join(argv) for argv in workspace.setup),
        workspace.setup_timeout,
        workspace.copied,
        tuple(sorted(agent_env(kit.world.environ, workspace.env, ci=True))),
    )


def rehearse(kit: Project, *, canary: bool) -> CheckReport:
    config, repo = _configured(kit), user_repo.discover(kit.world.cwd)
    verdict, words = _in_a_slot(kit, config, repo, repo.head, "check", recall=False, canary=canary)
    results = tuple(event for event in verdict.events if isinstance(event, CommandFinished))
    return CheckReport(repo.head, user_repo.is_dirty(repo), verdict.ok, results, words)


def check_tree(
    kit: Project, repo: user_repo.UserRepo, tree: str, parents: Sequence[str], known: frozenset[str]
) -> CheckVerdict:
    """The checks on a tree that no branch has yet. What was found for it before counts, as it does in a run.

    `known`: tests that a person accepted as failing. Without configured checks: unchecked.
    """
    config, world = kit.config(), kit.world
    if not config.checks.commands:
        return CheckVerdict(True, "unchecked")
    engine = EngineRepo.open(repo, state_dir(world.environ))
    commit = commit_tree(engine, tree, list(parents), "What landing would make\n", 0.0)
    verdict, _ = _in_a_slot(kit, config, repo, commit, "land", recall=True, known=known)
    return verdict


def _in_a_slot(
    kit: Project,
    config: Config,
    repo: user_repo.UserRepo,
    commit: str,
    command: str,
    *,
    recall: bool,
    canary: bool = False,
    known: frozenset[str] = frozenset(),
) -> tuple[CheckVerdict, str]:
    place = kit.world.place
    try:
        with driver_lock(place.lock(RUN), RUN):
            store = kit.world.open_store(create=True)
            try:
                return asyncio.run(_check(kit, config, store, repo, commit, recall, canary, known))
            finally:
                store.close()
    except StoppedError as error:
        # There is no run to resume: what was typed is typed again.
        raise type(error)(error.message, hint=error.hint.replace("windlass resume", f"windlass {command}")) from error
    except LockHeldError:
        pid = holder(place.lock(RUN)) or "unknown"
        raise UserError(
            f"another windlass check or land is at work here (process {pid})", hint="wait until it is done"
        ) from None


def _configured(kit: Project) -> Config:
    config = kit.config()
    if not config.checks.commands:
        raise UserError(
            "no checks are configured: what lands would be called 'unchecked'",
            hint='windlass init proposes some, or in .windlass/config.toml: [checks] commands = ["pytest -q"]',
        )
    return config


async def _check(
    kit: Project,
    config: Config,
    store: Store,
    repo: user_repo.UserRepo,
    commit: str,
    recall: bool,
    canary: bool,
    known: frozenset[str],
) -> tuple[CheckVerdict, str]:
    """What the checks said, and the canary in words."""
    world = kit.world
    engine = EngineRepo.open(repo, state_dir(world.environ))
    slots = Slots(engine)
    _retire_leftovers(slots, world.clock())
    journal, folder = Journal(store, EpochClaim(RUN, 0)), world.place.home / RUN
    secrets = redactor(known_secrets(config, world.environ, repo.root))
    commands = CommandRunner(journal, config, slots, folder, world.environ, StopRequests(), secrets)
    checker = Checker(journal, config, engine, recall=recall)
    checker.known = known
    workspace = Workspace(engine, RUN, commit, lambda: LocalCheckout(slots, RUN, world.clock, commands))
    # What a ref of a run leads to is not kept once more when the slot is left.
    engine.refs.set_tip(RUN, commit, engine.refs.tip(RUN))
    try:
        verdict = await checker.check(KEY, workspace, commit, workspace.tree)
        words = await _canary(checker, engine, workspace) if canary and verdict.ok else ""
    finally:
        await workspace.leave(KEY.text)
        engine.refs.drop([tip_ref(RUN)])
    return verdict, words


async def _canary(checker: Checker, engine: EngineRepo, workspace: Workspace) -> str:
    tree = await asyncio.to_thread(canary_tree, engine, workspace.head)
    if tree == workspace.tree:
        return NOTHING_TO_BREAK
    return await checker.canary(KEY.child("canary"), workspace) or PROVED


def _retire_leftovers(slots: Slots, now: float) -> None:
    """A check that was killed may still have a process in its slot."""
    for lease in slots.held(RUN):
        slots.retire(slots.slot(lease.n), Attempt(RUN, lease.key, 0), now)
