"""What the engine itself puts in force: what a person decided, and the page that says how the run went."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from windlass.events import ArtifactStored, Event, ReportWritten
from windlass.git.trees import commit_artifacts
from windlass.model import Json, Key, content_id

if TYPE_CHECKING:
    from windlass.driver.context import StepContext

PROGRESS = "progress"
"""The template of the progress page, and the step that commits it."""


async def make(ctx: StepContext, key: Key, name: str, content: str) -> None:
    """Once; an edit that a person adopted since is what counts."""
    parts, path = ctx.parts, ctx.parts.world.path(name)
    text = parts.redactor.text(content)

    async def store(previous: Json) -> Json:
        parts.store.blobs.put(parts.journal.claim, content_id(text), text)
        return content_id(text)

    def stored(sha: Json) -> list[Event]:
        return [ArtifactStored(name, key.text, str(sha), path)]

    sha = str(await parts.journal.step(key, {"content": content_id(text)}, store, events=stored))
    parts.world.artifacts.hold(name, parts.store.blobs.get(ctx.shared.dispatcher.adopted(key, name, sha)), key.text)


async def report(ctx: StepContext, template: str) -> None:
    ctx.parts.journal.flush()

    async def render(previous: Json) -> Json:
        # The report says where the branch is: it has to be there.
        await ctx.shared.lander.branch.publish()
        return ctx.parts.report(template)

    def written(text: Json) -> list[Event]:
        return [ReportWritten(template, "report.md", str(text))]

    await ctx.parts.journal.step(ctx.key.child("text"), {"template": template}, render, events=written)


async def commit_progress(ctx: StepContext) -> None:
    """The page in its final form becomes part of the run's branch, once."""
    parts, key = ctx.parts, ctx.key.child(PROGRESS)
    path, date = parts.world.progress_path(), float(int(parts.machine.clock()))
    message = f"{path}\n\nWindlass-Phase: {ctx.phase.id}\n"

    async def commit(previous: Json) -> Json:
        contents = {path: parts.report(PROGRESS)}
        return await asyncio.to_thread(commit_artifacts, parts.engine, parts.tip.now, contents, message, date)

    parts.journal.flush()
    made = str(await parts.journal.step(key, None, commit, tip=str))
    await parts.tip.show()
    ctx.stand(made, key)
