"""The run's branch leaves this machine, once: ask what is there, act, record.

Killed between the act and the record, the next driver asks again and finds it done.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from windlass.engine.journal import Journal
from windlass.engine.services import StopRequests
from windlass.engine.values import RunValues
from windlass.errors import UserError
from windlass.events import BranchPublished, Event, PublishFinished
from windlass.git import github, remote
from windlass.git import run as git
from windlass.git.engine_repo import EngineRepo
from windlass.git.publish import publish
from windlass.git.remote import Remote
from windlass.kinds.base import PublishResult
from windlass.model import Json, Key
from windlass.private_files import replace_file
from windlass.redaction import Redactor
from windlass.tasks.lander import Lander
from windlass.text import plain

DONE, ALREADY, LEFT, FAILED = "done", "already", "left", "failed"
BODY = "pull-request.md"
LOG_IN = "gh is not logged in; gh auth login, then windlass retry"
NOTHING = "nothing has landed, so there is nothing to publish"
TITLE = 72


class PublishRequest(Struct, frozen=True):
    """What the flow says about where to publish; '' leaves it to the repository."""

    remote: str = ""
    base: str = ""
    tag: str = ""


class RemoteState(Struct, frozen=True):
    state: str
    detail: str = ""
    url: str = ""
    commands: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        return {"state": self.state, "detail": self.detail, "url": self.url, "commands": [*self.commands]}


class RunPages(Struct, frozen=True):
    """Texts about the run, and the folder that holds what people read of it."""

    folder: Path
    render: Callable[[str], str]
    """The run's record by a template."""


