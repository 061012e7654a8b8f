"""The store's port: everything that Windlass records, and nothing about where.

A store is made of gateways, one per concern. SQLite implements it in `store/sqlite`; every implementation passes
`tests/store/test_store_port.py`.

**Epochs.** A verb that writes as a driver takes an `EpochClaim`. The store compares it with the run's epoch in the same
transaction and raises TakenOverError when another driver has taken over; then nothing of the transaction is written.

**People.** These writes carry no epoch, because people make them whoever drives the run:

- `runs.add` creates a run, which has no driver yet; `runs.take` begins a new epoch;
- `runs.request` asks for a pause or an abort; `messages.add` tells the run something;
- `questions.answer`, `events.add`, `runs.set_budget` and `runs.set_options` take a `Writer`: a driver's claim, or a
  `Person` for the commands answer, tell, budget, land and for a run that is left to the background.

**Transactions.** Each write is a transaction of its own, or joins the one that `Store.transaction` opened. A store is
used by one thread; `sync` and a `Fence` may be used by any.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from windlass.events import Event, Recorded
from windlass.model import Json, RunState
from windlass.store.epoch import EpochClaim, Writer
from windlass.store.rows import AdoptionRow, AttemptRow, Intent, QuestionRow, QuotaWait, RunRow, Spend, StepRow

E = TypeVar("E", bound=Event)
PROBE_S = 120.0
"""A probe of a quota wait that got no answer for so long does not keep others from trying."""


class RunStore(Protocol):
    """One row per run: the request, how it was started, its state and its epoch."""

    def add(self, row: RunRow) -> EpochClaim:
        """Returns the claim to epoch 0, which holds until the first driver takes the run."""

    def take(self, run: str, driver: str = "", require_lock: Callable[[], None] = lambda: None) -> EpochClaim:
        """Begins the next epoch: claims to earlier ones are refused from now on. `driver`: a DriverId as text.

        Drops a requested pause, which was meant for the driver before, and keeps a requested abort.
        """

    def get(self, run: str) -> RunRow:
        """Raises StoreError when there is no such run."""

    def all(self) -> list[RunRow]:
        """Newest first."""

    def set_state(self, claim: EpochClaim, state: RunState, reason: str = "", hint: str = "") -> None: ...

    def set_budget(self, writer: Writer, limit: float | None, warn: float | None) -> None: ...

    def set_options(self, writer: Writer, options: Mapping[str, Json]) -> None: ...

    def request(self, run: str, wanted: str) -> None:
        """A person asks the run's driver: 'pause' or 'abort'; '' takes the request back."""


class TipStore(Protocol):
    """The commits that the engine put on each run's tip."""

    def all(self, run: str) -> list[str]:
        """Oldest first; empty for a run that is older than the record of tips."""

    def add(self, claim: EpochClaim, sha: str, key: str, onto: str) -> bool:
        """Compare and swap. False when the run's tip is not `onto` ('' when it has none)."""


class StepStore(Protocol):
    """The results of keyed steps."""

    def all(self, run: str) -> list[StepRow]:
        """Oldest first."""

    def superseded(self, run: str) -> list[StepRow]:
        """Results that an adopted change or a repair replaced, oldest first."""

    def add(self, claim: EpochClaim, key: str, fingerprint: str, inputs: str, context: str, result: str) -> int:
        """Returns the step's place in the order. The last three are JSON texts."""

    def supersede(self, claim: EpochClaim, key: str, adoption: int) -> None:
        """The step counts as not done; its result is kept. `adoption`: 0 for a repair."""

    def copy(self, claim: EpochClaim, source: str, keys: Iterable[str]) -> None:
        """Copies steps of run `source` into the claim's run, which is a fork of it."""


class AdoptionStore(Protocol):
    """Edited artifacts that a person adopted."""

    def all(self, run: str) -> list[AdoptionRow]:
        """Oldest first."""

    def add(self, claim: EpochClaim, row: AdoptionRow) -> None:
        """`row.id` is ignored."""

    def copy(self, claim: EpochClaim, source: str, ids: Iterable[int]) -> None:
        """For a fork, as `StepStore.copy`."""


class AttemptStore(Protocol):
    """Every try at a step, written before its effect."""

    def begin(self, claim: EpochClaim, intent: Intent) -> None: ...

    def finish(
        self,
        claim: EpochClaim,
        key: str,
        n: int,
        *,
        state: str,
        error: str = "",
        reason: str = "",
        usage: Json = None,
        cost_usd: float | None = None,
    ) -> None:
        """Raises LostAttemptError unless the attempt runs and began in the claim's epoch."""

    def interrupt(self, claim: EpochClaim, key: str, n: int, usage: Json = None, cost_usd: float | None = None) -> bool:
        """Ends an attempt of an earlier driver. False when it had ended already."""

    def note_session(self, claim: EpochClaim, key: str, n: int, session: str) -> None:
        """The agent's own name for its conversation."""

    def note_usage(self, claim: EpochClaim, key: str, n: int, usage: Json) -> None:
        """What a running attempt has used so far."""

    def settle_cost(self, claim: EpochClaim, key: str, n: int, usage: Json, cost_usd: float | None) -> None:
        """What an ended attempt cost, found out later."""

    def all(self, run: str, key: str | None = None) -> list[AttemptRow]:
        """In the order they began."""

    def running(self, run: str) -> list[AttemptRow]:
        """Attempts that began and have not ended."""

    def done_since(self, run: str, epoch: int) -> list[AttemptRow]:
        """Attempts that ended with a result in this epoch or a later one."""

    def spend(self, run: str) -> Spend:
        """What ended attempts cost. Running ones are not counted: their driver knows more."""


