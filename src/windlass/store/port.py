"""The store's port: everything that Windlass records. It does not know where the records are.

A store has gateways, one for each concern. `store/sqlite` implements it with SQLite. Every implementation must pass
`tests/store/test_store_port.py`.

**Epochs.** A verb that writes as a driver takes an `EpochClaim`. The store compares it with the run's epoch in the same
transaction. If another driver has taken over, it raises TakenOverError and rolls the transaction back.

**People.** These writes carry no epoch, because people make them under any driver:

- `runs.add` creates a run, which has no driver yet; `runs.take` begins a new epoch;
- `runs.request` asks for a pause, an abort or a detour; `messages.add` stores a message to an agent;
- `questions.answer`, `events.add`, `runs.set_budget` and `runs.set_options` take a `Writer`: a driver's claim, or a
  `Person` for the commands answer, tell, budget, land and for a run that continues in the background.

**Transactions.** Each write is its own transaction, or joins the one that `Store.transaction` opened. Only one thread
may use a store; any thread may use `sync` and a `Fence`.
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
"""After this time without an answer, another dispatch may probe the quota wait too."""


class RunStore(Protocol):
    """One row per run: the request, how it was started, its state and its epoch."""

    def add(self, row: RunRow) -> EpochClaim:
        """Returns the claim to epoch 0, which holds until the first driver takes the run."""

    def take(self, run: str, driver: str = "", require_lock: Callable[[], None] = lambda: None) -> EpochClaim:
        """Begins the next epoch. Claims of earlier epochs are refused from now on. `driver`: a DriverId as text.

        Drops a requested pause, which was for the last driver, and keeps every other request.
        """

    def get(self, run: str) -> RunRow:
        """Raises StoreError when there is no such run."""

    def all(self) -> list[RunRow]:
        """Newest first."""

    def set_state(self, claim: EpochClaim, state: RunState, reason: str = "", hint: str = "") -> None: ...

    def set_budget(self, writer: Writer, limit: float | None, warn: float | None) -> None: ...

    def set_options(self, writer: Writer, options: Mapping[str, Json]) -> None: ...

    def request(self, run: str, wanted: str) -> None:
        """A person's request to the run's driver: 'pause', 'abort', or a detour as JSON; '' withdraws the request."""


class TipStore(Protocol):
    """The commits that were the tip of each run."""

    def all(self, run: str) -> list[str]:
        """Oldest first; empty for a run that is older than the record of tips."""

    def add(self, claim: EpochClaim, sha: str, key: str, onto: str) -> bool:
        """Compare and swap. False when the run's tip is not `onto` ('' for no tip)."""


class StepStore(Protocol):
    """The results of keyed steps."""

    def all(self, run: str) -> list[StepRow]:
        """Oldest first."""

    def superseded(self, run: str) -> list[StepRow]:
        """Results that an adopted change or a repair replaced, oldest first."""

    def add(self, claim: EpochClaim, key: str, fingerprint: str, inputs: str, context: str, result: str) -> int:
        """Returns the step's place in the order. The last three are JSON texts."""

    def supersede(self, claim: EpochClaim, key: str, adoption: int) -> None:
        """Marks the step as not done, and keeps its result. `adoption`: 0 for a repair."""

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
    """All attempts at steps. An attempt is written before its effect."""

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
        """The agent's id of its session."""

    def note_usage(self, claim: EpochClaim, key: str, n: int, usage: Json) -> None:
        """The usage of a running attempt so far."""

    def settle_cost(self, claim: EpochClaim, key: str, n: int, usage: Json, cost_usd: float | None) -> None:
        """The cost of an ended attempt, if it becomes known later."""

    def all(self, run: str, key: str | None = None) -> list[AttemptRow]:
        """In the order of their starts."""

    def running(self, run: str) -> list[AttemptRow]:
        """Attempts that have not ended."""

    def done_since(self, run: str, epoch: int) -> list[AttemptRow]:
        """Attempts that ended with a result in this epoch or a later one."""

    def spend(self, run: str) -> Spend:
        """The cost of ended attempts. Running ones do not count, because their driver has newer figures."""


