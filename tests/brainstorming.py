"""What the agents of a brainstorm say in tests, and a run that goes through it."""

from __future__ import annotations

from typing import Any

from front import LEAN, NO_EXTRAS, PASS, Done, Front, Rule, builder, passing, plan_of, scout

REQUEST = "Add user authentication"
TITLES = ("Architecture", "Data flow", "Testing")
QUESTIONS: Rule = {
    "type": "questions",
    "questions": [
        {"id": "q1", "text": "Which provider?", "type": "choice", "options": ["OAuth 2.0 (Google)", "SAML", "Custom"]},
        {"id": "q2", "text": "What is the target?", "type": "input", "placeholder": "e.g., <100ms p99"},
        {"id": "q3", "text": "Where do sessions live?", "type": "choice", "options": ["JWT (stateless)", "Server"]},
    ],
}
APPROACHES: Rule = {
    "type": "approaches",
    "approaches": [
        {"id": "a1", "title": "Middleware", "summary": "Clean.", "tradeoffs": "Boilerplate.", "taskEstimate": 2},
        {"id": "a2", "title": "Hosted", "summary": "Fast.", "tradeoffs": "Lock-in.", "taskEstimate": 1},
    ],
    "recommendation": "a1",
    "reasoning": "It fits what is there.",
}
DESIGN: Rule = {
    "type": "design",
    "sections": [{"id": f"s{n}", "title": title, "content": f"{title} first."} for n, title in enumerate(TITLES, 1)],
}
REVISED: Rule = {"type": "design", "sections": [{"id": "s2", "title": "Data flow", "content": "Data flow, revised."}]}
COVERAGE = f"Design coverage: {', '.join(TITLES)}"
ALL_YES = ("--answer", "question-2=fast", "--yes")


def says(purpose: str, block: Rule, **more: Any) -> Rule:
    return {"when": {"role": "brainstormer", "purpose": purpose}, "say": "Here.", "json": block, **more}


def plan(*titles: str, coverage: str = COVERAGE) -> str:
    tasks = [{"title": title, "description": f"Do {title}."} for title in titles]
    return plan_of(tasks).replace("# Plan\n", f"# Plan\n\n{coverage}\n")


def planner(*titles: str, coverage: str = COVERAGE, **more: Any) -> Rule:
    files = {"{plan_path}": plan(*titles, coverage=coverage)}
    return {"when": {"role": "planner"}, "files": files, "say": "Written.", **more}


def brainstorm(*titles: str) -> list[Rule]:
    """A good run; put what goes wrong before it."""
    return [
        scout(say="A small program in src/app.py and src/util.py."),
        says("questions", QUESTIONS),
        says("approaches", APPROACHES),
        says("sections", DESIGN),
        says("revise-section", REVISED),
        planner(*(titles or ("Users", "Login"))),
        builder(),
        passing(),
    ]


class Brainstorm(Front):
    """A run of the brainstorm flow, question by question."""

    def begin(self, *rules: Rule, argv: tuple[str, ...] = (), titles: tuple[str, ...] = ()) -> Done:
        return self.start([*rules, *brainstorm(*titles)], "--flow", "brainstorm", *argv, request=REQUEST)

    def say_yes(self, *answers: str) -> Done:
        """Answer one question after the other."""
        for answer in answers:
            value, _, comment = answer.partition(" | ")
            done = self("answer", value, *(("--comment", comment) if comment else ()))
        return done

    @property
    def page_name(self) -> str:
        row = self.service.run()
        return f"docs/plans/{row.facts.date}-{row.facts.slug}-progress.md"

    @property
    def page(self) -> str:
        return (self.folder / "files" / self.page_name).read_text(encoding="utf-8")

    @property
    def open(self) -> str:
        """The key of the one question that waits."""
        [key] = self.view.questions
        return key


__all__ = ["LEAN", "NO_EXTRAS", "PASS", "Brainstorm", "brainstorm", "planner", "says"]
