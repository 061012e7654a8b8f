"""JavaScript through the whole proof: node's own test runner with its JUnit report."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from proofs import Proving
from windlass.events import TaskProved

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="there is no node here"),
    pytest.mark.long,
]

NODE = ["node", "--test", "--test-reporter=junit", "--test-reporter-destination={junit}", "{files}"]
HEAD = 'import { test } from "node:test";\nimport assert from "node:assert";\n'
CALC = "export function half(n) { return Math.floor(n / 2) }\n"
TEST = HEAD + 'import { half } from "../src/calc.mjs";\ntest("half", () => assert.equal(half(8), 4));\n'
BASE = {"src/calc.mjs": CALC, "test/calc.test.mjs": TEST}
#: nothing of it can be emptied: without the module its test does not load, and that is all there is to see
AREA = {
    "src/area.mjs": "export const area = Math.max(6, 1);\n",
    "test/area.test.mjs": HEAD
    + 'import { area } from "../src/area.mjs";\ntest("area", () => assert.equal(area, 6));\n',
}
MUL = CALC + "export function mul(a, b) { return a * b }\n"
STACK = (
    "export class Stack {\n  constructor() { this.items = [] }\n"
    "  push(x) { this.items.push(x); return this.items.length }\n}\n"
)


def proving(tmp_path: Path, **more: Any) -> Proving:
    return Proving(tmp_path, run_files=NODE, base=BASE, **more)


def case(body: str, names: str = "{ mul }", source: str = "calc") -> str:
    return f'{HEAD}import {names} from "../src/{source}.mjs";\ntest("new", async () => {{ {body} }});\n'


def absent(tmp_path: Path, policy: str, *answers: str) -> tuple[int, list[TaskProved]]:
    here = proving(tmp_path, tests=f'absent = "{policy}"')
    done = here.start([{"when": {"role": "implementer"}, "files": AREA, "commit": "work", "say": "done"}])
    for answer in answers:
        assert done.code == 10
        assert here.front.asked == ["absent"]
        done = here.front("answer", answer)
    return done.code, here.proofs


# -- honest work

HONEST = {
    "a new function": ({"src/calc.mjs": MUL}, case("assert.equal(mul(2, 3), 6)")),
    "a new module": (
        {"src/area.mjs": "export const area = (a, b) => a * b;\n"},
        case("assert.equal(area(2, 3), 6)", "{ area }", "area"),
    ),
    "a class": (
        {"src/stack.mjs": STACK},
        case("assert.equal(new Stack().push(1), 1)", "{ Stack }", "stack"),
    ),
    "a constant": (
        {"src/calc.mjs": CALC + "export const LIMIT = 7;\n"},
        case("assert.equal(LIMIT, 7)", "{ LIMIT }"),
    ),
    "an async function": (
        {"src/calc.mjs": CALC + "export const later = async (n) => { return n + 1 };\n"},
        case("assert.equal(await later(1), 2)", "{ later }"),
    ),
    "a function that the module calls itself": (
        {"src/calc.mjs": MUL + "export const area = mul(2, 3);\n"},
        case("assert.equal(mul(3, 3), 9); assert.equal(area, 6)", "{ mul, area }"),
    ),
    "an object of functions": (
        {"src/ops.mjs": "const mul = (a, b) => a * b;\nexport default { mul, sub(a, b) { return a - b } };\n"},
        case("assert.equal(ops.sub(ops.mul(2, 3), 1), 5)", "ops", "ops"),
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_javascript_is_proved(tmp_path: Path, name: str) -> None:
    files, test = HONEST[name]
    found = proving(tmp_path).change({**files, "test/new.test.mjs": test})
    assert found.proof == "proved", found.reason
    assert found.ok


def test_a_bug_fix_is_proved_by_running(tmp_path: Path) -> None:
    fixed = {"src/calc.mjs": CALC.replace("Math.floor(n / 2)", "n / 2")}
    test = TEST + 'test("half of an odd number", () => assert.equal(half(3), 1.5));\n'
    found = proving(tmp_path).change({**fixed, "test/calc.test.mjs": test})
    assert (found.proof, found.tests) == ("proved", {"red": ["test::half of an odd number"]})
    assert list(found.trees) == ["h", "b", "w", "o", "o2", "x"]


# -- tests that ask nothing

CHEATS = {
    "the name exists": ({"src/calc.mjs": MUL}, case('assert.equal(typeof mul, "function")')),
    "the name exists, asked of the module": ({"src/calc.mjs": MUL}, case('assert.ok("mul" in calc)', "* as calc")),
    "the name exists, asked while the test runs": (
        {"src/calc.mjs": MUL},
        HEAD + 'test("new", async () => assert.ok((await import("../src/calc.mjs")).mul));\n',
    ),
    "the source has the words": (
        {"src/calc.mjs": MUL},
        HEAD
        + 'import { readFileSync } from "node:fs";\n'
        + 'test("new", () => assert.match(readFileSync("src/calc.mjs", "utf8"), /return a \\* b/));\n',
    ),
    "the function has the words": ({"src/calc.mjs": MUL}, case("assert.match(mul.toString(), /a \\* b/)")),
    "the function is called": ({"src/calc.mjs": MUL}, case("mul(2, 3)")),
    "the failure is caught": ({"src/calc.mjs": MUL}, case("try { assert.equal(mul(2, 3), 6) } catch {}")),
    "the constant is something": (
        {"src/calc.mjs": CALC + "export const LIMIT = 7;\n"},
        case("assert.ok(LIMIT)", "{ LIMIT }"),
    ),
    "an instance is made": ({"src/stack.mjs": STACK}, case("assert.ok(new Stack())", "{ Stack }", "stack")),
    "the module calls it itself": ({"src/calc.mjs": MUL + "mul(1, 2);\n"}, case("assert.ok(mul)")),
    "a data file changes as well": ({"src/calc.mjs": MUL, "data.json": "{}\n"}, case("assert.ok(mul)")),
    "another language changes as well": ({"src/calc.mjs": MUL, "run.rb": "puts 1\n"}, case("assert.ok(mul)")),
    "the test skips itself": (
        {"src/calc.mjs": MUL},
        case("assert.equal(mul(2, 3), 6)").replace('test("new", ', 'test.skip("new", '),
    ),
    "the test is to be written": ({"src/calc.mjs": MUL}, HEAD + 'test.todo("new");\n'),
    "the test cannot fail": ({"src/calc.mjs": MUL}, HEAD + 'test("new", () => {});\n'),
}


#: a part of the change cannot be emptied, so the proof is weak and a person is asked
WEAK = {"the module calls it itself"}


@pytest.mark.parametrize("name", CHEATS)
def test_javascript_tests_that_ask_nothing_are_not_proved(tmp_path: Path, name: str) -> None:
    files, test = CHEATS[name]
    found = proving(tmp_path, tests='weak = "refuse"').change({**files, "test/new.test.mjs": test})
    assert (found.proof, found.ok) == ("weak" if name in WEAK else "unproved", False), found.reason


def test_a_skipped_test_is_weakened(tmp_path: Path) -> None:
    skipped = {"src/calc.mjs": CALC + "\n", "test/calc.test.mjs": TEST.replace('test("half", ', 'test.skip("half", ')}
    assert proving(tmp_path).change(skipped).proof == "weakened"


# -- red by absence


def test_a_test_that_only_loads_a_value_is_red_by_absence_which_is_accepted_by_default(tmp_path: Path) -> None:
    code, [found] = absent(tmp_path, "accept")
    assert (code, found.proof, found.tests) == (0, "absent", {"absent": ["test::area"]})


def test_absence_may_be_refused(tmp_path: Path) -> None:
    code, [found] = absent(tmp_path, "refuse")
    assert (code, found.proof, found.ok) == (12, "absent", False)


@pytest.mark.parametrize(("answer", "code"), [("accept", 0), ("refuse", 12)])
def test_absence_may_be_a_person_s_to_judge(tmp_path: Path, answer: str, code: int) -> None:
    assert absent(tmp_path, "ask", answer)[0] == code
