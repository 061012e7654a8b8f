"""Publishes the run's branch to its remote, once: asks for the state of the remote, acts, and records the result.

If the driver is killed between the action and the record, the next driver asks again and finds it done.
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
    """The flow's settings for publishing. '' uses the settings of the repository."""

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
    """Renders texts about the run, and names the folder for them."""

    folder: Path
    render: Callable[[str], str]
    """Renders the run with a template."""


class Publisher:
    """Publishes the run's branch to its remote."""

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
        """A text about commits of the remote that are not in the run's base; '' when there are none. Changes no ref of
        the user."""
        branch, root = self._values.base_branch, self._engine.user.root
        name = remote.choose(root, branch)
        if not name or not branch:
            return ""
        ours = f"refs/windlass/fetched/{branch}"
        failed = await asyncio.to_thread(Remote(root, name, self._environ).fetch, branch, ours)
        if failed:
            return self._redactor.text(f"'{name}' could not be asked for '{branch}': {failed}")
        newer = git.run(["rev-list", "--count", f"{self._values.facts.base}..{ours}"], root).line
        return f"'{name}/{branch}' has {newer} commits that are not in the base of this run" if newer != "0" else ""

    async def show_branch(self) -> Json:
        """Create the run's branch at the tip before the first phase."""
        values, tip = self._values, self._journal.tips.now
        facts, last = values.facts, values.published_tip
        made = await asyncio.to_thread(lambda: publish(self._engine, facts.id, facts.branch, tip, last))
        values.published_tip, values.branch = made.commit, made.branch
        with self._journal.writing("publish", BranchPublished(made.branch, made.commit, made.note, tip)):
            pass
        return made.branch

    async def publish(self, key: Key, what: str, wish: PublishRequest) -> PublishResult:
        async def look(previous: Json) -> Json:
            await self._lander.branch.publish()
            values = self._values
            return {"branch": values.branch or values.facts.branch, "commit": self._journal.tips.now}

        # The branch and the commit to publish are fixed when the phase begins.
        where = await self._journal.step(key.child("where"), None, look)
        assert isinstance(where, dict)
        source = {name: str(value) for name, value in where.items()}
        match what:
            case "push":
                found = await self._step(key, what, source, lambda: self._push(source, wish))
            case "tag":
                name = wish.tag.format_map(self._values.names())
                found = await self._step(key, what, {**source, "tag": name}, lambda: self._tag(source, wish, name))
            case _:
                found = await self._step(key, what, source, lambda: self._pull_request(source, wish))
        return PublishResult(str(found["state"]), str(found["detail"]))

    async def _step(
        self, key: Key, what: str, source: dict[str, str], act: Callable[[], RemoteState]
    ) -> dict[str, Json]:
        async def once(previous: Json) -> Json:
            self._requests.check()
            nothing = source["commit"] == self._values.facts.base
            found = RemoteState(LEFT, NOTHING) if nothing else await asyncio.to_thread(act)
            return self._redactor.json(found.to_json())

        def events(result: Json) -> list[Event]:
            assert isinstance(result, dict)
            listed = result["commands"]
            commands = [str(line) for line in listed] if isinstance(listed, list) else []
            fields = (str(result["state"]), str(result["detail"]), str(result["url"]), commands)
            return [PublishFinished(key.child(what).text, what, *fields)]

        inputs: Json = {**source}
        result = await self._journal.step(key.child(what), inputs, once, events=events)
        assert isinstance(result, dict)
        return result

    # -- actions; a dead driver may have done any of them

    def _push(self, source: dict[str, str], wish: PublishRequest) -> RemoteState:
        branch, destination = source["branch"], self._remote(wish)
        if isinstance(destination, RemoteState):
            return destination
        if destination is None:
            return RemoteState(LEFT, "this repository has no remote", commands=_push_commands("", branch))
        by_hand = _push_commands(destination.name, branch)
        return self._push_ref(
            destination, source["commit"], f"refs/heads/{branch}", f"'{branch}' to '{destination.name}'", by_hand
        )

    def _tag(self, source: dict[str, str], wish: PublishRequest, name: str) -> RemoteState:
        destination, commit = self._remote(wish), source["commit"]
        if isinstance(destination, RemoteState):
            return destination
        if not git.is_branch_name(name):
            return RemoteState(FAILED, f"'{name}' is not a valid name for a tag")
        if destination is None:
            by_hand = f"git tag {shlex.quote(name)} {commit}"
            return RemoteState(LEFT, "this repository has no remote", commands=(by_hand,))
        by_hand = f"git push {shlex.quote(destination.name)} {commit}:{shlex.quote(f'refs/tags/{name}')}"
        return self._push_ref(
            destination, commit, f"refs/tags/{name}", f"tag '{name}' to '{destination.name}'", (by_hand,)
        )

    def _push_ref(self, destination: Remote, commit: str, ref: str, what: str, by_hand: tuple[str, ...]) -> RemoteState:
        present = destination.refs(ref)
        if isinstance(present, str):
            return RemoteState(FAILED, f"cannot list the refs of '{destination.name}': {present}", commands=by_hand)
        now = present.get(ref, "")
        if now == commit:
            return RemoteState(ALREADY, f"{what}: it is there")
        if now and ref.startswith("refs/tags/"):
            return RemoteState(FAILED, f"cannot push {what}: it exists with another commit", commands=by_hand)
        self._engine.require_fence()
        refused = destination.push(commit, ref)
        return (
            RemoteState(FAILED, f"cannot push {what}: {refused}", commands=by_hand)
            if refused
            else RemoteState(DONE, what)
        )

    def _pull_request(self, source: dict[str, str], wish: PublishRequest) -> RemoteState:
        destination = self._remote(wish)
        if isinstance(destination, RemoteState):
            return destination
        program = github.find(self._engine.user.root, self._environ)
        target = None
        if destination:
            # When the branch goes to a fork, another remote gets the pull request.
            name = remote.proposal_remote(destination.root, self._values.base_branch, destination.name)
            target = replace(destination, name=name)
        heading = self._heading(destination, target, source["branch"])
        # The person's branch, if the remote has it; else '' for the default branch of the remote.
        base = wish.base or self._values.base_branch
        present = target.refs(f"refs/heads/{base}") if target and base else {}
        base = base if wish.base or (not isinstance(present, str) and present) else ""
        self._body()
        body = os.path.relpath(self._pages.folder / BODY, self._engine.user.root)
        into = f" --base {shlex.quote(base)}" if base else ""
        to = f" --repo {shlex.quote(heading.repo)}" if heading.repo else ""
        head, title = shlex.quote(heading.head), shlex.quote(self._title)
        create = f"gh pr create{to} --head {head}{into} --title {title} --body-file {shlex.quote(body)}"
        commands = (*_push_commands("" if destination is None else destination.name, heading.branch), create)
        if destination is None or program is None:
            lacking = "this repository has no remote" if destination is None else "gh is not installed"
            return RemoteState(LEFT, f"no pull request: {lacking}", commands=commands)
        return self._open_pull_request(program, heading, base, commands)

    def _open_pull_request(
        self, program: github.Gh, heading: github.Heading, base: str, commands: tuple[str, ...]
    ) -> RemoteState:
        listed = program.pull_requests_of(heading)
        if listed.ok and (url := github.first_url(listed.out, heading.owner)):
            return RemoteState(ALREADY, "it is open already", url)
        self._engine.require_fence()
        reply = program.open_pull_request(heading, base, self._title, self._body()) if listed.ok else listed
        if reply.ok and reply.url:
            return RemoteState(DONE, "", reply.url)
        if "already exists" in reply.err and reply.url:
            return RemoteState(ALREADY, "it is open already", reply.url)
        if reply.not_github:
            return RemoteState(LEFT, "no pull request: the remote is not on GitHub", commands=commands)
        reason = LOG_IN if reply.needs_login else f"gh could not open the pull request: {reply.why}"
        return RemoteState(FAILED, reason, commands=commands)

    # -- parameters of the actions

    def _remote(self, wish: PublishRequest) -> Remote | RemoteState | None:
        root, environ = self._engine.user.root, self._environ
        try:
            name = remote.choose(root, self._values.base_branch, wish.remote)
        except UserError as error:
            return RemoteState(FAILED, f"{error.message}; {error.hint}")
        return Remote(root, name, environ) if name else None

    def _heading(self, destination: Remote | None, target: Remote | None, branch: str) -> github.Heading:
        if destination is None or target is None:
            return github.Heading(branch)
        ours, theirs = _repo(destination, push=True), _repo(target)
        owner = ours.owner if ours else ""
        if ours is None or theirs is None:
            return github.Heading(branch, owner)
        fork, several = not ours.is_same(theirs), len(remote.names(destination.root)) > 1
        # Name the repository, because gh chooses one of several remotes by name.
        return github.Heading(branch, owner, theirs.slug if fork or several else "", is_fork=fork)

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


def _repo(destination: Remote, *, push: bool = False) -> github.Repo | None:
    found = (github.repo_of(url) for url in remote.addresses(destination.root, destination.name, push=push))
    return next((repo for repo in found if repo), None)


def _push_commands(name: str, branch: str) -> tuple[str, ...]:
    add = () if name else ("git remote add origin URL",)
    return (*add, f"git push {shlex.quote(name or 'origin')} {shlex.quote(branch)}")
