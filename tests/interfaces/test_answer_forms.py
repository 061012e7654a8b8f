"""Which words count as which answer: a table."""

from __future__ import annotations

import pytest

from windlass.answers import validate
from windlass.model import Answer, Choice, Question

CHOICE = Question("q", "?", (Choice("single-pass", "One round"), Choice("iterative", "Until it passes")))
NUMBER = Question("n", "?", type="input", default="3", check="int")
CONFIRM = Question("c", "?", type="confirm")


@pytest.mark.req("S0-81")
@pytest.mark.parametrize("said", ["iterative", "ITERATIVE", "2", " 2 ", "Until it passes", "until it passes"])
def test_a_choice_is_taken_by_key_number_and_label(said: str) -> None:
    assert validate(CHOICE, said) == Answer("iterative")


@pytest.mark.req("S0-81", "S0-85")
@pytest.mark.parametrize("said", ["", "0", "3", "-1", "iter", "iterative please", "1 2", "²", "１"])
def test_anything_else_is_no_choice(said: str) -> None:
    assert isinstance(validate(CHOICE, said), str)


@pytest.mark.req("S0-82")
@pytest.mark.parametrize(("said", "value"), [("", "3"), ("  ", "3"), ("7", "7"), ("007", "7")])
def test_an_empty_input_is_the_default(said: str, value: str) -> None:
    assert validate(NUMBER, said) == Answer(value)


@pytest.mark.parametrize("said", ["0", "-1", "three", "1.5", "1e3", "9" * 10, "٣"])
def test_a_number_is_a_whole_one_from_1(said: str) -> None:
    assert validate(NUMBER, said) == "a whole number from 1 is expected"


@pytest.mark.req("S0-83")
@pytest.mark.parametrize(("said", "value"), [("yes", "yes"), ("no", "no"), (" Yes ", "yes"), ("NO", "no")])
def test_a_confirmation_is_yes_or_no(said: str, value: str) -> None:
    assert validate(CONFIRM, said) == Answer(value)


@pytest.mark.req("S0-83")
@pytest.mark.parametrize("said", ["sure", "y", "1", "true", "yes but", "no way", "ok"])
def test_nothing_else_confirms(said: str) -> None:
    assert validate(CONFIRM, said) == "yes or no is expected"
