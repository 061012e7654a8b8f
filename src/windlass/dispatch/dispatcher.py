"""One keyed dispatch, from a call to its recorded reply: reserve, run, look at what was left, judge, record."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping

from msgspec.structs import replace

from windlass.dispatch.attempt import AttemptResult, attempt
from windlass.dispatch.request import DispatchPlace, DispatchRequest, addressees
from windlass.dispatch.versions import Versions
from windlass.engine.attempts import AttemptFailure
from windlass.engine.quota import WAITS
from windlass.engine.recovery import InterruptedAttempt
from windlass.engine.retry import Fail, Next, Stop, TryAgain, after
from windlass.engine.services import RunServices
from windlass.errors import StoppedError
from windlass.kinds.base import Call, Reply
from windlass.model import ErrorClass, Finding, Json, Key, digest


class Dispatcher:
    def __init__(self, parts: RunServices) -> None:
        self._parts = parts
        self._journal = parts.journal
        self._versions = Versions(parts)
        self.lived: set[str] = set()
        """Keys that ran under this driver."""

    async def run(self, place: DispatchPlace, call: Call) -> Reply:
        inputs = inputs_of(call)
        row = self._journal.find(place.key, inputs)
        if row is not None:
            return self._recall(place, call, reply_of(row.result))
        self.lived.add(place.key.text)
        with place.desk.seat() as desk:
            try:
                judged = await self._tries(replace(place, desk=desk), call, inputs)
            finally:
                if desk is not place.desk:
                    await desk.leave(place.key.text)
        return self._take(place, call, judged)

    def recall(self, place: DispatchPlace, call: Call) -> Reply | None:
        """What a finished step with these inputs replied; None when there is none."""
        row = self._journal.recorded(place.key)
        if row is None or row.fingerprint != digest(inputs_of(call)):
            return None
        return self._recall(place, call, reply_of(row.result))

    # -- tries

    async def _tries(self, place: DispatchPlace, call: Call, inputs: dict[str, Json]) -> AttemptResult:
        role, reminder = self._parts.roles[call.role], ""
        left, began = self._parts.left.pop(place.key.text, None), time.monotonic()
        while True:
            self._parts.wanted.check()
            adapter = self._parts.adapters(self._parts.assignment(call.role, call.profile).agent)
            turn = await self._parts.governor.turn(place.key.text, adapter.credential)
            n = self._journal.attempts.next(place.key)
            told = tuple(self._parts.store.messages.waiting(self._journal.run, addressees(role)))
            if left and left.agent not in ("", adapter.name):
                # Another agent plays the role now: the slot is cleaned, what is in it is kept.
                place.desk.sit_at(left.slot)
                place.desk.disturbed()
                left = None
            order = DispatchRequest(
                self._parts, place, call, role, adapter, inputs, n, reminder, told, left, answered=turn.answered
            )
            try:
                judged, _ = await asyncio.gather(
                    attempt(order, lambda failure: isinstance(self._next(place.key, failure, 0), Fail)),
                    # beside the work: some CLIs take a second to tell
                    self._versions.look(adapter.name),
                )
                if judged.failure and judged.failure.error in WAITS:
                    # Before the probe is given back: nobody shall slip in between.
                    reason, retry_at = judged.failure.reason, judged.failure.retry_at
                    self._parts.governor.hold(place.key.text, adapter.credential, turn, reason, retry_at)
            finally:
                turn.end()
            if judged.failure is None or judged.final:
                return judged
            reminder, left = judged.reminder, judged.left or self._same_session(order, judged)
            if judged.failure.error is ErrorClass.OVER_BUDGET and not judged.failure.hint:
                # The run's own limit: whoever raises it lets this dispatch go on.
                await self._parts.budget.require_room(call.role, order.cap, reports=order.reports)
                continue
            await self._pause(place.key, judged.failure, began)

    def _same_session(self, order: DispatchRequest, judged: AttemptResult) -> InterruptedAttempt | None:
        """An answer that could not be used is asked for again where it was given: the agent has read everything."""
        slot = order.place.desk.slot
        if not (judged.reminder and judged.session and slot and order.adapter.capabilities.resume):
            return None
        return InterruptedAttempt(slot, judged.session, self._parts.folder / order.folder, order.adapter.name)

    def _next(self, key: Key, failure: AttemptFailure, recorded: int) -> Next:
        """Counted from the attempts on record, so that a restart gives no more tries."""
        errors = Counter(row.error for row in self._journal.attempts.all(key))
        return after(failure.error, errors[failure.error] - recorded, self._parts.config.retries)

    async def _pause(self, key: Key, failure: AttemptFailure, began: float) -> None:
        match self._next(key, failure, 1):
            case Stop(hint=hint):
                raise StoppedError(failure.reason, hint=failure.hint or hint)
            case TryAgain(shared=True):
                pass  # the governor holds the next try back
            case TryAgain() if time.monotonic() - began > self._parts.config.retries.longest_wait:
                self._parts.wanted.check()
                raise StoppedError(
                    f"{key} does not come to its end (retries.longest_wait): {failure.reason}",
                    hint="windlass resume goes on",
                )
            case TryAgain(pause_s=seconds):
                await self._sleep(seconds)
            case Fail():
                pass  # only a session that was lost: it begins anew at once

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._parts.wanted.stop.wait()
        except TimeoutError:
            return

    # -- replies

    def _recall(self, place: DispatchPlace, call: Call, reply: Reply) -> Reply:
        contents = {n: self._parts.store.blobs.get(self.adopted(place.key, n, sha)) for n, sha in reply.outs.items()}
        return self._stand(place, call, reply, contents)

    def _take(self, place: DispatchPlace, call: Call, judged: AttemptResult) -> Reply:
        return self._stand(place, call, judged.reply, judged.contents)

    def _stand(self, place: DispatchPlace, call: Call, reply: Reply, contents: Mapping[str, str]) -> Reply:
        self._parts.world.roles_ran.add(call.role)
        for name, content in contents.items():
            self._parts.world.artifacts.hold(name, content, place.key.text, place.task.id if place.task else "")
        if reply.head:
            place.desk.move(reply.head)
            place.desk.changed = reply.files
        return reply

    def adopted(self, key: Key, name: str, sha: str) -> str:
        """A person may have put other content in this step's place."""
        for adoption in self._journal.adoptions:
            if (adoption.producer, adoption.artifact) == (key.text, name):
                sha = adoption.new_sha
        return sha


def inputs_of(call: Call) -> dict[str, Json]:
    return {"role": call.role, "purpose": call.purpose, **call.inputs}


def reply_of(result: Json) -> Reply:
    assert isinstance(result, dict)
    notes = result["notes"]
    files = result["files"]
    assert isinstance(notes, list)
    assert isinstance(files, list)
    found = tuple(Finding.from_json(note) for note in notes if isinstance(note, dict))
    return Reply(**{**result, "files": tuple(files), "notes": found})  # type: ignore[arg-type]
