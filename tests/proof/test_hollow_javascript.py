"""JavaScript and TypeScript with changed bodies emptied."""

# ruff: noqa: E501
from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.proof.hollow import hollow, is_inert
from windlass.proof.hollow.javascript import NOT_CHECKED
from windlass.proof.hollow.parts import HollowSource, flag_name
from windlass.proof.hollow.syntax import parse

#: pairs of a text before and after a change
CHANGES = [
    ("export function mul(a, b) { return a + b }", "export function mul(a, b) { return a * b }"),
    ("export const inc = (a) => a;", "export const inc = (a) => a + 1;"),
    ("export const pair = async (a, b) => ({ a });", "export const pair = async (a, b) => ({ a, b });"),
    ("export function* odd() { yield 2 }", "export function* odd() {\n  yield 1; // one\n  yield 3\n}"),
    ("const LIMIT = 1;", "const LIMIT = 7;"),
    ("export const NAMES = ['a'];", "export const NAMES = ['a', 'b'];"),
    (
        "export class Shape {\n  constructor(n) { this.n = n }\n  area() { return 0 }\n}",
        "export class Shape {\n  constructor(n) { this.n = n }\n  area() { return this.n }\n}",
    ),
    (
        "export class Square extends Shape { constructor(n) { super(n) } get side() { return 1 } }",
        "export class Square extends Shape { constructor(n) { super(n); this.m = n } get side() { return this.n }\n  set side(n) { this.n = n } static of(n) { return new Square(n) } #p = 3; keep = () => this.#p }",
    ),
    (
        "export const ops = { add: (a, b) => a, sub(a, b) { return a } };",
        "export const ops = { add: (a, b) => a + b, sub(a, b) { return a - b }, get two() { return 2 } };",
    ),
    ("register('x', () => 1);", "register('x', () => 2);"),
    (
        "if (globalThis.x) { later = function () { return 1 } }",
        "if (globalThis.x) { later = function () { return 2 } }",
    ),
    ("export const made = (() => 4)();", "export const made = (() => { return 5 })();"),
    ("export default function () { return 1 }", "export default function () { return 2 }"),
]
TYPED = [
    ("export function fail(m: string): never { throw m }", "export function fail(m: string): never { throw Error(m) }"),
    ("export const same = <T,>(a: T): T | null => null;", "export const same = <T,>(a: T): T | null => a;"),
    (
        "abstract class Box<T> { abstract get(): T; has(): boolean { return false } }",
        "abstract class Box<T> { abstract get(): T; has(): boolean { return true } set v(n: T) { this.n = n } }",
    ),
    ("interface A { a: number }", "interface A { a: number; b: string }"),
    ("const CFG: A = { a: 1 };", "const CFG: A = { a: 2, b: 'x' };"),
    ("export const LEVEL = 3 as const;", "export const LEVEL = 4 as const;"),
    ("enum Color { Red = 'r' }", "enum Color { Red = 'r', Blue = 'b' }"),
    ("namespace N { export function q() { return 1 } }", "namespace N { export function q() { return 2 } }"),
]


@pytest.mark.parametrize("path", ["a.mjs", "a.jsx", "a.ts", "a.tsx"])
@given(data=st.data())
def test_what_is_hollow_parses_stays_so_and_has_the_rest_as_it_was(path: str, data: st.DataObject) -> None:
    typed = path.endswith(("ts", "tsx"))
    pairs = data.draw(st.permutations([*CHANGES, *(TYPED if typed else [])]))
    changed = data.draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    old = "\n// next\n".join(pair[0] for pair in pairs)
    texts = [pair[1] if now else pair[0] for pair, now in zip(pairs, changed, strict=True)]
    done = hollow(path, old, "\n// next\n".join(texts))
    if done is None:
        return
    grammar = {"a.ts": "typescript", "a.tsx": "tsx"}.get(path, "javascript")
    assert parse(grammar, done.text.encode()) is not None, done.text
    assert hollow(path, old, done.text) is None, done.text
    pieces = done.text.removeprefix(NOT_CHECKED).split("\n// next\n")
    for before, now, piece in zip(texts, changed, pieces, strict=True):
        assert now or piece.startswith(before)


def test_only_the_changed_method_of_a_class_is_emptied() -> None:
    old, new = CHANGES[6]
    done = hollow("a.mjs", old, new)
    assert done is not None
    assert done.text.startswith(
        new.replace("area() { return", "area() { if (" + flag_name("a.mjs") + ") return; return")
    )
    assert done.whole