class Publisher:
    """Brings the run's branch to its remote."""

    def __init__(
        self,
        journal: Journal,
        engine: EngineRepo,
        values: RunValues,
        lander: Lander,
        requests: StopRequests,
        environ: Mapping[str, str],
        redactor: Redactor,
        pages: RunPages,
    ) -> None:
        self._journal = journal
        self._engine = engine
        self._values = values
        self._lander = lander
        self._requests = requests
        self._environ = environ
        self._redactor = redactor
        self._pages = pages

    async def missing_commits(self) -> Json:
        """What the remote has that this run does not begin with, in words; '' when nothing. Changes no ref of the
        user."""
        branch, root = self._values.base_branch, self._engine.user.root
        name = remote.choose(root, branch)
        if not name or not branch:
            return ""
        ours = f"refs/windlass/fetched/{branch}"
        failed = await asyncio.to_thread(Remote(root, name, self._environ).fetch, branch, ours)
        if failed:
            return self._redactor.text(f"'{name}' could not be asked for '{branch}': {failed}")
        newer = git.run(["rev-list", "--count", f"{self._values.facts.base}..{ours}"], root).line
        return f"'{name}/{branch}' has {newer} commits that this run does not begin with" if newer != "0" else ""

    async def show_branch(self) -> Json:
        """Before the first phase: the run's branch, at the tip."""
        values, tip = self._values, self._journal.tips.now
        facts, last = values.facts, values.published_tip
        made = await asyncio.to_thread(lambda: publish(self._engine, facts.id, facts.branch, tip, last))
        values.published_tip, values.branch = made.commit, made.branch
        with self._journal.writing("publish", BranchPublished(made.branch, made.commit, made.note, tip)):
            pass
        return made.branch

    async def publish(self, key: Key, what: str, wish: PublishRequest) -> PublishResult:
        where = await self._where(key)
        match what:
            case "push":
                found = await self._step(key, what, where, lambda: self._push(where, wish))
            case "tag":
                name = wish.tag.format_map(self._values.names())
                found = await self._step(key, what, {**where, "tag": name}, lambda: self._tag(where, wish, name))
            case _:
                found = await self._step(key, what, where, lambda: self._pull_request(where, wish))
        return PublishResult(str(found["state"]), str(found["detail"]))

    async def _where(self, key: Key) -> dict[str, str]:
        """The branch and the commit that leave, fixed when the phase begins."""

        async def look(previous: Json) -> Json:
            await self._lander.branch.publish()
            values = self._values
            return {"branch": values.branch or values.facts.branch, "commit": self._journal.tips.now}

        found = await self._journal.step(key.child("where"), None, look)
        assert isinstance(found, dict)
        return {name: str(value) for name, value in found.items()}

    async def _step(
        self, key: Key, what: str, where: dict[str, str], act: Callable[[], RemoteState]
    ) -> dict[str, Json]:
        async def once(previous: Json) -> Json:
            self._requests.check()
            nothing = where["commit"] == self._values.facts.base
            found = RemoteState(LEFT, NOTHING) if nothing else await asyncio.to_thread(act)
            return self._redactor.json(found.to_json())

        def told(result: Json) -> list[Event]:
            assert isinstance(result, dict)
            listed = result["commands"]
            commands = [str(line) for line in listed] if isinstance(listed, list) else []
            said = (str(result["state"]), str(result["detail"]), str(result["url"]), commands)
            return [PublishFinished(key.child(what).text, what, *said)]

        inputs: Json = {**where}
        result = await self._journal.step(key.child(what), inputs, once, events=told)
        assert isinstance(result, dict)
        return result

    # -- acts, each of which may have been done by a driver that died

    def _push(self, where: dict[str, str], wish: PublishRequest) -> RemoteState:
        branch, there = where["branch"], self._remote(wish)
        if isinstance(there, RemoteState):
            return there
        if there is None:
            return RemoteState(LEFT, "this repository has no remote", commands=_push_commands("", branch))
        by_hand = _push_commands(there.name, branch)
        return self._bring(there, where["commit"], f"refs/heads/{branch}", f"'{branch}' to '{there.name}'", by_hand)

    def _tag(self, where: dict[str, str], wish: PublishRequest, name: str) -> RemoteState:
        there, commit = self._remote(wish), where["commit"]
        if isinstance(there, RemoteState):
            return there
        if not git.is_branch_name(name):
            return RemoteState(FAILED, f"'{name}' is not a valid name for a tag")
        if there is None:
            by_hand = f"git tag {shlex.quote(name)} {commit}"
            return RemoteState(LEFT, "this repository has no remote", commands=(by_hand,))
        by_hand = f"git push {shlex.quote(there.name)} {commit}:{shlex.quote(f'refs/tags/{name}')}"
        return self._bring(there, commit, f"refs/tags/{name}", f"tag '{name}' to '{there.name}'", (by_hand,))

    def _bring(self, there: Remote, commit: str, ref: str, what: str, by_hand: tuple[str, ...]) -> RemoteState:
        present = there.refs(ref)
        if isinstance(present, str):
            return RemoteState(FAILED, f"cannot ask '{there.name}' what it has: {present}", commands=by_hand)
        now = present.get(ref, "")
        if now == commit:
            return RemoteState(ALREADY, f"{what}: it is there")
        if now and ref.startswith("refs/tags/"):
            return RemoteState(FAILED, f"cannot bring {what}: it is there and names another commit", commands=by_hand)
        self._engine.require_fence()
        refused = there.push(commit, ref)
        return (
            RemoteState(FAILED, f"cannot bring {what}: {refused}", commands=by_hand)
            if refused
            else RemoteState(DONE, what)
        )

    def _pull_request(self, where: dict[str, str], wish: PublishRequest) -> RemoteState:
        there = self._remote(wish)
        if isinstance(there, RemoteState):
            return there
        program = github.find(self._engine.user.root, self._environ)
        target = self._target(there) if there else None
        heading = self._heading(there, target, where["branch"])
        base = self._base(target, wish)
        commands = self._by_hand(there, heading, base)
        if there is None or program is None:
            lacking = "this repository has no remote" if there is None else "gh is not installed"
            return RemoteState(LEFT, f"no pull request: {lacking}", commands=commands)
        return self._opened(program, heading, base, commands)

    def _opened(self, program: github.Gh, heading: github.Heading, base: str, commands: tuple[str, ...]) -> RemoteState:
        listed = program.pull_requests_of(heading)
        if listed.ok and (url := github.first_url(listed.out, heading.owner)):
            return RemoteState(ALREADY, "it is open already", url)
        self._engine.require_fence()
        said = program.open_pull_request(heading, base, self._title, self._body()) if listed.ok else listed
        if said.ok and said.url:
            return RemoteState(DONE, "", said.url)
        if "already exists" in said.err and said.url:
            return RemoteState(ALREADY, "it is open already", said.url)
        if said.not_github:
            return RemoteState(LEFT, "no pull request: the remote is not on GitHub", commands=commands)
        reason = LOG_IN if said.needs_login else f"gh could not open the pull request: {said.why}"
        return RemoteState(FAILED, reason, commands=commands)

    # -- what they are told

    def _remote(self, wish: PublishRequest) -> Remote | RemoteState | None:
        root, environ = self._engine.user.root, self._environ
        try:
            name = remote.choose(root, self._values.base_branch, wish.remote)
        except UserError as error:
            return RemoteState(FAILED, f"{error.message}; {error.hint}")
        return Remote(root, name, environ) if name else None

    def _target(self, there: Remote) -> Remote:
        """The remote that the pull request is for: another one when the branch goes to a fork."""
        return replace(there, name=remote.proposal_remote(there.root, self._values.base_branch, there.name))

    def _heading(self, there: Remote | None, target: Remote | None, branch: str) -> github.Heading:
        if there is None or target is None:
            return github.Heading(branch)
        ours, theirs = _repo(there, push=True), _repo(target)
        owner = ours.owner if ours else ""
        if ours is None or theirs is None:
            return github.Heading(branch, owner)
        fork, several = not ours.is_same(theirs), len(remote.names(there.root)) > 1
        # Said, not left to gh: among several remotes it takes one by its name.
        return github.Heading(branch, owner, theirs.slug if fork or several else "", is_fork=fork)

    def _base(self, there: Remote | None, wish: PublishRequest) -> str:
        """What the person worked on, if the other side has it; else the other side's own default, by saying nothing."""
        base = wish.base or self._values.base_branch
        present = there.refs(f"refs/heads/{base}") if there and base else {}
        return base if wish.base or (not isinstance(present, str) and present) else ""

    @property
    def _title(self) -> str:
        values = self._values
        words = " ".join(plain(values.original or values.facts.request).split())
        return words if len(words) <= TITLE else words[: TITLE - 1].rsplit(" ", 1)[0] + "…"

    def _body(self) -> str:
        values = self._values
        refined = f"{plain(values.facts.request).strip()}\n\n" if values.original else ""
        text = self._redactor.text(refined + self._pages.render("pull-request-body"))
        replace_file(self._pages.folder / BODY, text)
        return text

    def _by_hand(self, there: Remote | None, heading: github.Heading, base: str) -> tuple[str, ...]:
        self._body()
        body = os.path.relpath(self._pages.folder / BODY, self._engine.user.root)
        into = f" --base {shlex.quote(base)}" if base else ""
        title = shlex.quote(self._title)
        to = f" --repo {shlex.quote(heading.repo)}" if heading.repo else ""
        head = shlex.quote(heading.head)
        create = f"gh pr create{to} --head {head}{into} --title {title} --body-file {shlex.quote(body)}"
        return (*_push_commands("" if there is None else there.name, heading.branch), create)


def _repo(there: Remote, *, push: bool = False) -> github.Repo | None:
    found = (github.repo_of(url) for url in remote.addresses(there.root, there.name, push=push))
    return next((repo for repo in found if repo), None)


def _push_commands(name: str, branch: str) -> tuple[str, ...]:
    add = () if name else ("git remote add origin URL",)
    return (*add, f"git push {shlex.quote(name or 'origin')} {shlex.quote(branch)}")
