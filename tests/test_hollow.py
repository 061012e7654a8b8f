from __future__ import annotations

import ast
from pathlib import Path

import pytest

import windlass
from windlass.tdd.hollow import Hollowed, hollow


def run(done: Hollowed | None) -> dict[str, object]:
    assert done is not None
    space: dict[str, object] = {"__name__": "hollow"}
    exec(done.text, space)  # what was taken out is seen by running it
    return space


def test_new_and_changed_bodies_are_empty_and_others_stay() -> None:
    old = "def same(): return 1\n\ndef other(): return 1\n"
    space = run(hollow("a.py", old, old.replace("other(): return 1", "other(): return 2") + "\ndef new(): return 3\n"))
    assert [space[name]() for name in ("same", "other", "new")] == [1, None, None]  # type: ignore[operator]


def test_methods_are_told_apart_by_their_class() -> None:
    old = "class A:\n    def f(self): return 1\n\nclass B:\n    def f(self): return 1\n"
    space = run(hollow("a.py", old, "class A:\n    def f(self): return 1\n\nclass B:\n    def f(self): return 2\n"))
    assert (space["A"]().f(), space["B"]().f()) == (1, None)  # type: ignore[operator]


@pytest.mark.parametrize(
    "text",
    [
        "def decorate(f): return f\n\n@decorate\ndef g(): return 1\n",
        "def table(): return {'a': 1}\n\nTABLE = table()\nA = TABLE['a']\n",
        "TABLE = {'a': 1}\nA = TABLE['a']\n",
        "class Store:\n    def __init__(self): self.x = 1\n\nSTORE = Store()\nX = STORE.x\n",
        "class Base:\n    def __init_subclass__(cls): cls.y = 1\n\nclass Sub(Base): pass\n\nY = Sub.y\n",
        "from enum import Enum\n\nclass Colour(Enum):\n    RED = 'r'\n    BLUE = 'b'\n\ndef f(): return Colour.RED\n",
        "def default(): return [1]\n\ndef f(a=default()[0]): return a\n",
    ],
)
def test_what_is_needed_to_load_the_module_stays(text: str) -> None:
    run(hollow("a.py", "", text + "\n\ndef aside(): return 1\n"))


def test_constants_have_another_value() -> None:
    space = run(
        hollow(
            "a.py", "KEPT = 1\n", "KEPT = 1\nN = 5\nTEXT = 'a'\nON = True\nLIST = [1]\nMAP = {1: 2}\nF = lambda x: x\n"
        )
    )
    assert (space["KEPT"], space["N"] == 5, space["ON"], space["LIST"], space["MAP"]) == (1, False, False, [], {})
    assert space["TEXT"] != "a"
    assert space["F"](1) is None  # type: ignore[operator]


@pytest.mark.parametrize(
    ("old", "new"), [("x = 1\n", "x = 1  # why\n"), ("", "import os\n"), ("", "def f(): ...\n"), ("", "def f(:")]
)
def test_there_is_no_hollow_tree_where_nothing_can_be_taken_out(old: str, new: str) -> None:
    assert hollow("a.py", old, new) is None


@pytest.mark.parametrize(
    ("old", "new", "whole"),
    [
        ("", "def f(): return 1\n", True),
        ("", "def f(): return 1\n\nif __name__ == '__main__':\n    f()\n", True),
        ("", "def f(): return 1\n\nY = f()\n\ndef g(): return 2\n", False),
        ("class A: pass\n", "class A(dict): pass\n\ndef f(): return 1\n", False),
    ],
)
def test_it_is_said_when_a_part_of_the_change_had_to_stay(old: str, new: str, whole: bool) -> None:
    done = hollow("a.py", old, new)
    assert done is not None
    assert (done.whole, bool(done.left)) == (whole, not whole)


def test_code_of_every_shape_can_be_hollowed_out() -> None:
    for path in sorted((Path(windlass.__file__).parent / "agents").glob("*.py")):
        done = hollow("a.py", "", path.read_text(encoding="utf-8"))
        assert done is None or ast.parse(done.text).body