@pytest.mark.parametrize(
    ("path", "old", "new", "left"),
    [
        ("a.js", "", "function f() { return 1 }\nf();\n", ["line 1: f is used while the module loads", "line 2: a call while the module loads"]),
        ("a.js", "", "const x = g();\nconst f = () => 1;\n", ["line 1: x is computed while the module loads"]),
        ("a.js", "function f() { return 1 }\n", "function f() {}\nfunction g() { return 2 }\n", ["line 1: f does nothing now"]),
        ("a.js", "class A {}", "class A extends B { f() { return 1 } }", ["line 1: the head of class A"]),
        ("a.js", "", "class A extends B { constructor() { if (x) super(); this.y = 1 } f() { return 1 } }", ["line 1: A.constructor calls super() in a branch"]),
        ("a.js", "", "const n = 3;\nconst list = new Array(n);\nfunction f() { return 1 }", ["line 1: n is used while the module loads", "line 2: list is computed while the module loads"]),
        ("a.js", "", "export * from 'x';\nexport function f() { return 1 }", ["line 1: an export from another module"]),
        ("a.js", "", "function f() { return 1 }\nreturn;\n", ["line 2: code that runs while the module loads"]),
        ("a.ts", "", "export enum E { A }\nexport const f = () => 1;", ["line 1: enum E"]),
        ("a.js", "", "const { x } = require('x');\nfunction f() { return x }\nmodule.exports = { f };\n", []),
        ("a.js", "", "import x from 'x';\nexport default class { f() { return x } }\nexport { x };\n", []),
    ],
)  # fmt: skip
def test_it_is_said_what_had_to_stay(path: str, old: str, new: str, left: list[str]) -> None:
    done = hollow(path, old, new)
    assert done is not None
    assert (list(done.left), done.whole) == (left, not left)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", "function ("),
        ("", "import x from 'x';\n"),
        ("f(1);\n", "f( 1 ); // why\n"),
        ("", "export const x = g();\n"),
    ],
)
def test_there_is_nothing_hollow_where_nothing_can_be_emptied(old: str, new: str) -> None:
    assert hollow("a.js", old, new) is None


def test_comments_and_imports_that_the_file_uses_ask_nothing() -> None:
    old = "function f() { return x }\n"
    assert is_inert("a.js", old, f"import x from 'x';\n// why\n{old}")
    assert not is_inert("a.js", old, f"{old}f();\n")
    assert not is_inert("a.vue", old, old)


# -- run

RUN = """
import * as all from "./a.mjs";
const made = new all.Square(3);
const got = {
  mul: all.mul(2, 3), inc: all.inc(1), pair: await all.pair(1, 2), odd: [...all.odd()], names: all.NAMES,
  area: made.area(), side: made.side, m: made.m, n: made.n, keep: made.keep(), of: all.Square.of(1),
  add: all.ops.add(1, 2), sub: all.ops.sub(1, 2), two: all.ops.two, made: all.made, last: all.default(),
};
console.log(JSON.stringify(got, (key, value) => value === undefined ? null : value));
"""


def test_hollow_functions_do_nothing_once_the_module_has_loaded(tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("there is no node here")
    prelude = "const register = () => {};\nlet later;\n"
    old = prelude + "\n".join(pair[0] for pair in CHANGES)
    done: HollowSource | None = hollow("a.mjs", old, prelude + "\n".join(pair[1] for pair in CHANGES))
    assert done is not None
    (tmp_path / "a.mjs").write_text(done.text)
    (tmp_path / "run.mjs").write_text(RUN)
    ran = subprocess.run(["node", "run.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    got = json.loads(ran.stdout)
    # The constructor of Shape did not change, and `made` was made while the module loaded.
    kept = {key: got.pop(key) for key in ("n", "made", "odd", "names")}
    assert kept == {"n": 3, "made": 5, "odd": [], "names": []}
    assert set(got.values()) == {None}, got


def test_a_type_checker_leaves_a_hollow_file_alone() -> None:
    done = hollow("a.ts", "", "#!/usr/bin/env node\nexport const f = (): number => 1;\n")
    assert done is not None
    assert done.text.startswith("#!/usr/bin/env node\n// @ts-nocheck\nexport")
