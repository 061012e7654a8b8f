"""Changes that used to switch the hollow tree off, and tests that read the code instead of running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from proofs import BASE, Proving

pytestmark = pytest.mark.long

MUL = BASE["calc.py"] + "\n\ndef mul(a, b):\n    return a * b\n"
NAMED = "from calc import mul\n\n\ndef test_mul():\n    assert callable(mul)\n"
CHEATS = {
    "the module calls it": ({"calc.py": MUL + "\n\nmul(1, 2)\n"}, NAMED),
    "the module computes a value with it": ({"calc.py": MUL + "\n\nSIX = mul(2, 3)\n"}, NAMED),
    "it stands in a branch": (
        {"calc.py": BASE["calc.py"] + "\n\nif True:\n    def mul(a, b):\n        return a * b\n"},
        NAMED,
    ),
    "another language changes as well": ({"calc.py": MUL, "run.sh": "echo\n"}, NAMED),
    "a data file changes as well": ({"calc.py": MUL, "data.json": "{}\n"}, NAMED),
    "the source has the words": (
        {"calc.py": MUL},
        "def test_mul():\n    assert 'return a * b' in open('calc.py').read()\n",
    ),
    "the source has the value": (
        {"calc.py": BASE["calc.py"] + "\n\nLIMIT = 7\n"},
        "def test_limit():\n    assert 'LIMIT = 7' in open('calc.py').read()\n",
    ),
}


@pytest.mark.parametrize("name", CHEATS)
def test_python_tests_that_ask_nothing_are_unproved(tmp_path: Path, name: str) -> None:
    files, test = CHEATS[name]
    found = Proving(tmp_path).change({**files, "tests/test_new.py": test})
    assert (found.proof, found.ok) == ("unproved", False), found.reason


def test_a_function_that_its_module_calls_is_proved_by_what_it_does(tmp_path: Path) -> None:
    test = "from calc import SIX, mul\n\n\ndef test_mul():\n    assert (mul(3, 3), SIX) == (9, 6)\n"
    found = Proving(tmp_path).change({"calc.py": MUL + "\n\nSIX = mul(2, 3)\n", "tests/test_new.py": test})
    assert found.proof == "proved", found.reason
