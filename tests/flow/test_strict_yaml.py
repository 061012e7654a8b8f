from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.flow.document import MAX_CHARS, MAX_DEPTH, load_strict
from windlass.flow.problem import FlowError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on: off", {"on": "off"}),
        ("id: 1.3", {"id": "1.3"}),
        ("country: no", {"country": "no"}),
        ("n: 0x10", {"n": "0x10"}),
        ("at: 2026-01-02", {"at": "2026-01-02"}),
        ("at: 12:30:00", {"at": "12:30:00"}),
        ("a: ~", {"a": "~"}),
        ("a: True", {"a": "True"}),
        ("true: yes", {"true": "yes"}),
        ("<<: x", {"<<": "x"}),
        ("{a: true, b: false, c: null}", {"a": True, "b": False, "c": None}),
        ("{a: \"true\", b: 'null'}", {"a": "true", "b": "null"}),
        ('a: "how: now?"', {"a": "how: now?"}),
        ("a: |\n  what?\n", {"a": "what?\n"}),
        ("[a, [b], {c: d}]", ["a", ["b"], {"c": "d"}]),
    ],
)
def test_only_true_false_and_null_are_special(text: str, value: object) -> None:
    assert load_strict(text, "f").value == value


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: b: c", "f:1: a plain text has ': ' in it (quote this text)"),
        ("a:\n  - {b: c: d}", "f:2: a plain text has ': ' in it (quote this text)"),
        ("a: 1\nb: how so?", "f:2: 'how so?' has '?' or ': ' in it (quote this text)"),
        ("a: 1\nb: 2\na: 3", "f:3: the key 'a' occurs twice"),
        ("a: &x 1", "f:1: an anchor '&x'"),
        ("a: *x", "f:1: an alias '*x' (write it out)"),
        ("a: !!str 1", "f:1: a tag 'tag:yaml.org,2002:str'"),
        ("a: !!python/object/apply:os.system [x]", "f:1: a tag 'tag:yaml.org,2002:python/object/apply:os.system'"),
        ("a:\nb: 1", 'f:1: a value is missing here (write null or "" if that is meant)'),
        ("? [a]\n: b", "f:1: a key is plain text, nothing else"),
        ("a: 1\n---\nb: 2", "f:2: a second document in one file"),
        ("", "f:1: the file is empty"),
        ("a: [1", "f:1: not readable as YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: 1\n\tb: 2", "f:2: not readable as YAML: found character '\\t' that cannot start any token"),
        ('a: "\\UFFFFFFFF"', "f:1: not readable as YAML: "),
        ("a: \x00", "f:1: not readable as YAML: special characters are not allowed"),
    ],
)
def test_what_could_be_misread_is_refused(text: str, told: str) -> None:
    with pytest.raises(FlowError) as caught:
        load_strict(text, "f")
    assert str(caught.value).startswith(told)


def test_every_key_and_item_knows_its_line() -> None:
    located = load_strict("a: 1\nb:\n  - x\n  - y: 2\n    z: 3\n", "f")
    assert [located.line(path) for path in [("a",), ("b",), ("b", 1), ("b", 1, "z")]] == [1, 2, 4, 5]


def test_what_stands_in_no_line_is_shown_at_what_is_around_it() -> None:
    assert load_strict("a: 1\nb:\n  c: 2\n", "f").line(("b", "c", "missing", 7)) == 3


def test_a_deep_file_is_refused_before_it_costs_anything() -> None:
    with pytest.raises(FlowError, match=f"deeper than {MAX_DEPTH}"):
        load_strict("[" * 3000 + "]" * 3000, "f")


def test_a_huge_file_is_refused() -> None:
    with pytest.raises(FlowError, match="more than"):
        load_strict("a" * (MAX_CHARS + 1), "f")


def test_a_bomb_of_aliases_is_refused_without_being_expanded() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    with pytest.raises(FlowError, match="an alias"):
        load_strict("\n".join(lines), "f")


@given(st.text(max_size=200))
def test_any_text_gives_a_value_or_a_flow_error(text: str) -> None:
    try:
        load_strict(text, "f")
    except FlowError as error:
        assert error.problems
