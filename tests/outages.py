"""An outage storm: real runs through a real CLI against a model server that fails by a seeded plan.

usage: python tests/outages.py CLI [--minutes N] [--seed N]

Three lanes start one run after the other for as long as the storm lasts: two in one repository, one in another, all on
one login. Meanwhile the server goes away, answers 429 with and without a reset, 500 and 503, and cuts streams. Then
the server is well again, and every run must end right. What must hold is checked at the end:

- every run ends with 0, with its code landed, and no process is left;
- no dispatch begins from its first turn where an earlier attempt's session held more than that;
- the tokens and dollars that Windlass records for an attempt are those that were served to it; an attempt whose stream
  was cut may be recorded with an assumed cost, and then with no more than was served;
- while the login waits, nobody asks but one probe at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent
sys.path[:0] = [str(TESTS), str(TESTS / "live")]

from clis import CLIS, left_behind  # noqa: E402
from msgspec.structs import replace  # noqa: E402
from runs_live import CODE, MODELS, config_of  # noqa: E402

from front import ONE_TASK, Front  # noqa: E402
from windlass.agents import prices as pricing  # noqa: E402
from windlass.agents.base import Job  # noqa: E402
from windlass.agents.cli.failures import WAITS  # noqa: E402
from windlass.events import DispatchCosted, DispatchFinished, DispatchStarted, Recorded, WaitStarted  # noqa: E402
from windlass.model import Usage  # noqa: E402
from windlass.store.port import PROBE_S  # noqa: E402
from windlass.testing.playbook import Refusal, ScriptedReply  # noqa: E402
from windlass.testing.scripted_model import ScriptedModel  # noqa: E402
from windlass.testing.wire.base import Asked, ServerFailure  # noqa: E402

FAULTS = ("away", "429", "429 reset", "500", "503", "cut")
TURNS = 4
USAGE = {"input": 40_000, "output": 400}
#: the storm is shorter than a day of work: so are the pauses, except that they grow
CONFIG = '[retries]\npauses = ["2s", "4s", "8s", "15s"]\ncrashed = 3\n'
KINDS = {429: "rate_limit_error", 500: "api_error", 503: "overloaded_error"}
CENT = 0.005
PATIENT_S = 600.0
"""So long the last runs may take to end after the storm: the machine may be busy."""


@dataclass(frozen=True)
class Spell:
    """For so long the server does this."""

    fault: str
    seconds: float
    reset_s: int = 0


def plan(seed: int, seconds: float) -> list[Spell]:
    """Faults in random order, each at least once, with good spells between them."""
    chance = random.Random(seed)
    spells: list[Spell] = []
    left = seconds
    while left > 0:
        faults = list(FAULTS)
        chance.shuffle(faults)
        for fault in faults:
            each = min(30.0, seconds / (2 * len(FAULTS)))
            bad = chance.uniform(0.5, 1.0) * each
            reset = round(chance.choice((bad / 2, bad, 25.0)) + 1) if fault == "429 reset" else 0
            spells += [Spell("", chance.uniform(0.3, 1.0) * each), Spell(fault, bad, reset)]
        left = seconds - sum(spell.seconds for spell in spells)
    return spells


Attempt = tuple[str, str, int]
"""Run, key, number."""


@dataclass
class Call:
    """One request for an answer of the model."""

    job: Job
    at: float
    results: int
    """Tool results that the conversation held."""
    fate: str
    """served | cut | refused"""
    tokens: int = 0
    usd: float = 0.0
    aside: bool = False

    @property
    def attempt(self) -> Attempt:
        return self.job.run, self.job.key, self.job.attempt


class StormyModel(ScriptedModel):
    """A scripted model whose plan of faults is obeyed once `begin` was called."""

    def __init__(self, rules: Sequence[dict[str, Any]], spells: Sequence[Spell]) -> None:
        super().__init__(rules, clock=time.time)
        self.spells = spells
        self.calls: list[Call] = []
        self.began = 0.0
        self._guard = threading.Lock()

    def begin(self) -> None:
        self.began = time.monotonic()

    def spell(self) -> Spell:
        at = time.monotonic() - self.began if self.began else 0.0
        for spell in self.spells if self.began else ():
            if at < spell.seconds:
                return spell
            at -= spell.seconds
        return Spell("", 0.0)

    def reply(self, job: Job, asked: Asked) -> ScriptedReply | Refusal:
        spell = self.spell()
        found = super().reply(job, asked)
        if isinstance(found, Refusal):
            return found
        call = Call(job, time.time(), len(asked.results), "served", aside=asked.aside is not None)
        used = found.answer.tokens
        call.tokens = used.input + used.output
        call.usd = pricing.cost(asked.model, Usage(used.input, used.output, used.cached)) or 0.0
        match spell.fault:
            case "":
                pass
            case "cut" if asked.stream:
                call.fate, found = "cut", replace(found, cut_after=300)
            case "cut":
                pass
            case fault:
                call.fate = "refused"
                status = int(fault.split()[0]) if fault != "away" else 0
                after = float(spell.reset_s) if spell.reset_s else None
                headers = {"retry-after": f"{spell.reset_s}"} if after else {}
                found = Refusal(ServerFailure(status, KINDS.get(status, ""), f"storm {status}", after), headers)  # type: ignore[assignment]
        with self._guard:
            self.calls.append(call)
        if spell.fault == "away":
            # The connection breaks without an answer.
            raise ConnectionAbortedError("the server is away")
        return found


@dataclass
class Lane:
    """One run after the other in one repository."""

    name: str
    front: Front
    ended: list[tuple[str, int, str]] = field(default_factory=list)
    """Run, exit code, what it said last."""

    def work(self, until: float) -> None:
        count = 0
        while time.monotonic() < until:
            count += 1
            self.one(f"Add add, {self.name} {count}")

    def one(self, request: str) -> None:
        command = [sys.executable, "-m", "windlass", "run", "--new", "--json", "--flow", "tiny", "--yes", "--", request]
        done = subprocess.run(
            command, cwd=self.front.root, env=self.front.env, capture_output=True, text=True, check=False
        )
        try:
            run = str(json.loads(done.stdout.splitlines()[-1])["run"])
        except (IndexError, ValueError, KeyError, TypeError):
            run = ""
        self.ended.append((run, done.returncode, (done.stdout + done.stderr)[-2000:]))

    @property
    def records(self) -> list[Recorded]:
        return [record for run, _, _ in self.ended if run for record in self.front.service.events(run)]

    def landed(self, run: str) -> set[str]:
        branch = self.front.service.view(run).published
        return set(self.front.git("ls-tree", "-r", "--name-only", branch).splitlines()) if branch else set()


def rules() -> list[dict[str, Any]]:
    steps = [f"echo step-{n} >> steps.txt" for n in range(1, TURNS)]
    return [{"when": {"role": "implementer"}, "files": CODE, "run": steps, "say": "Built.", "usage": USAGE}]


def lanes(folder: Path, cli: str, server: ScriptedModel) -> list[Lane]:
    flow = {".windlass/flows/tiny.yaml": ONE_TASK}
    one, two = Front(folder / "one", files=flow), Front(folder / "two", files=flow)
    two.__dict__["env"] = one.env  # one person, one login, two repositories
    one.configure(config_of(cli, server, model=MODELS[cli]) + CONFIG)
    return [Lane("a", one), Lane("b", one), Lane("c", two)]


# -- what must hold


def problems(cli: str, all_lanes: Sequence[Lane], server: StormyModel) -> Iterator[str]:
    for lane in all_lanes:
        for run, code, said in lane.ended:
            if code != 0 or not run:
                yield f"run {run or '?'} of lane {lane.name} ended with {code}: {said}"
            elif not set(CODE) <= lane.landed(run):
                yield f"run {run} ended without its code on its branch: {sorted(lane.landed(run))}"
            if run and left_behind(run):
                yield f"run {run} left processes: {left_behind(run)}"
    records = [record for lane in all_lanes for record in lane.records]
    # opencode's log says the same of a response that broke off and of a connection without one.
    yield from _wrong_money(records, server.calls, shows_cuts=cli != "opencode")
    yield from _repeated(server.calls)
    yield from _together(records, server.calls)


def _repeated(all_calls: Sequence[Call]) -> Iterator[str]:
    """A dispatch that begins at its first turn though an earlier attempt had come further."""
    steps: dict[tuple[str, str], list[Call]] = defaultdict(list)
    for call in all_calls:
        if not call.aside:
            steps[call.job.run, call.job.key].append(call)
    for (run, key), calls in steps.items():
        furthest, attempt = 0, 0
        for call in calls:
            if call.job.attempt > attempt and furthest > 0 and call.results == 0:
                yield f"run {run}: attempt {call.job.attempt} of {key} began anew after {furthest} turns"
            attempt, furthest = max(attempt, call.job.attempt), max(furthest, call.results)


@dataclass
class Bill:
    """What one attempt got from the server, and what Windlass recorded for it."""

    tokens: int = 0
    usd: float = 0.0
    cut_tokens: int = 0
    cut_usd: float = 0.0
    told_tokens: int = 0
    told_usd: float = 0.0
    assumed_usd: float = 0.0

    def is_right(self, *, shows_cuts: bool) -> bool:
        """`shows_cuts`: the CLI shows which of its responses broke off."""
        lowest = (0, 0.0) if self.assumed_usd and self.cut_tokens else (self.tokens, self.usd)
        tokens = lowest[0] <= self.told_tokens <= self.tokens + self.cut_tokens
        usd = lowest[1] - CENT <= self.told_usd <= self.usd + self.cut_usd + CENT
        if not self.cut_tokens:
            return tokens and usd and not self.assumed_usd
        is_reported = self.told_usd >= self.usd + self.cut_usd - CENT
        return tokens and usd and (self.assumed_usd > 0 or is_reported or not shows_cuts)


def bills(records: Sequence[Recorded], calls: Sequence[Call]) -> dict[Attempt, Bill]:
    found: dict[Attempt, Bill] = defaultdict(Bill)
    for call in calls:
        bill = found[call.attempt]
        if call.fate == "served":
            bill.tokens, bill.usd = bill.tokens + call.tokens, bill.usd + call.usd
        elif call.fate == "cut":
            bill.cut_tokens, bill.cut_usd = bill.cut_tokens + call.tokens, bill.cut_usd + call.usd
    for record in records:
        event = record.event
        if isinstance(event, DispatchFinished | DispatchCosted):
            bill = found[record.run, event.key, event.attempt]
            bill.told_tokens += event.input + event.output
            bill.told_usd, bill.assumed_usd = event.cost_usd or 0.0, event.assumed_usd or 0.0
    return found


def _wrong_money(records: Sequence[Recorded], calls: Sequence[Call], *, shows_cuts: bool = True) -> Iterator[str]:
    for (run, key, attempt), bill in bills(records, calls).items():
        if not bill.is_right(shows_cuts=shows_cuts):
            yield f"run {run}: attempt {attempt} of {key} is recorded with another cost than was served: {bill}"


def _together(records: Sequence[Recorded], calls: Sequence[Call]) -> Iterator[str]:
    """Two dispatches that had both waited for the login and were at work together, though the server had answered
    nothing since it refused the last dispatch."""
    answered = [call.at for call in calls if call.fate != "refused"]
    refused = [one.at for one in records if isinstance(one.event, DispatchFinished) and one.event.error in WAITS]
    probes = _after_a_wait(records)
    for who, begun, ended in probes:
        since = max((at for at in refused if at < begun), default=0.0)
        for other, start, _ in probes:
            overlap = other != who and begun < start < min(ended, begun + PROBE_S)
            if overlap and not any(since <= at <= start + 1.0 for at in answered):
                yield f"{other} began while {who} was still trying the login"


def _after_a_wait(records: Sequence[Recorded]) -> list[tuple[Attempt, float, float]]:
    waiting: set[tuple[str, str]] = set()
    begun: dict[Attempt, float] = {}
    found: list[tuple[Attempt, float, float]] = []
    for record in records:
        event = record.event
        if isinstance(event, WaitStarted):
            waiting.add((record.run, event.key))
        elif isinstance(event, DispatchStarted) and (record.run, event.key) in waiting:
            waiting.discard((record.run, event.key))
            begun[record.run, event.key, event.attempt] = record.at
        elif isinstance(event, DispatchFinished):
            who = (record.run, event.key, event.attempt)
            if who in begun:
                found.append((who, begun.pop(who), record.at))
    return found


def storm(cli: str, minutes: float, seed: int, folder: Path) -> int:
    spells = plan(seed, minutes * 60)
    server = StormyModel(rules(), spells).start()
    try:
        found = lanes(folder, cli, server)
        server.begin()
        until = time.monotonic() + minutes * 60
        threads = [threading.Thread(target=lane.work, args=(until,), daemon=True) for lane in found]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(1.0, until + PATIENT_S - time.monotonic()))
        late = [lane.name for lane, thread in zip(found, threads, strict=True) if thread.is_alive()]
        wrong = [*(f"lane {name} did not end" for name in late), *problems(cli, found, server)]
        tell(cli, seed, minutes, found, server)
    finally:
        server.stop()
    for line in wrong:
        print(f"outage: {line}", file=sys.stderr)
    return 1 if wrong else 0


def tell(cli: str, seed: int, minutes: float, all_lanes: Sequence[Lane], server: StormyModel) -> None:
    fates: dict[str, int] = defaultdict(int)
    for call in server.calls:
        fates[call.fate] += 1
    runs = [one for lane in all_lanes for one in lane.ended]
    records = [record for lane in all_lanes for record in lane.records]
    attempts = {call.attempt for call in server.calls}
    again = sum(attempt > 1 for _, _, attempt in attempts)
    went_on = {call.attempt for call in server.calls if call.job.attempt > 1 and call.results and not call.aside}
    right = sum(code == 0 for _, code, _ in runs)
    began = sum(isinstance(record.event, DispatchStarted) for record in records)
    waits = sum(isinstance(record.event, WaitStarted) for record in records)
    all_bills = bills(records, server.calls).values()
    assumed = [bill for bill in all_bills if bill.assumed_usd]
    print(
        f"outage: {cli}, seed {seed}, {minutes:g} min: {right} of {len(runs)} runs right; {began} dispatches;"
        f" {sum(bool(spell.fault) for spell in server.spells)} outages planned, {waits} waits;"
        f" requests: {', '.join(f'{count} {fate}' for fate, count in sorted(fates.items()))};"
        f" {again} further attempts, {len(went_on)} of them in their session;"
        f" served ${sum(bill.usd for bill in all_bills):.4f} and ${sum(bill.cut_usd for bill in all_bills):.4f} in cut"
        f" streams, recorded ${sum(bill.told_usd for bill in all_bills):.4f} and"
        f" ${sum(bill.assumed_usd for bill in assumed):.2f} assumed for {len(assumed)} dispatches"
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make outage", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("cli", choices=CLIS)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="leave the repositories and their records")
    options = parser.parse_args(arguments)
    if options.keep:
        folder = Path(tempfile.mkdtemp(prefix="outage-"))
        print(f"outage: {folder}", file=sys.stderr)
        return storm(options.cli, options.minutes, options.seed, folder)
    with tempfile.TemporaryDirectory(prefix="outage-", ignore_cleanup_errors=True) as name:
        return storm(options.cli, options.minutes, options.seed, Path(name))


if __name__ == "__main__":
    os.environ.setdefault("GIT_CONFIG_GLOBAL", os.devnull)
    sys.exit(main(sys.argv[1:]))
