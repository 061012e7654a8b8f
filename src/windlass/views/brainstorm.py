"""The progress of a brainstorm: the proposed items, the answers to them, and their part of the state file."""

from __future__ import annotations

from windlass.events import ItemsProposed
from windlass.model import Json
from windlass.views.state import Proposed, View, phase_of

STEPS = ("scout", "questions", "approaches", "design")
OTHER = "other"


def propose(view: View, event: ItemsProposed) -> None:
    """Store proposed items. A revision has one item: it replaces the item with the same id."""
    new = tuple(one for one in event.items if isinstance(one, dict))
    before = view.proposed.get(event.item)
    by_id = {one.get("id"): one for one in new}
    ids = {one.get("id") for one in before.items} if before else set()
    if before and len(new) == 1 and len(ids) > 1 and by_id.keys() <= ids:
        items = tuple(by_id.get(one.get("id"), one) for one in before.items)
        view.proposed[event.item] = before._replace(items=items)
    else:
        place, seen = phase_of(event.key), len(view.answers)
        why = (event.recommendation, event.reasoning)
        view.proposed[event.item] = Proposed(event.item, place, new, *why, seen)


def brainstorm_state(view: View, scout: str) -> dict[str, Json]:
    answers, approvals = view.settled_answers("questions"), view.settled_answers("sections")
    words = {answer.id: answer.label or answer.answer for answer in answers}
    approved = {answer.id for answer in approvals}
    chosen, own = (view.setting(id) or None for id in ("approach", "own-approach"))
    proposed = view.proposed
    questions: list[Json] | None = None
    if "questions" in proposed:
        questions = [{**one, "answer": words.get(str(one.get("id")))} for one in proposed["questions"].items]
    sections: list[Json] | None = None
    if "sections" in proposed:
        sections = [{**one, "approved": one.get("id") in approved} for one in proposed["sections"].items]
    return {
        "step": brainstorm_step(view),
        "scoutOutput": scout or None,
        "questions": questions,
        "currentQuestionIndex": len(answers),
        "approaches": [*proposed["approaches"].items] if "approaches" in proposed else None,
        "recommendation": proposed["approaches"].recommendation if "approaches" in proposed else None,
        "chosenApproach": chosen if chosen != OTHER else None,
        "customApproach": own if chosen == OTHER else None,
        "designSections": sections,
        "currentSectionIndex": len(approvals),
    }


def brainstorm_step(view: View) -> str:
    """The current step, or `done` after the last one."""
    here = view.phase.id if view.phase else STEPS[0]
    designed = STEPS[-1] in view.outcomes and view.outcomes[STEPS[-1]].outcome == "ok"
    return here if here in STEPS and not designed else "done"
