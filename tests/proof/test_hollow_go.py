"""Go with changed bodies emptied."""

# ruff: noqa: E501
from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.proof.hollow import hollow
from windlass.proof.hollow.syntax import parse

HEAD = 'package calc\n\nimport (\n\t"errors"\n\t"fmt"\n\t"strings"\n\t"time"\n)\n'
#: pairs of a text before and after a change
CHANGES = [
    ("func Mul(a, b int) int { return a + b }", "func Mul(a, b int) int { return a * b }"),
    ("func Div(a, b int) (int, error) { return a, nil }", 'func Div(a, b int) (int, error) {\n\t// no\n\tif b == 0 {\n\t\treturn 0, errors.New("zero")\n\t}\n\treturn a / b, nil\n}'),
    ("func Named(a int) (n int, err error) { n = a; return }", "func Named(a int) (n int, err error) { n = a + 1; return }"),
    ("func Show(words ...string) {}", 'func Show(words ...string) { fmt.Println(strings.Join(words, " ")) }'),
    ("func Map[T, U any](xs []T, f func(T) U) []U { return nil }", "func Map[T, U any](xs []T, f func(T) U) (out []U) {\n\tfor _, x := range xs {\n\t\tout = append(out, f(x))\n\t}\n\treturn out\n}"),
    ("type Stack[T any] struct{ items []T }", "type Stack[T any] struct{ items []T; size int }"),
    ("func (s *Stack[T]) Push(x T) {}", "func (s *Stack[T]) Push(x T) { s.items = append(s.items, x) }"),
    ("func (s Stack[T]) Top() (T, bool) { var none T; return none, false }", "func (s Stack[T]) Top() (T, bool) { return s.items[0], true }"),
    ("const Limit uint8 = 3", "const Limit uint8 = 200"),
    ("const Wait = time.Second", "const Wait = 5 * time.Second"),
    ("const Letter byte = 'a'", "const Letter byte = 'b'"),
    ("const Name, On = \"\", false", "const Name, On = \"x\", true"),
    ("const (\n\tRed = iota\n)", "const (\n\tRed = iota\n\tBlue\n)"),
    ('var ErrFull = errors.New("a")', 'var ErrFull = errors.New("full")'),
    ("var Names = []string{}", 'var Names = []string{strings.ToUpper("a"), fmt.Sprint(1)}'),
    ("var Codes = map[string]int{}", 'var Codes = map[string]int{"a": 1}'),
    ("var Op = func(a int) (int, error) { return 0, nil }", "var Op = func(a int) (int, error) { return a, nil }"),
    ("var ops = struct{ F func() [2]int }{}", "var ops = struct{ F func() [2]int }{F: func() [2]int { return [2]int{1, 2} }}"),
    ("var built = build()", "var built = build()"),
    ('func build() map[string]int { return map[string]int{} }', 'func build() map[string]int { return map[string]int{"a": 1} }'),
    ("var first = 0", 'var first = built["a"]'),
    ("func init() {}", 'func init() { built["b"] = 2 }'),
    ("func loop() int { return 0 }", "func loop() int {\nagain:\n\tfor {\n\t\tgoto again\n\t}\n}"),
    ("func results() (func() (a, b int), chan<- int) { return nil, nil }", "func results() (func() (a, b int), chan<- int) { panic(1) }"),
]  # fmt: skip
USES = "\nvar (\n\t_ = fmt.Sprint\n\t_ = strings.Join\n\t_ = errors.New\n\t_ = time.Second\n)\n"


@given(data=st.data())
def test_what_is_hollow_parses_stays_so_and_has_the_rest_as_it_was(data: st.DataObject) -> None:
    pairs = data.draw(st.permutations(CHANGES))
    changed = data.draw(st.lists(st.booleans(), min_size=len(pairs), max_size=len(pairs)))
    old = "\n// next\n".join([HEAD, *(pair[0] for pair in pairs)])
    texts = [pair[1] if now else pair[0] for pair, now in zip(pairs, changed, strict=True)]
    done = hollow("calc/a.go", old, "\n// next\n".join([HEAD, *texts]))
    if done is None:
        return
    assert parse("go", done.text.encode()) is not None, done.text
    assert hollow("calc/a.go", old, done.text) is None, done.text
    pieces = done.text.split("\n// next\n")
    assert pieces[0] == HEAD
    for before, now, piece in zip(texts, changed, pieces[1:], strict=True):
        assert now or piece.startswith(before)


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [
        ("", "func F() int { return 1 }\n\nvar x = F()\n", ["line 3: F is used while the package loads", "line 5: x is computed while the package loads"]),
        ("func F() { g() }\n", "func F() {}\n\nfunc G() { g() }\n", ["line 3: F does nothing now"]),
        ("type T struct{}\n", "type T struct{ x int }\n\nfunc (t T) X() int { return t.x }\n", ["line 3: type T"]),
        ("", "const (\n\tA = iota\n\tB\n)\n\nfunc F() int { return B }\n", ["line 4: A is one of a series", "line 5: B is one of a series"]),
        ("", "const N = 3\n\nvar table [N]int\n\nfunc F() int { return table[0] }\n", ["line 3: N is used while the package loads"]),
        ("", "type T struct{}\n\nvar _ I = (*T)(nil)\n\nfunc (t *T) F() { g() }\n", []),
        ("", "func init() { g() }\n", []),
    ],
)  # fmt: skip
def test_it_is_said_what_had_to_stay(old: str, new: str, left: list[str]) -> None:
    done = hollow("a.go", f"package a\n\n{old}", f"package a\n\n{new}")
    assert done is not None
    assert (list(done.left), done.whole) == (left, not left)


@pytest.mark.parametrize("new", ["package a\n\nfunc (", 'package a\n\nimport "fmt"\n', "package a\n\nfunc F() {}\n"])
def test_there_is_nothing_hollow_where_nothing_can_be_emptied(new: str) -> None:
    assert hollow("a.go", "", new) is None


TEST = """package calc

import "testing"

func TestHollow(t *testing.T) {
	n, err := Div(4, 2)
	named, _ := Named(1)
	op, _ := Op(3)
	s := &Stack[int]{}
	s.Push(1)
	_, ok := s.Top()
	list := Map([]int{1}, func(x int) int { return x })
	got := []any{Mul(2, 3), n, err, named, op, len(s.items), ok, len(list), len(Names), len(Codes), ops.F(), len(built), first}
	want := []any{0, 0, nil, 0, 0, 0, false, 0, 0, 0, [2]int{}, 1, 1}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%d: %v", i, got[i])
		}
	}
	if Limit == 200 || Name == "x" || On || Letter == 'b' || ErrFull.Error() == "full" || Wait == 5000000000 {
		t.Error("constants")
	}
}
"""


@pytest.mark.long
def test_a_hollow_package_compiles_and_its_functions_do_nothing(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("there is no go here")
    old = HEAD + "\n".join(pair[0] for pair in CHANGES) + USES
    # Without the uses: what the changed code needs its imports for must go on counting.
    done = hollow("calc/a.go", old, HEAD + "\n".join(pair[1] for pair in CHANGES))
    assert done is not None
    files = {"go.mod": "module example.com/m\n\ngo 1.18\n", "calc/a.go": done.text, "calc/a_test.go": TEST}
    (tmp_path / "calc").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    ran = subprocess.run(["go", "test", "./calc"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr + done.text
