"""Python with the names of a change and without its behaviour, and Python in other words."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import windlass
from windlass.proof.behaviour import removes_names, respell, without_behaviour
from windlass.proof.claims import compare

OLD = "LIMIT = 5\n\n\ndef half(n):\n    return n // 2\n\n\ndef gone():\n    return 1\n"
NEW = (
    'LIMIT = 7\nWIDE = frozenset({1})\n\n\ndef half(n, exact=False):\n    "Half."\n    n = n / 2\n    return n\n\n\n'
    "def sub(a, b):\n    return a - b\n\n\ndef count():\n    yield 1\n\n\nsub(1, 2)\n"
)


def loaded(text: str) -> dict[str, object]:
    space: dict[str, object] = {"__name__": "loaded"}
    exec(text, space)  # what it does is seen by running it
    return space


def test_a_changed_function_does_what_it_did_and_a_new_one_nothing() -> None:
    found = without_behaviour("a.py", OLD, NEW)
    assert found is not None
    space = loaded(found.text)
    assert space["half"](9, exact=True) == 4  # type: ignore[operator]
    assert space["sub"](5, 2) is None  # type: ignore[operator]
    assert list(space["count"]()) == []  # type: ignore[operator]
    assert (space["gone"](), space["LIMIT"], space["WIDE"]) == (1, 5, None)  # type: ignore[operator]
    assert found.left == ()


def test_the_text_of_the_change_stays_readable() -> None:
    found = without_behaviour("a.py", OLD, NEW)
    assert found is not None
    assert NEW in found.text
    assert any(isinstance(node, ast.Sub) for node in ast.walk(ast.parse(found.text)))


def test_what_is_left_is_named() -> None:
    shallow = without_behaviour("a.py", OLD, NEW, deep=False)
    assert shallow is not None
    assert "the statement in line 2" in shallow.left


def test_respelled_code_does_the_same_and_reads_otherwise() -> None:
    space = loaded(respell(NEW))
    assert (space["half"](9), space["sub"](5, 2), space["LIMIT"]) == (4.5, 3, 7)  # type: ignore[operator]
    assert "    return a - b\n" in NEW
    assert ":\n    return a - b\n" not in respell(NEW)


@pytest.mark.parametrize(("new", "removed"), [(OLD + "x = 1\n", False), ("def half(n): ...\n", True), ("def (", False)])
def test_a_name_that_is_gone_is_noticed(new: str, removed: bool) -> None:
    assert removes_names(OLD, new) is removed


@pytest.mark.long
@pytest.mark.parametrize("first", range(4))
def test_code_of_every_shape_can_be_rewritten(first: int) -> None:
    for path in sorted(Path(windlass.__file__).parent.glob("*/*.py"))[first::4]:
        text = path.read_text(encoding="utf-8")
        found = without_behaviour(path.name, "", text)
        assert found is not None
        assert ast.parse(found.text).body is not None
        assert ast.dump(ast.parse(respell(text))) != ast.dump(ast.parse(text)) or "def " not in text


def test_a_test_file_that_does_not_parse_claims_nothing_about_others() -> None:
    found = compare({"tests/test_a.py": "def test_a(:"}, {"tests/test_a.py": "def test_a(): pass\n"})
    assert (found.emptied, found.moved, found.touched) == (frozenset(), {}, None)
