"""Go through the whole proof: `go test -json` and hollow packages."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from proofs import Proving
from windlass.runs.init import GO_TEST

pytestmark = [
    pytest.mark.skipif(shutil.which("go") is None, reason="there is no go here"),
    pytest.mark.long,
]

CALC = (
    'package calc\n\nimport "strings"\n\nfunc Half(n int) int { return n / 2 }\n\n'
    "func Up(s string) string { return strings.ToUpper(s) }\n"
)
TEST = (
    'package calc\n\nimport "testing"\n\n'
    'func TestHalf(t *testing.T) {\n\tif Half(8) != 4 {\n\t\tt.Fatal("half")\n\t}\n}\n'
)
BASE = {"go.mod": "module example.com/m\n\ngo 1.18\n", "calc/calc.go": CALC, "calc/calc_test.go": TEST}
MUL = CALC + "\nfunc Mul(a, b int) int { return a * b }\n"
STACK = (
    'package calc\n\nimport "errors"\n\ntype Stack struct{ items []int }\n\n'
    'func (s *Stack) Push(x int) (n int, err error) {\n\tif x < 0 {\n\t\treturn 0, errors.New("negative")\n\t}\n'
    "\ts.items = append(s.items, x)\n\treturn len(s.items), nil\n}\n\n"
    "func (s *Stack) Top() (int, error) { return s.items[len(s.items)-1], nil }\n"
)


def case(body: str, *imports: str, package: str = "calc", more: str = "") -> str:
    named = "".join(f'import "{name}"\n' for name in ("testing", *imports))
    return f"package {package}\n\n{named}\n{more}\nfunc TestNew(t *testing.T) {{\n\t{body}\n}}\n"


def want(condition: str) -> str:
    return f'if !({condition}) {{ t.Fatal("wrong") }}'


@pytest.fixture
def proving(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Proving:
    # One cache for all: every test has a home of its own, and would compile the standard library there.
    cache = tmp_path_factory.getbasetemp().parent / "go-cache"
    command = ["env", f"GOCACHE={cache}", *GO_TEST]
    return Proving(tmp_path, run_files=command, base=BASE, tests='weak = "refuse"')


HONEST = {
    "a new function": ({"calc/calc.go": MUL}, case(want("Mul(2, 3) == 6"))),
    "a bug fix": (
        {"calc/calc.go": CALC.replace("n / 2", "(n + 1) / 2")},
        case(want("Half(3) == 2")),
    ),
    "a type with methods": (
        {"calc/stack.go": STACK},
        case(f"s := &Stack{{}}\n\ts.Push(4)\n\ttop, _ := s.Top()\n\t{want('top == 4')}"),
    ),
    "an error": (
        {"calc/stack.go": STACK},
        case(f"_, err := (&Stack{{}}).Push(-1)\n\t{want('err != nil')}"),
    ),
    "a constant": ({"calc/calc.go": CALC + "\nconst Limit = 7\n"}, case(want("Limit == 7"))),
    "a list": (
        {"calc/calc.go": CALC + '\nvar Names = []string{strings.ToUpper("a")}\n'},
        case(want('len(Names) == 1 && Names[0] == "A"')),
    ),
    "a function that the package calls itself": (
        {"calc/calc.go": MUL + "\nvar Area = Mul(2, 3)\n"},
        case(want("Area == 6 && Mul(3, 3) == 9")),
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_go_is_proved(proving: Proving, name: str) -> None:
    files, test = HONEST[name]
    found = proving.change({**files, "calc/new_test.go": test})
    assert (found.proof, found.ok) == ("proved", True), found.reason


def test_a_new_package_is_proved_by_its_hollow_self(proving: Proving) -> None:
    files = {
        "area/area.go": "package area\n\nfunc Area(a, b int) int { return a * b }\n",
        "area/area_test.go": case(want("Area(2, 3) == 6"), package="area"),
    }
    found = proving.change(files)
    # What does not compile is absent, not red.
    assert (found.proof, found.tests) == ("proved", {"red by absence": ["example.com/m/area::TestNew"]})


CHEATS = {
    "the name exists": ({"calc/calc.go": MUL}, case("_ = Mul")),
    "the function is called": ({"calc/calc.go": MUL}, case("Mul(2, 3)")),
    "the failure is only logged": ({"calc/calc.go": MUL}, case('if Mul(2, 3) != 6 { t.Log("wrong") }')),
    "the test skips itself": ({"calc/calc.go": MUL}, case("t.Skip()\n\t" + want("Mul(2, 3) == 6"))),
    "all subtests skip themselves": (
        {"calc/calc.go": MUL},
        case('_ = Mul\n\tt.Run("one", func(t *testing.T) { t.Skip() })'),
    ),
    "the source has the words": (
        {"calc/calc.go": MUL},
        case(
            'text, _ := os.ReadFile("calc.go")\n\t' + want('strings.Contains(string(text), "a * b")'), "os", "strings"
        ),
    ),
    "the type has the method": (
        {"calc/stack.go": STACK},
        case(want("reflect.TypeOf(&Stack{}).NumMethod() == 2"), "reflect"),
    ),
    "init calls it": ({"calc/calc.go": MUL + "\nfunc init() { Mul(1, 2) }\n"}, case("_ = Mul")),
    "a data file changes as well": ({"calc/calc.go": MUL, "calc/data.json": "{}\n"}, case("_ = Mul")),
    "another language changes as well": ({"calc/calc.go": MUL, "run.rb": "puts 1\n"}, case("_ = Mul")),
    "the test is never built": ({"calc/calc.go": MUL}, "//go:build never\n\n" + case(want("Mul(2, 3) == 6"))),
    "the test cannot fail": ({"calc/calc.go": MUL}, case("")),
    "a dot import": (
        {
            "calc/calc.go": MUL.replace('import "strings"', 'import (\n\t. "fmt"\n\t"strings"\n)')
            + "\nfunc Show() string { return Sprint(1) }\n"
        },
        case("_ = Show"),
    ),
}


#: a part of the change cannot be emptied, so the proof is weak and by default a person is asked
WEAK = {"init calls it"}


@pytest.mark.parametrize("name", CHEATS)
def test_go_tests_that_ask_nothing_are_not_proved(proving: Proving, name: str) -> None:
    files, test = CHEATS[name]
    found = proving.change({**files, "calc/new_test.go": test})
    assert (found.proof, found.ok) == ("weak" if name in WEAK else "unproved", False), found.reason


def test_a_test_main_that_exits_with_0_is_no_proof(proving: Proving) -> None:
    exits = "func TestMain(m *testing.M) { os.Exit(0) }"
    files = {
        "area/area.go": "package area\n\nfunc Area(a, b int) int { return a * b }\n",
        "area/area_test.go": case(want("Area(2, 3) == 7"), "os", package="area", more=exits),
    }
    found = proving.change(files)
    assert (found.proof, found.reason) == ("unproved", "no test passes that did not pass before")


def test_a_test_main_that_runs_no_tests_weakens_those_that_were_there(proving: Proving) -> None:
    test = case("_ = Mul", "os", more="func TestMain(m *testing.M) { os.Exit(0) }")
    found = proving.change({"calc/calc.go": MUL, "calc/new_test.go": test, "calc/calc_test.go": TEST + "\n"})
    assert (found.proof, found.ok) == ("weakened", False)


def test_a_test_main_that_hides_a_failure_does_not_make_it_green(proving: Proving) -> None:
    hides = "func TestMain(m *testing.M) { m.Run(); os.Exit(0) }"
    found = proving.change({"calc/calc.go": MUL, "calc/new_test.go": case(want("Mul(2, 3) == 7"), "os", more=hides)})
    assert found.proof == "unproved"
    assert "not green at its head: example.com/m/calc::TestNew" in found.reason
