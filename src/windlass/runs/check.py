"""Runs the configured checks as a run does, but without a run: on HEAD for `windlass check`, on a merge for `land`."""

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
"""Used in place of a run id, for slots and refs. It cannot clash: run ids are hexadecimal."""
KEY = Key().child(RUN)
NOTHING_TO_BREAK = "not possible: HEAD has only tests, so there is no code to break on purpose"
PROVED = "good: the checks fail when all code is broken on purpose, so they test the slot"


class CheckSetup(Struct, frozen=True):
    """How the checks run, for a person who wonders why they fail."""

    commands: tuple[str, ...]
    timeout_s: float
    setup: tuple[str, ...]
    setup_timeout_s: float
    copied: tuple[str, ...]
    variables: tuple[str, ...]
    """The names of the environment variables that the checks see."""


class CheckReport(Struct, frozen=True):
    head: str
    dirty: bool
    """Uncommitted changes were not checked."""
    ok: bool
    results: tuple[CommandFinished, ...]
    canary: str = ""
    """The result in words; '' if it was not requested."""


def check_setup(project: Project) -> CheckSetup:
    config = _configured(project)
    workspace = config.workspace
    return CheckSetup(
        tuple(" ".join(argv) for argv in config.checks.commands),
        config.checks.timeout,
        tuple(" ".join(argv) for argv in workspace.setup),
        workspace.setup_timeout,
        workspace.copied,
        tuple(sorted(agent_env(project.host.environ, workspace.env, ci=True))),
    )


def check_head(project: Project, *, canary: bool) -> CheckReport:
    config, repo = _configured(project), user_repo.discover(project.host.cwd)
    verdict, words = _check_in_slot(project, config, repo, repo.head, "check", recall=False, canary=canary)
    results = tuple(event for event in verdict.events if isinstance(event, CommandFinished))
    return CheckReport(repo.head, user_repo.is_dirty(repo), verdict.ok, results, words)


def check_tree(
    project: Project, repo: user_repo.UserRepo, tree: str, parents: Sequence[str], known: frozenset[str]
) -> CheckVerdict:
    """Run the checks on a tree that is on no branch yet. As in a run, an earlier result for this tree counts.

    `known`: failing tests that a person accepted. Without configured checks, the verdict is 'unchecked'.
    """
    config, host = project.config(), project.host
    if not config.checks.commands:
        return CheckVerdict(True, "unchecked")
    engine = EngineRepo.open(repo, state_dir(host.environ))
    commit = commit_tree(engine, tree, list(parents), "What landing would make\n", 0.0)
    verdict, _ = _check_in_slot(project, config, repo, commit, "land", recall=True, known=known)
    return verdict


def _check_in_slot(
    project: Project,
    config: Config,
    repo: user_repo.UserRepo,
    commit: str,
    command: str,
    *,
    recall: bool,
    canary: bool = False,
    known: frozenset[str] = frozenset(),
) -> tuple[CheckVerdict, str]:
    place = project.host.place
    try:
        with driver_lock(place.lock(RUN), RUN):
            store = project.host.open_store(create=True)
            try:
                return asyncio.run(_check(project, config, store, repo, commit, recall, canary, known))
            finally:
                store.close()
    except StoppedError as error:
        # There is no run to resume: the user must repeat the command.
        raise type(error)(error.message, hint=error.hint.replace("windlass resume", f"windlass {command}")) from error
    except LockHeldError:
        pid = holder(place.lock(RUN)) or "unknown"
        raise UserError(
            f"another windlass check or land is running here (process {pid})", hint="wait until it ends"
        ) from None


def _configured(project: Project) -> Config:
    config = project.config()
    if not config.checks.commands:
        raise UserError(
            "no checks are configured, so landings would be 'unchecked'",
            hint='run windlass init, or add to .windlass/config.toml: [checks] commands = ["pytest -q"]',
        )
    return config


async def _check(
    project: Project,
    config: Config,
    store: Store,
    repo: user_repo.UserRepo,
    commit: str,
    recall: bool,
    canary: bool,
    known: frozenset[str],
) -> tuple[CheckVerdict, str]:
    """Returns the verdict of the checks, and the result of the canary in words."""
    host = project.host
    engine = EngineRepo.open(repo, state_dir(host.environ))
    slots = Slots(engine)
    for lease in slots.leases_of(RUN):
        # A killed check may still have a process in its slot.
        slots.retire(slots.slot(lease.n), Attempt(RUN, lease.key, 0), host.clock())
    journal, folder = Journal(store, EpochClaim(RUN, 0)), host.place.home / RUN
    secrets = redactor(known_secrets(config, host.environ, repo.root))
    commands = CommandRunner(journal, config, slots, folder, host.environ, StopRequests(), secrets)
    checker = Checker(journal, config, engine, recall=recall)
    checker.known = known
    workspace = Workspace(engine, RUN, commit, lambda: LocalCheckout(slots, RUN, host.clock, commands))
    # With this ref, the commit is not kept a second time when the workspace leaves the slot.
    engine.refs.set_tip(RUN, commit, engine.refs.tip(RUN))
    try:
        verdict = await checker.check(KEY, workspace, commit, workspace.tree)
        words = ""
        if canary and verdict.ok:
            broken = await asyncio.to_thread(canary_tree, engine, workspace.head)
            is_same = broken == workspace.tree
            words = NOTHING_TO_BREAK if is_same else await checker.canary(KEY.child("canary"), workspace) or PROVED
    finally:
        await workspace.leave(KEY.text)
        engine.refs.drop([tip_ref(RUN)])
    return verdict, words
