"""Plain data into structs: strict, and every fault at once."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct, field

from windlass.conversion import After, Before, ConversionError, Parser, Rest, convert, fault_line


def even(number: int) -> int:
    if number % 2:
        raise ValueError(f"{number} is odd")
    return number


class Base(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class Circle(Base, frozen=True, kw_only=True, tag_field="form", tag="circle"):
    radius: float


class Square(Base, frozen=True, kw_only=True, tag_field="form", tag="square"):
    side: Annotated[float, Meta(ge=1)] = 1.0


Form: TypeAlias = Circle | Square


class Page(Base, frozen=True, kw_only=True):
    title: str
    size: Literal["a4", "a5"] = "a4"
    even: Annotated[int, After(even)] = 0
    words: Annotated[tuple[str, ...], Before(lambda value: [value] if isinstance(value, str) else value)] = ()
    seconds: Annotated[float, Parser(lambda value: float(str(value).removesuffix("s")))] = 0.0
    forms: tuple[Form, ...] = ()
    source: str | None = field(default=None, name="from")
    flag: bool | str = False
    few: Annotated[tuple[int, ...], Meta(max_length=2)] = ()

    def __post_init__(self) -> None:
        if self.title == self.source:
            raise ValueError("a page cannot come from itself")


class Book(Base, frozen=True, kw_only=True):
    pages: dict[str, Page] = {}
    others: Annotated[dict[str, dict[str, int]], Rest()] = {}


class Loose(Struct, frozen=True):
    name: str = ""


def faults(data: object, into: type = Page) -> list[str]:
    with pytest.raises(ConversionError) as caught:
        convert(data, into)
    return [fault_line(fault) for fault in caught.value.faults]


def test_what_fits_becomes_the_struct() -> None:
    data = {
        "title": "t",
        "even": 2,
        "words": "one",
        "seconds": "5s",
        "from": "x",
        "flag": "off",
        "forms": [{"form": "circle", "radius": 2}, {"form": "square"}],
    }
    page = convert(data, Page)
    assert page == Page(
        title="t", even=2, words=("one",), seconds=5.0, source="x", flag="off", forms=(Circle(radius=2.0), Square())
    )
    assert isinstance(page.forms[0].radius, float)  # type: ignore[union-attr]


def test_every_fault_is_named_with_its_place() -> None:
    data = {
        "size": "a3",
        "even": 3,
        "words": [1, "x", None],
        "seconds": "soon",
        "forms": [{"form": "circl", "radius": 1}, {"radius": 1}, {"form": "square", "side": 0, "radius": 1}, 7],
        "form": 1,
        "flag": 1,
        "few": [1, 2, 3],
    }
    assert faults(data) == [
        "title: is missing",
        "size: must be 'a4' or 'a5'",
        "even: 3 is odd",
        "words.0: must be a text",
        "words.2: must be a text",
        "seconds: could not convert string to float: 'soon'",
        "forms.0.form: unknown form 'circl'",
        "forms.1.form: is missing",
        "forms.2.side: must be at least 1",
        "forms.2.radius: unknown key 'radius'",
        "forms.3: must be a mapping",
        "flag: must be true or false or a text",
        "few: must have at most 2 items",
        "form: unknown key 'form'",
    ]


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("title", 1, "title: must be a text"),
        ("even", "2", "even: must be a whole number"),
        ("even", True, "even: must be a whole number"),
        ("even", 2.0, "even: must be a whole number"),
        ("few", "12", "few: must be a list"),
        ("from", 1, "from: must be a text"),
        ("source", "x", "source: unknown key 'source'"),
        ("forms", [{"form": "circle", "radius": "1"}], "forms.0.radius: must be a number"),
        ("forms", [{"form": "circle", "radius": float("inf")}], "forms.0.radius: must be a finite number"),
        ("forms", [{"form": "circle", "radius": 10**400}], "forms.0.radius: must be a finite number"),
        ("forms", [{"form": ["circle"]}], "forms.0.form: unknown form '['circle']'"),
    ],
)
def test_nothing_is_converted_that_was_not_asked_for(key: str, value: object, message: str) -> None:
    assert faults({"title": "t", key: value}) == [message]


def test_a_struct_that_refuses_its_values_is_a_fault_of_its_place() -> None:
    assert faults({"pages": {"a": {"title": "t", "from": "t"}}}, Book) == ["pages.a: a page cannot come from itself"]


def test_tables_that_no_field_has_go_to_the_field_for_the_rest() -> None:
    assert convert({"a": {"x": 1}, "b": {}}, Book).others == {"a": {"x": 1}, "b": {}}
    assert faults({"a": {"x": "1"}, "page": 3}, Book) == ["a.x: must be a whole number", "page: unknown key 'page'"]


def test_a_struct_that_forbids_nothing_ignores_what_it_does_not_know() -> None:
    assert convert({"name": "n", "more": 1}, Loose) == Loose("n")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["a4", "circle", "t"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["title", "forms", "form", "radius", "even", "few", "flag", "x"]), inner)
    ),
    max_leaves=10,
)


@given(json_values)
def test_any_data_gives_a_struct_or_faults_whose_places_exist_or_are_missing(data: Any) -> None:
    try:
        assert isinstance(convert(data, Page), Page)
    except ConversionError as error:
        for fault in error.faults:
            at = data
            for part in fault.path[:-1]:
                at = at[part]
            assert fault.message
