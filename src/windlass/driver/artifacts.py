"""Artifacts that the engine puts in force or commits, and the report of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from windlass.dispatch.dispatcher import adopted_content
from windlass.engine.journal import Journal
from windlass.engine.tip import Tip
from windlass.engine.values import RunValues
from windlass.events import ArtifactStored, Event, ReportWritten
from windlass.git.engine_repo import EngineRepo
from windlass.git.trees import commit_artifacts
from windlass.model import Json, Key, content_id
from windlass.redaction import Redactor


class EngineArtifacts:
    def __init__(
        self,
        journal: Journal,
        tip: Tip,
        engine: EngineRepo,
        values: RunValues,
        redactor: Redactor,
        render: Callable[[str], str],
        publish: Callable[[], Awaitable[None]],
        has_file: Callable[[str], bool],
    ) -> None:
        self._journal = journal
        self._tip = tip
        self._engine = engine
        self._values = values
        self._redactor = redactor
        self._render = render
        """Renders the run with a template."""
        self._publish = publish
        """Shows the tip as the run's branch."""
        self._has_file = has_file
        """Whether the run's folder still has the file of this path."""

    async def missing_files(self, key: Key, names: Sequence[str]) -> list[str]:
        """The paths of artifacts in force whose files a person has deleted. Looks once for each key."""

        async def look(previous: Json) -> Json:
            paths = [self._values.path(name) for name in names]
            return [path for path in paths if path and not self._has_file(path)]

        found = await self._journal.step(key, None, look, synced=False)
        return [str(path) for path in found] if isinstance(found, list) else []

    async def make(self, key: Key, name: str, content: str) -> None:
        """Store an artifact, once, and put it in force. An edit that a person adopted later replaces it."""
        store, path, text = self._journal.store, self._values.path(name), self._redactor.text(content)

        async def put(previous: Json) -> Json:
            store.blobs.put(self._journal.claim, content_id(text), text)
            return content_id(text)

        def artifact_events(sha: Json) -> list[Event]:
            return [ArtifactStored(name, key.text, str(sha), path)]

        sha = str(await self._journal.step(key, {"content": content_id(text)}, put, events=artifact_events))
        self._values.artifacts.hold(name, store.blobs.get(adopted_content(self._journal, key, name, sha)), key.text)

    async def report(self, key: Key, template: str) -> None:
        self._journal.flush()

        async def render(previous: Json) -> Json:
            # The report names the branch, so publish it first.
            await self._publish()
            return self._render(template)

        def report_events(text: Json) -> list[Event]:
            return [ReportWritten(template, "report.md", str(text))]

        await self._journal.step(key, {"template": template}, render, events=report_events)

    async def commit_progress(self, key: Key, phase: str, template: str) -> str:
        """Commit the final progress page to the run's branch, once. Returns the commit."""
        path = self._values.progress_path()
        self._journal.flush()
        return await self._commit(key, None, lambda: {path: self._render(template)}, f"{path}\n\n{_trailer(phase)}")

    async def commit(self, key: Key, names: Sequence[str], why: str) -> str:
        """Commit artifacts on the run's tip, once. Returns the commit."""
        values = self._values
        contents = {values.path(name): values.content(name) or "" for name in names}
        inputs: Json = {values.path(name): values.artifacts.held[name].sha for name in names}
        message = f"{', '.join(sorted(contents))}\n\n{_trailer(why)}"
        return await self._commit(key, inputs, lambda: contents, message)

    async def _commit(self, key: Key, inputs: Json, contents: Callable[[], Mapping[str, str]], message: str) -> str:
        date = float(int(self._journal.store.clock()))

        async def commit(previous: Json) -> Json:
            engine, tip = self._engine, self._journal.tips.now
            return await asyncio.to_thread(commit_artifacts, engine, tip, dict(contents()), message, date)

        made = str(await self._journal.step(key, inputs, commit, tip=str))
        await self._tip.show()
        return made


def _trailer(phase: str) -> str:
    return f"Windlass-Phase: {phase}\n"
