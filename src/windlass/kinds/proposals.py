"""The items that an agent proposes, and the questions about them: questions, approaches, design sections."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from windlass.model import Answer, Choice, Json, Question, is_id

OTHER = "other"
MOST = 20
"""The greatest number of items in any contract."""
APPROACH_TEXTS = ("title", "summary", "tradeoffs")
YES, REVISE = "yes", "revise"
DECIDE = "No preference: take what fits best, and say so in the design."


class ProposedQuestion(Struct, frozen=True):
    """A question that an agent asks the person."""

    id: str
    text: str
    options: tuple[str, ...] = ()
    placeholder: str = ""

    def to_json(self) -> dict[str, Json]:
        kind = "choice" if self.options else "input"
        return {"id": self.id, "text": self.text, "type": kind, "options": list(self.options)}

    def answer_text(self, answer: Answer) -> str:
        """The answer as text: an option by its label."""
        return next((c.label for c in option_keys(self.options) if c.key == answer.value), answer.value)


class Approach(Struct, frozen=True):
    id: str
    title: str
    summary: str = ""
    tradeoffs: str = ""
    tasks: float = 0

    def to_json(self) -> dict[str, Json]:
        words: dict[str, Json] = {name: getattr(self, name) for name in ("id", *APPROACH_TEXTS)}
        return {**words, "taskEstimate": self.tasks}

    @property
    def size(self) -> str:
        return f"about {self.tasks:g} task{'' if self.tasks == 1 else 's'}" if self.tasks else ""


class Approaches(Struct, frozen=True):
    items: tuple[Approach, ...]
    recommendation: str
    reasoning: str = ""

    def choice(self, answer: Answer) -> Approach | None:
        return next((a for a in self.items if a.id == answer.value), None)


class Section(Struct, frozen=True):
    id: str
    title: str
    content: str

    @property
    def text(self) -> str:
        return f"## {self.title}\n\n{_demote_headings(self.content)}"

    def to_json(self) -> dict[str, Json]:
        return {"id": self.id, "title": self.title, "content": self.content}


# -- from the contract's block


def entries(data: Json, name: str) -> list[dict[str, Json]]:
    items = data.get(name) if isinstance(data, dict) else None
    return [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []


def queries(data: Json) -> tuple[ProposedQuestion, ...]:
    found = []
    for number, one in enumerate(entries(data, "questions"), 1):
        items = one.get("options") if one.get("type") == "choice" else None
        options = tuple(str(o) for o in items) if isinstance(items, list) else ()
        text, placeholder = str(one["text"]), str(one.get("placeholder") or "")
        found.append(ProposedQuestion(f"question-{number}", text, options, placeholder))
    return tuple(found)


def approaches(data: Json) -> Approaches:
    """Answers and command lines use these ids. An id that they cannot use is replaced by its number."""
    assert isinstance(data, dict)
    ids: dict[str, str] = {}
    items = entries(data, "approaches")
    for number, one in enumerate(items, 1):
        id = str(one["id"])
        usable = is_id(id) and not id.isdecimal() and id.casefold() != OTHER
        ids[id] = id if usable else f"approach-{number}"
    parsed = []
    for one in items:
        title, summary, tradeoffs = (" ".join(str(one.get(name) or "").split()) for name in APPROACH_TEXTS)
        size = one.get("taskEstimate")
        tasks = float(size) if isinstance(size, int | float) else 0
        parsed.append(Approach(ids[str(one["id"])], title, summary, tradeoffs, tasks))
    return Approaches(tuple(parsed), ids[str(data["recommendation"])], str(data.get("reasoning") or ""))


def sections(data: Json) -> tuple[Section, ...]:
    return tuple(
        Section(f"section-{n}", " ".join(str(one["title"]).split()), str(one["content"]).strip())
        for n, one in enumerate(entries(data, "sections"), 1)
    )


def item_list(item: str, data: Json) -> list[Json]:
    """The items with the ids that the engine uses from here on."""
    match item:
        case "questions":
            return [query.to_json() for query in queries(data)]
        case "approaches":
            return [approach.to_json() for approach in approaches(data).items]
        case _:
            return [section.to_json() for section in sections(data)]


def replace_section(section: Section, data: Json) -> Section:
    """The section of the answer under the id of the old one, whatever its id is."""
    [new] = sections(data)
    return replace(new, id=section.id)


# -- the questions


def ids(item: str) -> tuple[str, ...]:
    """The ids of all questions that a person can be asked about such items."""
    numbers = range(1, MOST + 1)
    match item:
        case "questions":
            return tuple(f"question-{n}" for n in numbers)
        case "approaches":
            return ("approach", "own-approach")
        case _:
            return tuple(f"section-{n}" for n in numbers)


def item_question(query: ProposedQuestion, number: int, total: int) -> Question:
    choices = option_keys(query.options)
    return Question(
        id=query.id,
        title=f"Question {number} of {total}",
        text=query.text,
        options=choices,
        type="choice" if choices else "input",
        detail=query.placeholder,
        # An agent puts its preferred option first; free text has no such option.
        yes=choices[0].key if choices else DECIDE,
    )


def option_keys(labels: Sequence[str]) -> tuple[Choice, ...]:
    """A readable key for each option. A bare number would mean an option's position in the list."""
    slugs = [re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-")[:40].strip("-") for label in labels]
    plain = [slug and not slug.isdecimal() and slugs.count(slug) == 1 for slug in slugs]
    keys = [slug if good else f"option-{n}" for n, (slug, good) in enumerate(zip(slugs, plain, strict=True), 1)]
    return tuple(Choice(key, label) for key, label in zip(keys, labels, strict=True))


def approach_question(approaches: Approaches, *, other: bool) -> Question:
    choices = []
    for approach in approaches.items:
        # The star and the size come first: a narrow screen cuts the end, which is the summary.
        star = "★ recommended" if approach.id == approaches.recommendation else ""
        facts = ", ".join(filter(None, (star, approach.size)))
        choices.append(Choice(approach.id, approach.title, ". ".join(filter(None, (facts, approach.summary)))))
    # The reason of the recommendation, and what each approach costs.
    best = next(a.title for a in approaches.items if a.id == approaches.recommendation)
    why = f": {approaches.reasoning}" if approaches.reasoning else ""
    costs = "\n".join(f"- **{a.title}**: {a.tradeoffs}" for a in approaches.items if a.tradeoffs)
    tradeoffs = f"\n\nTrade-offs:\n\n{costs}" if costs else ""
    own = (Choice(OTHER, "Other", "describe an approach of your own"),) if other else ()
    return Question(
        id="approach",
        title="Choose Approach",
        text="Which approach shall it be?",
        options=(*choices, *own),
        detail=f"★ Recommended is {best}{why}{tradeoffs}",
        yes=approaches.recommendation,
    )


def own_approach_question() -> Question:
    return Question(id="own-approach", title="Your approach", text="Describe the approach you want.", type="input")


def section_question(section: Section, *, revise: bool) -> Question:
    back = (Choice(REVISE, "No, revise", "say what to change"),) if revise else ()
    return Question(
        id=section.id,
        title=f"Design Section: {section.title}",
        text="Does this section look right?",
        options=(Choice(YES, "Yes"), *back),
        detail=section.text,
        aliases={"no": REVISE} if revise else {},
        comment=f"required-unless-{YES}",
        yes=YES,
        back=(REVISE,) if revise else (),
    )


# -- the artifacts


def answers_text(answers: Iterable[tuple[ProposedQuestion, str]]) -> str:
    return _json([{"id": query.id, "question": query.text, "answer": answer} for query, answer in answers])


def approach_text(choice: Approach | None, words: str) -> str:
    if choice is None:
        return _json({"id": OTHER, "title": "The user's own approach", "summary": words})
    return _json({"id": choice.id, "title": choice.title, "summary": choice.summary, "tradeoffs": choice.tradeoffs})


def design_text(request: str, approved: Iterable[Section]) -> str:
    title = " ".join(request.split())
    head = title if len(title) <= 100 else title[:99] + "…"
    return "\n\n".join([f"# Design: {head}", *(section.text for section in approved)]) + "\n"


def _json(value: Json) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _demote_headings(content: str) -> str:
    """Moves headings below the section's heading: the plan is compared with second-level headings."""
    lines, fenced = [], False
    for line in content.split("\n"):
        fenced = fenced != line.lstrip().startswith(("```", "~~~"))
        heading = re.match(r"#{1,6}(?=\s)", line) if not fenced else None
        lines.append("#" * min(6, len(heading[0]) + 2) + line[heading.end() :] if heading else line)
    return "\n".join(lines)