class EventStore(Protocol):
    """The log of each run. No event is ever deleted."""

    def add(self, writer: Writer, event: Event, mark: str | None = None) -> Recorded:
        """`mark`: a name under which the run records one event only."""

    def all(self, run: str, after: int = 0) -> list[Recorded]:
        """Oldest first. `after`: only events with higher numbers."""

    def pages(self, run: str, after: int = 0) -> Iterator[list[Recorded]]:
        """As `all`, in pages. The first page is small, so that a reader can show it at once."""

    def last(self, run: str, kind: type[E]) -> E | None:
        """The last event of a kind."""

    def of_kinds(self, run: str, *kinds: type[E]) -> list[E]:
        """The events of some kinds, oldest first."""

    def last_number(self, run: str) -> int:
        """The number of the run's last event; 0 when it has none."""

    def marks(self, run: str) -> set[str]: ...

    def drop_marks(self, claim: EpochClaim, marks: Iterable[str]) -> None:
        """Removes marks. Their events stay, and can be recorded once more."""

    def copy(self, claim: EpochClaim, source: str, numbers: Iterable[int]) -> None:
        """For a fork, as `StepStore.copy`. The copies have the marks and the current time."""


class QuestionStore(Protocol):
    """Questions, stored before they are asked."""

    def open(self, claim: EpochClaim, key: str, id: str, data: Json) -> bool:
        """False when the question is already stored."""

    def replace(self, claim: EpochClaim, key: str, data: Json) -> None:
        """Changes the text of a pending question."""

    def answer(self, writer: Writer, key: str, value: str, comment: str, by: str) -> bool:
        """The first answer wins. False when the question is no longer pending."""

    def find(self, run: str, key: str) -> QuestionRow | None: ...

    def all(self, run: str, *, pending: bool = False) -> list[QuestionRow]:
        """In the order they were asked."""

    def copy(self, claim: EpochClaim, source: str, keys: Iterable[str]) -> None:
        """For a fork, as `StepStore.copy`."""


class MessageStore(Protocol):
    """Messages from people to the agents of a run. Each goes to the next dispatch of a matching role, once."""

    def add(self, run: str, text: str, by: str, role: str = "") -> None:
        """`role`: the addressee; '' is any role that writes code."""

    def waiting(self, run: str, roles: Sequence[str]) -> list[str]:
        """Undelivered messages to these roles, oldest first."""

    def deliver(self, claim: EpochClaim, key: str, roles: Sequence[str]) -> None:
        """Marks the waiting messages to these roles as delivered to the attempt `key`."""


class BlobStore(Protocol):
    """Texts by content id."""

    def put(self, claim: EpochClaim, sha: str, content: str) -> None: ...

    def get(self, sha: str) -> str:
        """Raises StoreError when it is missing."""


class CheckCache(Protocol):
    """Checks that passed on a tree, for every run of the repository."""

    def put(self, claim: EpochClaim, tree: str, command: str, setup: str, result: Json) -> None: ...

    def get(self, tree: str, command: str, setup: str) -> Json:
        """None when there is no result."""


class QuotaStore(Protocol):
    """Waits for an agent's service, one for each login. They apply to all runs of the user in all repositories."""

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
        """The service refused a dispatch that began at `begun` on the monotonic clock. All users of the login wait.

        `retry_at`: the time that the service named. It counts for the first refusal. After further refusals the wait
        is at least as long as `pauses` says, and longer each time.
        """

    def probe(self, claim: EpochClaim, login: str) -> bool:
        """True for the one dispatch that may try first after the wait."""

    def release(self, claim: EpochClaim, login: str) -> None:
        """Gives the probe of this process back, so that another may try."""

    def clear(self, claim: EpochClaim, login: str, begun: float) -> None:
        """The service answered a dispatch that began at `begun`. A dispatch from before the wait does not count."""


class Fence(Protocol):
    """Guards a driver's effects outside the store: refs, leases, files. Any thread may hold it."""

    def held(self) -> AbstractContextManager[None]:
        """No other driver can take the run until the block ends, so keep it short. Raises TakenOverError.

        Contract: do not use it inside a transaction of this process, because that is a deadlock.
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
        """Nested calls join the outer transaction. If it is not `synced`, a power cut may undo it and all later ones,
        until the next synced transaction or `sync`."""

    @property
    @abstractmethod
    def in_transaction(self) -> bool: ...

    @property
    @abstractmethod
    def pending(self) -> bool:
        """A committed transaction is not on the disk yet."""

    @abstractmethod
    def sync(self) -> None:
        """Writes pending transactions to the disk, and waits for the disk."""

    @abstractmethod
    def require(self, claim: EpochClaim) -> None:
        """Raises TakenOverError when another driver took over. One may still take over right after the call."""

    @abstractmethod
    def fence(self, claim: EpochClaim) -> Fence:
        """The caller must close the fence."""

    @abstractmethod
    def data_version(self) -> int:
        """Changes when another process commits. It is cheap to poll."""

    @abstractmethod
    def close(self) -> None: ...
