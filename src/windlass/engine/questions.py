"""Questions: stored before they are asked. The first valid answer counts, from any source."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from windlass.answers import AnswerPolicy, Asker, validate
from windlass.engine.journal import Journal
from windlass.errors import Exit, StoppedError, UserError, WindlassError
from windlass.events import QuestionAnswered, QuestionAsked
from windlass.model import Answer, Json, Key, Question, question_json, question_of
from windlass.store.rows import QuestionRow

BUSY_S = 0.02
IDLE_S = 0.06
BUSY_FOR_S = 2.0


class WaitingError(WindlassError):
    """A question is pending and this driver does not wait for it."""

    exit = Exit.WAITING


class PausedError(WindlassError):
    """The run is paused; nothing is lost and nothing is wrong."""

    exit = Exit.PAUSED


class Questions:
    def __init__(self, journal: Journal, policy: AnswerPolicy, asker: Asker | None, wanted: Callable[[], None]) -> None:
        self._journal = journal
        self._store = journal.store
        self._run = journal.run
        self._policy = policy
        self._asker = asker
        self._wanted = wanted
        self._lock = asyncio.Lock()

    async def ask(self, key: Key, question: Question) -> Answer:
        name = f"{key}!{question.id}"
        row = self._store.questions.find(self._run, name)
        if row is not None and row.state == "answered":
            return Answer(row.answer, row.comment, row.by)
        self._store_question(name, question, row)
        # One prompt at a time, in the order the questions arose.
        async with self._lock:
            return self._automatic(name, question) or await self._from_person(name, question)

    def recorded_answer(self, key: Key, question: Question) -> Answer | None:
        """The recorded answer to exactly this question; None when there is none."""
        row = self._store.questions.find(self._run, f"{key}!{question.id}")
        if row is None or row.state != "answered" or question_of(row.data) != replace(question, objection=""):
            return None
        return Answer(row.answer, row.comment, row.by)

    def _store_question(self, name: str, question: Question, row: QuestionRow | None) -> None:
        options: list[Json] = [{"key": o.key, "label": o.label, "about": o.about} for o in question.options]
        event = QuestionAsked(
            name, question.id, question.text, options, question.default, question.detail, question.task, question.title
        )
        if row is not None:
            if question_of(row.data) != replace(question, objection=""):
                self._store.questions.replace(self._journal.claim, name, question_json(question))
            # An earlier driver asked it: show it again, record it once.
            self._journal.events.show(event)
            return
        with self._journal.writing(f"{name}.ask", event):
            self._store.questions.open(self._journal.claim, name, question.id, question_json(question))

    def _automatic(self, name: str, question: Question) -> Answer | None:
        found = self._prepared_answer(name, question)
        if found is None:
            return None
        value, by = found
        checked = validate(question, value)
        if isinstance(checked, str):
            raise UserError(
                f"the answer given for '{question.id}' is not valid: {checked}", hint=f"asked: {question.text}"
            )
        if checked.value in question.back:
            raise UserError(
                f"'{question.id}={value}' leads back; an answer given beforehand may not build a loop",
                hint="answer it by hand: windlass answer",
            )
        return self._record(name, question, Answer(checked.value, checked.comment, by))

    def _prepared_answer(self, name: str, question: Question) -> tuple[str, str] | None:
        given = self._policy.answers
        for id in (name, question.id):
            if f"{id}*" in given:
                return given[f"{id}*"], "--answer"
            if id in given and not self._is_used(id):
                return given[id], "--answer"
        may = not question.mandatory or question.id in self._policy.yes_to
        if not (question.yes and (self._policy.yes or question.id in self._policy.yes_to) and may):
            return None
        if not question.objection:
            return question.yes, "--yes"
        if self._asker is None and not self._policy.wait:
            choices = "|".join(option.key for option in question.options)
            raise StoppedError(
                f"--yes does not answer '{question.id}' while a review's finding is open: {question.objection}",
                hint=f"answer it yourself: windlass answer {self._run} {question.id} {choices}",
            )
        return None

    def _is_used(self, id: str) -> bool:
        rows = self._store.questions.all(self._run)
        return any(row.state == "answered" and row.by == "--answer" and id in (row.id, row.key) for row in rows)

    async def _from_person(self, name: str, question: Question) -> Answer:
        if self._asker is None and not self._policy.wait:
            self._other_answer(name)
            raise WaitingError(question.text, hint="windlass answer VALUE")
        watcher = asyncio.create_task(self._watch(name))
        prompt = asyncio.create_task(self._prompt(name, question)) if self._asker else None
        tasks = [watcher, prompt] if prompt else [watcher]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            # An answer from another process counts first.
            return next(task for task in tasks if task in done).result()
        finally:
            running = [task for task in tasks if not task.done()]
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _prompt(self, name: str, question: Question) -> Answer:
        assert self._asker is not None
        problem = ""
        while True:
            reply = await self._asker(name, question, problem)
            if reply is None:
                raise PausedError("the question stays open", hint="windlass answer VALUE; windlass resume asks again")
            checked = validate(question, reply.value, reply.comment)
            if isinstance(checked, str):
                problem = checked
                continue
            return self._record(name, question, Answer(checked.value, checked.comment, reply.by or "terminal"))

    async def _watch(self, name: str) -> Answer:
        """Wait for an answer from another process: `Store.data_version` changes with every commit of another
        process."""
        version, quiet = self._store.data_version(), 0.0
        while True:
            self._wanted()
            answer = self._other_answer(name)
            if answer:
                return answer
            pause = BUSY_S if quiet < BUSY_FOR_S else IDLE_S
            await asyncio.sleep(pause)
            now, quiet = self._store.data_version(), quiet + pause
            if now != version:
                version, quiet = now, 0.0

    def _other_answer(self, name: str) -> Answer | None:
        row = self._store.questions.find(self._run, name)
        if row is None or row.state != "answered":
            return None
        self._journal.events.catch_up()
        return Answer(row.answer, row.comment, row.by)

    def _record(self, name: str, question: Question, answer: Answer) -> Answer:
        """The loser of a race takes the winner's answer."""
        with self._journal.writing(f"{name}.answer"):
            if self._store.questions.answer(self._journal.claim, name, answer.value, answer.comment, answer.by):
                self._journal.events.add(QuestionAnswered(name, question.id, answer.value, answer.by, answer.comment))
                return answer
        other = self._other_answer(name)
        assert other is not None
        return other
