"""Questions: what counts as an answer, who may give it, and which of two is taken."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stores import Clock, journal, stored
from windlass.answers import AnswerPolicy, Asker, validate
from windlass.engine.questions import PausedError, Questions, WaitingError
from windlass.errors import UserError
from windlass.events import QuestionAnswered, QuestionAsked
from windlass.model import Answer, Choice, Key, Question
from windlass.runs.answer import RunQuestions
from windlass.store import epoch
from windlass.store.port import Store
from windlass.store.sqlite.store import SqliteStore

KEY = Key.parse("plan-approval")
APPROVE = Question(
    "approve",
    "Approve?",
    (Choice("approve", "Approve it"), Choice("revise", "Revise")),
    yes="approve",
    back=("revise",),
)
SIZE = Question("size", "How many?", type="input", default="3", check="int")
CONFIRM = Question("sure", "Sure?", (Choice("yes", "Yes"), Choice("no", "No")), type="confirm")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with stored(tmp_path) as opened:
        yield opened


def _broker(store: Store, policy: AnswerPolicy | None = None, asker: Asker | None = None) -> Questions:
    return Questions(journal(store), policy or AnswerPolicy(), asker, lambda: None)


def _ask(broker: Questions, question: Question = APPROVE, key: Key = KEY) -> Answer:
    return asyncio.run(broker.ask(key, question))


class Person:
    """Says these one after the other."""

    def __init__(self, *words: str | None) -> None:
        self.words = list(words)
        self.problems: list[str] = []

    async def __call__(self, key: str, question: Question, problem: str) -> Answer | None:
        self.problems.append(problem)
        said = self.words.pop(0)
        return None if said is None else Answer(said, by="terminal")


# -- what counts


@pytest.mark.req("S0-81")
@pytest.mark.parametrize("said", ["approve", "1", "Approve it", "APPROVE", " approve "])
def test_a_choice_is_answered_by_key_number_or_label(said: str) -> None:
    assert validate(APPROVE, said) == Answer("approve")


@pytest.mark.req("S0-82")
def test_an_empty_answer_takes_the_default_where_there_is_one() -> None:
    assert validate(SIZE, "") == Answer("3")
    assert validate(APPROVE, " ") == "it is empty"


@pytest.mark.req("S0-83")
@pytest.mark.parametrize("said", ["y", "yep", "ok", "maybe", "0", "3", "-1", "1.0", "yes no"])
def test_a_confirmation_takes_yes_or_no_only(said: str) -> None:
    assert isinstance(validate(CONFIRM, said), str)


@pytest.mark.parametrize("said", ["0", "-3", "three", "3.5", "1e3", "99999999999", "²", "٣"])
def test_a_number_is_a_whole_one_from_1(said: str) -> None:
    assert isinstance(validate(SIZE, said), str)


@given(said=st.text(max_size=30))
def test_no_text_approves_unless_it_names_the_option(said: str) -> None:
    answer = validate(APPROVE, said)
    if answer == Answer("approve"):
        assert said.strip().casefold() in ("approve", "approve it", "1", "01", "001", "0001")


def test_an_answer_that_needs_a_comment_is_refused_without_one() -> None:
    strict = Question("q", "?", (Choice("ok", "OK"), Choice("change", "Change")), comment="required-unless-ok")
    assert validate(strict, "ok") == Answer("ok")
    assert isinstance(validate(strict, "change"), str)
    assert validate(strict, "change", " do it ") == Answer("change", "do it")


# -- who may give it


@pytest.mark.req("S0-84")
def test_a_question_is_on_record_before_anybody_is_asked(store: Store) -> None:
    with pytest.raises(WaitingError) as waiting:
        _ask(_broker(store))
    assert "windlass answer" in waiting.value.hint
    assert [row.state for row in store.questions.all("r1")] == ["pending"]
    assert [r.event.key for r in store.events.all("r1") if isinstance(r.event, QuestionAsked)] == [
        "plan-approval!approve"
    ]


def test_a_question_that_was_answered_is_not_asked_again(store: Store) -> None:
    assert _ask(_broker(store, asker=Person("approve"))) == Answer("approve", by="terminal")
    assert _ask(_broker(store)) == Answer("approve", by="terminal")
    assert len([r for r in store.events.all("r1") if isinstance(r.event, QuestionAnswered)]) == 1


def test_another_visit_is_another_question(store: Store) -> None:
    _ask(_broker(store, asker=Person("approve")))
    with pytest.raises(WaitingError):
        _ask(_broker(store), key=Key.parse("plan-approval+2"))


@pytest.mark.req("S0-85")
def test_a_person_is_told_what_is_wrong_and_asked_again(store: Store) -> None:
    person = Person("perhaps", "approve")
    assert _ask(_broker(store, asker=person)).value == "approve"
    assert person.problems == ["", "one of 1) approve, 2) revise is expected"]


def test_a_closed_prompt_pauses_and_the_question_stays(store: Store) -> None:
    with pytest.raises(PausedError):
        _ask(_broker(store, asker=Person(None)))
    assert [row.state for row in store.questions.all("r1")] == ["pending"]


def test_yes_answers_what_declares_it_and_nothing_mandatory(store: Store) -> None:
    assert _ask(_broker(store, AnswerPolicy(yes=True))) == Answer("approve", by="--yes")
    gate = Question("gate", "?", APPROVE.options, yes="approve", mandatory=True)
    with pytest.raises(WaitingError):
        _ask(_broker(store, AnswerPolicy(yes=True)), gate)
    named = AnswerPolicy(yes_to=frozenset({"gate"}))
    assert _ask(_broker(store, named), gate).value == "approve"
    with pytest.raises(WaitingError):
        _ask(_broker(store, AnswerPolicy(yes=True)), Question("free", "?", APPROVE.options))


def test_an_answer_beforehand_counts_once_and_with_a_star_always(store: Store) -> None:
    once, always = AnswerPolicy({"approve": "1"}), AnswerPolicy({"approve*": "approve"})
    assert _ask(_broker(store, once)).by == "--answer"
    with pytest.raises(WaitingError):
        _ask(_broker(store, once), key=Key.parse("plan-approval+2"))
    assert _ask(_broker(store, always), key=Key.parse("plan-approval+2")).value == "approve"
    assert _ask(_broker(store, always), key=Key.parse("plan-approval+3")).value == "approve"


@pytest.mark.parametrize("given", ["revise", "2", "Revise"])
def test_an_answer_beforehand_never_leads_back(given: str, store: Store) -> None:
    with pytest.raises(UserError, match="leads back"):
        _ask(_broker(store, AnswerPolicy({"approve*": given})))
    assert [row.state for row in store.questions.all("r1")] == ["pending"]


# -- which of two


def test_an_answer_from_another_process_ends_the_prompt(store: Store, tmp_path: Path) -> None:
    async def never(key: str, question: Question, problem: str) -> Answer | None:
        with closing(SqliteStore.open(tmp_path / "windlass.db", Clock())) as other:
            row = other.questions.all("r1", pending=True)[0]
            RunQuestions(other).answer("r1", row.key, "1", "", "Bob")
        await asyncio.Event().wait()
        raise AssertionError

    assert _ask(_broker(store, asker=never)) == Answer("approve", by="Bob")


def test_a_prompt_that_loses_the_race_takes_the_winners_answer(store: Store, tmp_path: Path) -> None:
    async def late(key: str, question: Question, problem: str) -> Answer | None:
        with closing(SqliteStore.open(tmp_path / "windlass.db", Clock())) as other:
            RunQuestions(other).answer("r1", "", "revise", "", "Bob")
        return Answer("approve", by="terminal")

    assert _ask(_broker(store, asker=late)) == Answer("revise", by="Bob")
    told = [r.event for r in store.events.all("r1") if isinstance(r.event, QuestionAnswered)]
    assert [(event.answer, event.by) for event in told] == [("revise", "Bob")]


def test_the_loser_from_outside_is_told_who_answered_what(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WaitingError):
        _ask(_broker(store))
    row = store.questions.all("r1", pending=True)[0]

    def validate_late(*given: Any) -> Answer | str:
        """Ada answers after Bob's command has found the question open."""
        assert store.questions.answer(epoch.Person("r1"), row.key, "approve", "", "Ada")
        return validate(*given)

    monkeypatch.setattr("windlass.runs.answer.validate", validate_late)
    with pytest.raises(UserError, match="already answered with 'approve' by Ada"):
        RunQuestions(store).answer("r1", row.key, "revise", "", "Bob")
    monkeypatch.undo()
    with pytest.raises(UserError, match="already answered with 'approve' by Ada"):
        RunQuestions(store).answer("r1", row.key, "revise", "", "Bob")


def test_a_policy_survives_being_stored() -> None:
    policy = AnswerPolicy({"a": "b", "c*": "d"}, True, frozenset({"x", "y"}), True)
    assert AnswerPolicy.from_json(policy.to_json()) == policy
    assert AnswerPolicy.from_json(None) == AnswerPolicy()
