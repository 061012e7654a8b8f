"""Completes or undoes a killed landing in the user's checkout, and records it once."""

from __future__ import annotations

from windlass.events import RunLanded
from windlass.git import user_repo
from windlass.git.user_checkout import CheckoutMove, Settled, settle
from windlass.runs.service import Service
from windlass.store.epoch import Person
from windlass.store.port import Store


def settle_checkout(service: Service) -> Settled | None:
    """Complete or undo a killed landing. None: there was none."""
    user = user_repo.discover(service.host.cwd)
    return settle(user, lambda move: record_landing(service.store, move))


def record_landing(store: Store, move: CheckoutMove) -> None:
    """Record the landing once, also if the command that moved the branch was killed before it could."""
    if move.kind != "land":
        return
    facts = move.facts
    landed = RunLanded(move.branch, move.before, move.after, facts["tip"], facts["how"], facts["checks"])
    if landed in store.events.of_kinds(move.run, RunLanded):
        return
    store.events.add(Person(move.run), landed)
