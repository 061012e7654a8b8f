"""The frozen rows that a store returns."""

from __future__ import annotations

import json
from functools import cached_property

from msgspec import Struct, field

from windlass.model import Json, RunFacts, RunState


def load(text: str) -> Json:
    return json.loads(text) if text else None


class RunRow(Struct, frozen=True):
    id: str
    request: str
    flow: str
    flow_text: str
    slug: str
    date: str
    base: str
    branch: str
    settings: dict[str, str]
    options: dict[str, Json]
    state: RunState
    started_at: float
    updated_at: float
    reason: str = ""
    hint: str = ""
    epoch: int = 0
    wanted: str = ""
    budget_usd: float | None = None
    warn_usd: float | None = None
    parent: str = ""
    driver: str = ""
    """The run's driver, or its last one: a DriverId as text."""

    @property
    def facts(self) -> RunFacts:
        return RunFacts(
            id=self.id,
            request=self.request,
            flow=self.flow,
            slug=self.slug,
            date=self.date,
            base=self.base,
            branch=self.branch,
            started_at=self.started_at,
            settings=self.settings,
        )


class StepRow(Struct, frozen=True, dict=True):
    seq: int
    key: str
    fingerprint: str
    inputs_json: str
    """Parsed on first use, because most replays read few of them."""
    result_json: str

    @cached_property
    def inputs(self) -> Json:
        return load(self.inputs_json)

    @cached_property
    def result(self) -> Json:
        return load(self.result_json)


class Intent(Struct, frozen=True):
    """What an attempt will do. It is written before the effect, so that a resume knows what may have happened."""

    key: str
    n: int
    folder: str
    host: str
    boot: str
    slot: str = ""
    base: str = ""
    role: str = ""
    agent: str = ""
    model: str = ""
    credential: str = ""
    reserved: float | None = None
    wall_s: float | None = None


class AttemptRow(Struct, frozen=True):
    intent: Intent
    state: str
    epoch: int
    started_at: float
    ended_at: float | None = None
    proc: str = ""
    session: str = ""
    error: str = ""
    reason: str = ""
    usage: Json = None
    cost_usd: float | None = None


class QuestionRow(Struct, frozen=True):
    key: str
    id: str
    data: dict[str, Json]
    state: str
    asked_at: float
    answer: str = ""
    comment: str = ""
    by: str = ""
    answered_at: float | None = None


class AdoptionRow(Struct, frozen=True):
    id: int
    artifact: str
    producer: str
    old_sha: str
    new_sha: str
    by: str
    covers: frozenset[str] = field(default_factory=frozenset)
    """Keys of recorded steps. Each includes the keys below it."""


class Spend(Struct, frozen=True):
    """The cost of the ended attempts of a run."""

    known_usd: float
    assumed_usd: float
    unknown: int
    """The number of ended dispatches with an assumed cost."""
    by_role: dict[str, float]
    """The most expensive finished dispatch of each role: an estimate for the next one."""
    unpriced_tokens: int = 0
    """The tokens of ended dispatches of unknown cost."""


class QuotaWait(Struct, frozen=True):
    """A login that may not be used for some time."""

    login: str
    until: float
    """The end of the wait by the wall clock, for people."""
    left_s: float
    """0 or less: the wait is over, and one dispatch may try."""
    reason: str
    failures: int
    """The number of consecutive refusals by the service."""
