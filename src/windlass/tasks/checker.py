"""Runs the configured checks and commands on known trees, in the workspace, and caches passed ones by tree."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from msgspec import Struct

from windlass.checks.run import Check, CheckResult, acceptable, canary_tree
from windlass.config.schema import CommandSet, Config
from windlass.dispatch.site import Checkout
from windlass.dispatch.workspace import Workspace
from windlass.engine.journal import Journal
from windlass.errors import UserError, near
from windlass.events import CommandFinished, Event
from windlass.git.engine_repo import EngineRepo
from windlass.git.trees import commit_tree
from windlass.kinds.base import CommandRun
from windlass.model import Json, Key


class CheckVerdict(Struct, frozen=True):
    """The result of the checks on one tree."""

    ok: bool
    label: str
    """passed | known failures | unchecked | failed"""
    output: str = ""
    failing: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()


class Checker:
    """Runs the configured commands on trees, and caches passed results."""

    def __init__(self, journal: Journal, config: Config, engine: EngineRepo, *, recall: bool = True) -> None:
        self._journal = journal
        self._config = config
        self._engine = engine
        self._recall = recall
        """False: cached results do not count, because the environment of the tree may have changed."""
        self.known: frozenset[str] = frozenset()
        """Tests that failed on the base and that a person accepted."""

    @property
    def configured(self) -> bool:
        return bool(self._config.checks.commands)

    async def check(self, key: Key, workspace: Workspace, commit: str, tree: str) -> CheckVerdict:
        """The configured checks on a tree, in the workspace's checkout; remembered by tree, command and set-up."""
        if not self.configured:
            return CheckVerdict(True, "unchecked")
        results = await self._all(key, self._config.checks, workspace, commit, tree)
        events = tuple(_event(key, result, cached=cached) for result, cached in results)
        red = [result for result, _ in results if not acceptable(result, self.known)]
        if red:
            failing = tuple(test for result in red for test in result.failing)
            return CheckVerdict(False, "failed", "\n".join(map(_failure_text, red)), failing, events)
        all_green = all(result.ok for result, _ in results)
        return CheckVerdict(True, "passed" if all_green else "known failures", events=events)

    async def command(self, key: Key, names: Sequence[str], otherwise: str, workspace: Workspace) -> CommandRun:
        """The commands of these names, without those of several that are not configured; or those of `otherwise`."""
        known: dict[str, CommandSet] = {**self._config.commands, "checks": self._config.checks}
        chosen = [known[name] for name in names if name in known] or [known[one] for one in (otherwise,) if one]
        if not chosen:
            raise UserError(f"no commands named '{', '.join(names)}' are configured", hint=near(names[0], known))
        commands = [argv for one in chosen for argv in one.commands]

        async def run(previous: Json) -> Json:
            results: list[Json] = []
            for one in chosen:
                head, tree = workspace.head, workspace.tree
                for result, _ in await self._all(key, one, workspace, head, tree, len(results) + 1):
                    results.append(result.to_json())
                    if not acceptable(result, self.known):
                        return results
            return results

        def event_list(found: Json) -> list[Event]:
            return [_event(key, _result(one), cached=False) for one in found] if isinstance(found, list) else []

        inputs: Json = {"tree": workspace.tree, "commands": [list(argv) for argv in commands]}
        found = await self._journal.step(key, inputs, run, events=event_list)
        results = [_result(one) for one in found] if isinstance(found, list) else []
        red = [result for result in results if not acceptable(result, self.known)]
        return CommandRun(
            not red,
            "\n".join(_failure_text(result) for result in red),
            tuple(test for result in red for test in result.failing),
            red[0].file if red and not red[0].timed_out else "",
            tuple(_summary(result, self.known) for result in results),
        )

    async def canary(self, key: Key, workspace: Workspace) -> str:
        """'' when the checks really test the checkout; otherwise the warning."""
        tree = await asyncio.to_thread(canary_tree, self._engine, workspace.head)
        if tree == workspace.tree:
            return ""
        commit = await asyncio.to_thread(commit_tree, self._engine, tree, [workspace.head], "canary", 0.0)
        results = await self._all(key, self._config.checks, workspace, commit, tree)
        if not all(result.ok for result, _ in results):
            return ""
        return (
            "the checks pass although all code in the slot was broken on purpose: they seem to test another folder"
            " (an editable install, a parent node_modules); what they say is not proof"
        )

    # -- helpers

    async def _all(
        self, key: Key, commands: CommandSet, workspace: Workspace, commit: str, tree: str, first: int = 1
    ) -> list[tuple[CheckResult, bool]]:
        """In order, up to the first failure. `first`: the number of the first command."""
        await workspace.ready(key.text, 0)
        if tree != workspace.tree:
            await workspace.checkout.check_out(commit)
            workspace.mark_dirty()
        results: list[tuple[CheckResult, bool]] = []
        for number, argv in enumerate(commands.commands, first):
            check, name = Check(argv, commands.timeout), f"attempts/{key}/check{number}"
            result, cached = await self._one(check, name, workspace.checkout, tree)
            results.append((result, cached))
            if not result.ok:
                break
        # Files that checks left are not work.
        await workspace.checkout.check_out(workspace.head)
        return results

    async def _one(self, check: Check, name: str, checkout: Checkout, tree: str) -> tuple[CheckResult, bool]:
        store, setup = self._journal.store, checkout.setup_hash()
        seen = store.checks.get(tree, check.command, setup) if self._recall else None
        if seen is not None:
            return _result(seen), True
        result = await checkout.check(check, name)
        # A failure may be the machine's fault today; only a pass is cached.
        if result.ok:
            store.checks.put(self._journal.claim, tree, check.command, setup, result.to_json())
        return result, False


def _summary(result: CheckResult, known: Collection[str]) -> dict[str, Json]:
    return {
        "command": result.command,
        "ok": acceptable(result, known),
        "code": result.code,
        "seconds": result.seconds,
        "timed_out": result.timed_out,
        "failing": [*result.failing],
        "output": result.tail,
    }


def _failure_text(result: CheckResult) -> str:
    """The fixer must know at least what failed."""
    if result.timed_out:
        return f"{result.tail}\n{result.command} was ended after {result.seconds:.0f} s".strip()
    return result.tail if result.tail.strip() else f"{result.command} ended with code {result.code} and said nothing"


def _result(data: Json) -> CheckResult:
    assert isinstance(data, dict)
    failing = data["failing"]
    assert isinstance(failing, list)
    return CheckResult(**{**data, "failing": tuple(failing)})  # type: ignore[arg-type]


def _event(key: Key, result: CheckResult, *, cached: bool) -> Event:
    return CommandFinished(
        key.text, result.command, result.ok, result.code, round(result.seconds, 3), cached, result.tail[-2000:]
    )