class EventStore(Protocol):
    """The log of each run. No event is ever deleted."""

    def add(self, writer: Writer, event: Event, mark: str | None = None) -> Recorded:
        """`mark`: a name under which the run records one event only."""

    def all(self, run: str, after: int = 0) -> list[Recorded]:
        """Oldest first. `after`: the number of the last event that is not wanted."""

    def pages(self, run: str, after: int = 0) -> Iterator[list[Recorded]]:
        """The same in pages. The first one is small, so that a reader can show something at once."""

    def last(self, run: str, kind: type[E]) -> E | None:
        """The last event of a kind."""

    def of_kinds(self, run: str, *kinds: type[E]) -> list[E]:
        """The events of some kinds, oldest first."""

    def last_number(self, run: str) -> int:
        """Of the run's last event; 0 when it has none."""

    def marks(self, run: str) -> set[str]: ...

    def drop_marks(self, claim: EpochClaim, marks: Iterable[str]) -> None:
        """The events stay; the same may be recorded once more."""

    def copy(self, claim: EpochClaim, source: str, numbers: Iterable[int]) -> None:
        """For a fork, as `StepStore.copy`: with their marks, dated now."""


class QuestionStore(Protocol):
    """Questions, stored before they are asked."""

    def open(self, claim: EpochClaim, key: str, id: str, data: Json) -> bool:
        """False when it was stored before."""

    def replace(self, claim: EpochClaim, key: str, data: Json) -> None:
        """Changes the text of a pending question."""

    def answer(self, writer: Writer, key: str, value: str, comment: str, by: str) -> bool:
        """The first answer wins: False when the question is not pending any more."""

    def find(self, run: str, key: str) -> QuestionRow | None: ...

    def all(self, run: str, *, pending: bool = False) -> list[QuestionRow]:
        """In the order they were asked."""

    def copy(self, claim: EpochClaim, source: str, keys: Iterable[str]) -> None:
        """For a fork, as `StepStore.copy`."""


class MessageStore(Protocol):
    """What people told a run. The next dispatch that fits is given it, once."""

    def add(self, run: str, text: str, by: str, role: str = "") -> None:
        """`role`: the addressee; '' is any role that writes code."""

    def waiting(self, run: str, roles: Sequence[str]) -> list[str]:
        """Messages to one of these roles that no dispatch has been given yet, oldest first."""

    def deliver(self, claim: EpochClaim, key: str, roles: Sequence[str]) -> None:
        """The attempt `key` is given all that waits for these roles."""


class BlobStore(Protocol):
    """Texts by their content's id."""

    def put(self, claim: EpochClaim, sha: str, content: str) -> None: ...

    def get(self, sha: str) -> str:
        """Raises StoreError when it is missing."""


class CheckCache(Protocol):
    """Checks that passed on a tree, for every run of the repository."""

    def put(self, claim: EpochClaim, tree: str, command: str, setup: str, result: Json) -> None: ...

    def get(self, tree: str, command: str, setup: str) -> Json:
        """None when it is not known."""


class QuotaStore(Protocol):
    """Waits for an agent's service, one per login, obeyed by every run of the user in every repository."""

    def find(self, login: str) -> QuotaWait | None:
        """None when the login may be used."""

    def hold(
        self,
        claim: EpochClaim,
        login: str,
        reason: str,
        pauses: Sequence[float],
        *,
        retry_at: float | None = None,
        begun: float = 0.0,
    ) -> QuotaWait:
        """The service refused a dispatch that began at `begun` on the monotonic clock. Everyone with the login waits.

        `retry_at`: when the service said to come back. It is believed once; a dispatch that is refused again waits
        longer each time, by `pauses`.
        """

    def probe(self, claim: EpochClaim, login: str) -> bool:
        """True for the one dispatch that may try first, when the wait is over."""

    def release(self, claim: EpochClaim, login: str) -> None:
        """This process gives its probe back: another may try."""

    def clear(self, claim: EpochClaim, login: str, begun: float) -> None:
        """The service answered a dispatch that began at `begun`. One that began before the wait proves nothing."""


class Fence(Protocol):
    """Guards a driver's effects outside the store: refs, leases, files. Any thread may hold it."""

    def held(self) -> AbstractContextManager[None]:
        """No other driver can take the run until the block ends; hold it for moments only. Raises TakenOverError.

        Contract: not inside a transaction of this process, which would wait for itself.
        """

    def close(self) -> None: ...


class Store(ABC):
    clock: Callable[[], float]
    schema: int
    """The version of the database's schema."""
    runs: RunStore
    tips: TipStore
    steps: StepStore
    adoptions: AdoptionStore
    attempts: AttemptStore
    events: EventStore
    questions: QuestionStore
    messages: MessageStore
    blobs: BlobStore
    checks: CheckCache
    quota: QuotaStore

    @abstractmethod
    def transaction(self, *, synced: bool = True) -> AbstractContextManager[object, None]:
        """Nested calls join the outer transaction. Not `synced`: until the next transaction that is, or `sync`, a power
        cut may undo it, together with everything after it; nothing else does."""

    @property
    @abstractmethod
    def in_transaction(self) -> bool: ...

    @property
    @abstractmethod
    def pending(self) -> bool:
        """Something was committed that is not on the disk yet."""

    @abstractmethod
    def sync(self) -> None:
        """Brings what is pending to the disk; takes as long as the disk does."""

    @abstractmethod
    def require(self, claim: EpochClaim) -> None:
        """Raises TakenOverError when another driver took over. Another one may do so right afterwards."""

    @abstractmethod
    def fence(self, claim: EpochClaim) -> Fence:
        """The caller closes it."""

    @abstractmethod
    def data_version(self) -> int:
        """Changes when another process has committed something: a cheap wake-up."""

    @abstractmethod
    def close(self) -> None: ...
