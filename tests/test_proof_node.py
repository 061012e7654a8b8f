"""A second language: node's own test runner with its JUnit report, and no hollow tree."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from proofs import Proving
from windlass.events import TaskProved

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here")

NODE = ["node", "--test", "--test-reporter=junit", "--test-reporter-destination={junit}", "{files}"]
HEAD = 'import { test } from "node:test";\nimport assert from "node:assert";\n'
CALC = "export function half(n) { return Math.floor(n / 2) }\n"
TEST = HEAD + 'import { half } from "../src/calc.mjs";\ntest("half", () => assert.equal(half(8), 4));\n'
BASE = {"src/calc.mjs": CALC, "test/calc.test.mjs": TEST}
AREA = {
    "src/area.mjs": "export function area(a, b) { return a * b }\n",
    "test/area.test.mjs": HEAD
    + 'import { area } from "../src/area.mjs";\ntest("area", () => assert.equal(area(2, 3), 6));\n',
}


def proving(tmp_path: Path, **more: Any) -> Proving:
    return Proving(tmp_path, run_files=NODE, base=BASE, **more)


def absent(tmp_path: Path, policy: str, *answers: str) -> tuple[int, list[TaskProved]]:
    here = proving(tmp_path, tests=f'absent = "{policy}"')
    done = here.start([{"when": {"role": "implementer"}, "files": AREA, "commit": "work", "say": "done"}])
    for answer in answers:
        assert done.code == 10
        assert here.front.asked == ["absent"]
        done = here.front("answer", answer)
    return done.code, here.proofs


def test_a_bug_fix_is_proved_by_running(tmp_path: Path) -> None:
    fixed = {"src/calc.mjs": CALC.replace("Math.floor(n / 2)", "n / 2")}
    test = TEST + 'test("half of an odd number", () => assert.equal(half(3), 1.5));\n'
    found = proving(tmp_path).change({**fixed, "test/calc.test.mjs": test})
    assert (found.proof, found.tests) == ("proved", {"red": ["test::half of an odd number"]})
    assert list(found.trees)[:5] == ["h", "b", "w", "o", "o2"]


def test_a_test_that_cannot_fail_is_unproved(tmp_path: Path) -> None:
    cheat = {"src/calc.mjs": CALC + "export const two = 2;\n", "test/two.test.mjs": HEAD + 'test("two", () => {});\n'}
    assert proving(tmp_path).change(cheat).proof == "unproved"


def test_a_skipped_test_is_weakened(tmp_path: Path) -> None:
    skipped = {"src/calc.mjs": CALC + "\n", "test/calc.test.mjs": TEST.replace('test("half", ', 'test.skip("half", ')}
    assert proving(tmp_path).change(skipped).proof == "weakened"


def test_a_new_module_s_test_is_red_by_absence_which_is_accepted_unless_it_is_said_otherwise(tmp_path: Path) -> None:
    code, [found] = absent(tmp_path, "accept")
    assert (code, found.proof, found.tests) == (0, "absent", {"absent": ["test::area"]})


def test_absence_may_be_refused(tmp_path: Path) -> None:
    code, [found] = absent(tmp_path, "refuse")
    assert (code, found.proof, found.ok) == (12, "absent", False)


@pytest.mark.parametrize(("answer", "code"), [("accept", 0), ("refuse", 12)])
def test_absence_may_be_a_person_s_to_judge(tmp_path: Path, answer: str, code: int) -> None:
    assert absent(tmp_path, "ask", answer)[0] == code
