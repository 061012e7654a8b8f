from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import windlass
from windlass.proof.hollow import hollow as hollow_file
from windlass.proof.hollow.parts import HollowSource


def hollow(old: str, new: str) -> HollowSource | None:
    return hollow_file("module.py", old, new)


def run(done: HollowSource | None) -> dict[str, object]:
    assert done is not None
    space: dict[str, object] = {"__name__": "hollow"}
    exec(done.text, space)  # what was taken out is seen by running it
    return space


def test_new_and_changed_bodies_are_empty_and_others_stay() -> None:
    old = "def same(): return 1\n\ndef other(): return 1\n"
    space = run(hollow(old, old.replace("other(): return 1", "other(): return 2") + "\ndef new(): return 3\n"))
    assert [space[name]() for name in ("same", "other", "new")] == [1, None, None]  # type: ignore[operator]


def test_methods_are_told_apart_by_their_class() -> None:
    old = "class A:\n    def f(self): return 1\n\nclass B:\n    def f(self): return 1\n"
    space = run(hollow(old, "class A:\n    def f(self): return 1\n\nclass B:\n    def f(self): return 2\n"))
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
    run(hollow("", text + "\n\ndef aside(): return 1\n"))


def test_constants_have_another_value() -> None:
    space = run(
        hollow("KEPT = 1\n", "KEPT = 1\nN = 5\nTEXT = 'a'\nON = True\nLIST = [1]\nMAP = {1: 2}\nF = lambda x: x\n")
    )
    assert (space["KEPT"], space["N"] == 5, space["ON"], space["LIST"], space["MAP"]) == (1, False, False, [], {})
    assert space["TEXT"] != "a"
    assert space["F"](1) is None  # type: ignore[operator]


@pytest.mark.parametrize(
    ("old", "new"), [("x = 1\n", "x = 1  # why\n"), ("", "import os\n"), ("", "def f(): ...\n"), ("", "def f(:")]
)
def test_there_is_no_hollow_tree_where_nothing_can_be_taken_out(old: str, new: str) -> None:
    assert hollow(old, new) is None


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
    done = hollow(old, new)
    assert done is not None
    assert done.whole is whole


# -- what a module does while it loads


def test_a_function_that_the_module_calls_is_hollow_once_it_has_loaded() -> None:
    done = hollow("", "def table():\n    return {'a': 1}\n\nA = table()['a']\ntable()\n")
    space = run(done)
    assert (space["A"], space["table"]()) == (1, None)  # type: ignore[operator]
    assert done is not None
    assert done.left == (
        "line 1: table is used while the module loads",
        "line 4: A is computed while the module loads",
        "line 5: a call while the module loads",
    )


def test_a_constant_that_the_module_uses_changes_once_it_has_loaded() -> None:
    space = run(hollow("", "N = 5\nLIST = [0] * N\n"))
    assert space["LIST"] == [0] * 5
    assert space["N"] != 5


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("def f(): return 1\n", "def f(): pass\n\ndef g(): return 1\n", ["line 1: f does nothing now"]),
        ("N = 1\n", "N = None\nM = 2\n", ["line 1: N is empty now"]),
        ("", "from x import y\n\ndef f(): return 1\n", ["line 1: y is imported, and nothing here uses it"]),
        ("", "from x import y\n\ndef f(): return y\n", []),
        ("", "class A:\n    x: int\n    def f(self): return 1\n", ["line 2: the field A.x"]),
        ("", "class E(KeyError): ...\n\ndef f(): return 1\n", ["line 1: class E is all in its head"]),
        ("", "if x:\n    def f(): return 1\n", ["line 1: code that runs while the module loads"]),
        ("", "try:\n    import y\nexcept ImportError:\n    def f(): return y\n", []),
        (
            "",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from x import Y\n\ndef f() -> Y: return 1\n",
            [],
        ),
    ],
)
def test_what_had_to_stay_is_named(old: str, new: str, left: list[str]) -> None:
    done = hollow(old, new)
    assert done is not None
    assert (list(done.left), done.whole) == (left, not left)


@pytest.mark.parametrize(
    "text",
    [
        "if True:\n    def f(): return 1\n",
        "try:\n    import nothing_of_that_name\nexcept ImportError:\n    def f():\n        return 1\n",
        "def f(): return 1",
        "def f(): 'why'; return 1\n",
        "def f():\n\t'''why\n\tnot'''; return 1\n",
        "def f():\n    '''why'''\n\n    # so\n    return 1\n",
        "def f():\n    @staticmethod\n    def g(): return 1\n    return g()\n",
        "\ufeffdef f():\r\n    return 1\r\n",
        "from functools import partial\nf = partial(lambda a: a, 1)\n",
        "f = lambda: (\n    1,\n    2)[0]\n",
        "class A:\n    def __getattr__(self, name): return 1\n\ndef f(): return A().x\n",
    ],
)
def test_a_changed_function_is_emptied_wherever_it_stands(text: str) -> None:
    done = hollow("", text)
    assert done is not None
    before: dict[str, object] = {"__name__": "hollow"}
    exec(text.removeprefix("\ufeff"), before)
    space: dict[str, object] = {"__name__": "hollow"}
    exec(done.text.removeprefix("\ufeff"), space)
    assert (before["f"](), space["f"]()) == (1, None)  # type: ignore[operator]


def test_a_hollow_getattr_knows_no_attribute() -> None:
    space = run(hollow("", "class A:\n    def __getattr__(self, name): return 1\n"))
    assert not hasattr(space["A"](), "x")  # type: ignore[operator]


def test_the_words_of_the_change_stay_in_the_text() -> None:
    new = "LIMIT = 7\n\n\ndef mul(a, b):\n    '''Times.'''\n    return a * b  # so\n"
    done = hollow("", new)
    assert done is not None
    for line in new.splitlines():
        assert line in done.text


def _modules() -> list[Path]:
    return sorted(Path(windlass.__file__).parent.rglob("*.py"))[::7]


@pytest.mark.parametrize("path", _modules(), ids=lambda path: path.stem)
def test_hollowing_real_modules_gives_python_and_hollowing_them_again_changes_nothing(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    done = hollow("", text)
    if done is not None:
        assert ast.parse(done.text).body
        assert hollow("", done.text) is None
    # Every second function changed: the others stay as they are, byte for byte.
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    functions = [node for node in functions if not node.decorator_list]
    kept = [ast.get_source_segment(text, node) or "" for node in functions[::2]]
    part = hollow("\n\n".join(kept), text)
    assert part is None or all(source in part.text for source in kept)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.py", "def f(): return 1\nx = " + "[" * 5000 + "]" * 5000),
        pytest.param(
            "a.js",
            "function f() { return 1 }\nconst x = " + "{ a: " * 1000 + "() => 1" + "}" * 1000,
            marks=pytest.mark.long,
        ),
        ("a.go", "package a\n\nvar x = " + "(" * 5000 + "1" + ")" * 5000),
    ],
)
def test_brackets_a_thousand_deep_break_nothing(path: str, text: str) -> None:
    hollow_file(path, "", text)


def test_the_parsers_are_loaded_by_the_first_file_that_needs_them() -> None:
    code = (
        "import sys, windlass.tasks.proof\n"
        "from windlass.proof.hollow import hollow\n"
        "hollow('a.py', '', 'def f(): return 1\\n')\n"
        "print('tree_sitter' in sys.modules, hollow('a.go', '', 'package a\\n\\nfunc F() { f() }\\n') is not None)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False True\n"
