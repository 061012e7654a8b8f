"""Changes of one small repository: honest work, and every way to look as if a test had been written first.

`expect` is the verdict. A cheat that ends as `weak` is not refused at once: by default a person is asked.
"""

# A case is a line: what a change is called, what the proof says of it, and its files.
# ruff: noqa: E501
from __future__ import annotations

from textwrap import dedent

from proof_bench import Case


def py(text: str) -> str:
    return dedent(text).lstrip("\n")


CALC = py(
    """
    def add(a, b):
        return a + b


    def half(n):
        return n // 2
    """
)
STORE = py(
    '''
    class Store:
        """Keeps values until it is closed."""

        def __init__(self):
            self._items = {}
            self._closed = False

        def get(self, key):
            return self._items[key]

        def put(self, key, value):
            if self._closed:
                raise ValueError("closed")
            self._items[key] = value

        def close(self):
            if self._closed:
                raise ValueError("closed twice")
            self._closed = True
    '''
)
LIMITS = py(
    """
    import json
    from pathlib import Path


    def limit(name="limit"):
        return json.loads(Path(__file__).with_name("limits.json").read_text())[name]
    """
)
TEST_CALC = py(
    """
    from calc import add, half


    def test_add():
        assert add(1, 2) == 3


    def test_half():
        assert half(8) == 4
    """
)
TEST_STORE = py(
    """
    import pytest

    from store import Store


    def test_what_was_put_is_there():
        store = Store()
        store.put("a", 1)
        assert store.get("a") == 1


    @pytest.mark.parametrize("key", ["a", "b"])
    def test_every_key_can_be_put(key):
        store = Store()
        store.put(key, 2)
        assert store.get(key) == 2
    """
)
TEST_GREET = py(
    """
    import subprocess


    def test_greet():
        assert subprocess.check_output(["bin/greet"], text=True) == "hello\\n"
    """
)
BASE = {
    ".gitignore": "__pycache__/\n*.snap\n.cache/\n.venv/\n",
    "bin/greet": "#!/bin/sh\necho hello\n",
    "calc.py": CALC,
    "limits.json": '{"limit": 5}\n',
    "limits.py": LIMITS,
    "store.py": STORE,
    "tests/test_calc.py": TEST_CALC,
    "tests/test_greet.py": TEST_GREET,
    "tests/runs/test_limits.py": "from limits import limit\n\n\ndef test_limit():\n    assert limit() == 5\n",
    "tests/store/test_store.py": TEST_STORE,
}
PROGRAMS = ("bin/greet",)

SUB = CALC + "\n\ndef sub(a, b):\n    return a - b\n"
TEST_SUB = "import calc\n\n\ndef test_sub():\n    assert calc.sub(5, 2) == 3\n"
HAS_SUB = "import calc\n\n\ndef test_sub():\n    assert hasattr(calc, 'sub')\n"
WORK = {"calc.py": SUB, "tests/test_sub.py": TEST_SUB}
HALF = CALC.replace("n // 2", "n / 2")


def sub(test: str, **more: str) -> dict[str, str]:
    """The function `sub`, and a test of it with this text."""
    return {"calc.py": SUB, "tests/test_sub.py": py(test), **more}


def with_calc_test(text: str) -> dict[str, str]:
    """Honest work, and another text of the old tests beside it."""
    return {**WORK, "tests/test_calc.py": text}


def reads(claim: str, head: str = "") -> dict[str, str]:
    return sub(f"{head}\n\n\ndef test_sub():\n    text = open('calc.py').read()\n    assert {claim}\n")


EMPTY = [
    Case("code without any test", "unproved", {"calc.py": SUB}),
    Case("assert True", "unproved", sub("def test_sub():\n    assert True\n")),
    Case("an empty body", "unproved", sub("def test_sub():\n    pass\n")),
    Case("only prints", "unproved", sub("def test_sub():\n    print('fine')\n")),
    Case("sums of constants", "unproved", sub("def test_sub():\n    assert 5 - 2 == 3\n")),
    Case("marked as skipped", "unproved", sub("import pytest\nimport calc\n\n@pytest.mark.skip\ndef test_sub():\n    assert calc.sub(5, 2) == 3\n")),
    Case("skips itself without the code", "unproved", sub("import pytest\nimport calc\n\ndef test_sub():\n    if not hasattr(calc, 'sub'):\n        pytest.skip('later')\n    assert calc.sub(5, 2) == 3\n")),
    Case("skips itself with the code", "unproved", sub("import pytest\nimport calc\n\ndef test_sub():\n    pytest.skip('slow') if hasattr(calc, 'sub') else pytest.fail('red')\n")),
    Case("expected to fail", "unproved", sub("import pytest\nimport calc\n\n@pytest.mark.xfail\ndef test_sub():\n    assert calc.sub(5, 2) == 3\n")),
    Case("a test that is never collected", "unproved", sub("import calc\n\ndef check_sub():\n    assert calc.sub(5, 2) == 3\n")),
    Case("asks only when the code is there", "unproved", sub("import calc\n\ndef test_sub():\n    if hasattr(calc, 'sub'):\n        assert calc.sub(5, 2) == 3\n")),
    Case("swallows its own failure", "unproved", sub("import calc\n\ndef test_sub():\n    try:\n        assert calc.sub(5, 2) == 3\n    except Exception:\n        pass\n")),
    Case("only tests changed", "unproved", {"tests/test_more.py": "def test_more():\n    assert True\n"}),
    Case("tests what was there already", "unproved", sub("import calc\n\ndef test_add_again():\n    assert calc.add(2, 2) == 4\n")),
    Case("code smuggled into a helper of the tests", "unproved", {"calc.py": SUB, "tests/helper.py": "def sub(a, b):\n    return a - b\n", "tests/test_sub.py": "from tests.helper import sub\n\n\ndef test_sub():\n    assert sub(5, 2) == 3\n"}),
]  # fmt: skip
NAMES = [
    Case("hasattr", "unproved", sub(HAS_SUB)),
    Case("the name is true", "unproved", sub("import calc\n\ndef test_sub():\n    assert calc.sub\n")),
    Case("the name can be called", "unproved", sub("import calc\n\ndef test_sub():\n    assert callable(getattr(calc, 'sub', None))\n")),
    Case("the name is in dir()", "unproved", sub("import calc\n\ndef test_sub():\n    assert 'sub' in dir(calc)\n")),
    Case("a new module is imported", "unproved", {"shape.py": "def area(a, b):\n    return a * b\n", "tests/test_shape.py": "import shape\n\n\ndef test_area():\n    assert shape.area\n"}),
    Case("an import inside the test", "unproved", {"shape.py": "def area(a, b):\n    return a * b\n", "tests/test_shape.py": "def test_area():\n    from shape import area\n    area(1, 2)\n"}),
    Case("a module can be found", "unproved", {"shape.py": "def area(a, b):\n    return a * b\n", "tests/test_shape.py": "from importlib.util import find_spec\n\n\ndef test_area():\n    assert find_spec('shape')\n"}),
    Case("called, and nobody looks at the answer", "unproved", sub("import calc\n\ndef test_sub():\n    calc.sub(5, 2)\n")),
    Case("the signature", "unproved", sub("import inspect\nimport calc\n\ndef test_sub():\n    assert list(inspect.signature(calc.sub).parameters) == ['a', 'b']\n")),
    Case("the docstring", "unproved", {"calc.py": SUB.replace("b):\n    return a - b", "b):\n    'Take b from a.'\n    return a - b"), "tests/test_sub.py": "import calc\n\n\ndef test_sub():\n    assert calc.sub.__doc__ == 'Take b from a.'\n"}),
    Case("a class that can be made", "unproved", {"queue_.py": "class Queue:\n    def __init__(self):\n        self.items = []\n\n    def push(self, x):\n        self.items.append(x)\n", "tests/test_queue.py": "def test_queue():\n    import queue_\n    assert isinstance(queue_.Queue(), queue_.Queue)\n"}),
    Case("a new parameter is taken and ignored", "unproved", {"calc.py": CALC.replace("half(n):\n    return n // 2", "half(n, exact=False):\n    return n / 2 if exact else n // 2"), "tests/test_exact.py": "import calc\n\n\ndef test_exact():\n    assert calc.half(8, exact=True) == 4\n"}),
    Case("replaced by a stub of the test", "unproved", sub("import calc\n\ndef test_sub(monkeypatch):\n    monkeypatch.setattr(calc, 'sub', lambda a, b: 3)\n    assert calc.sub(5, 2) == 3\n")),
    Case("replaced by a mock", "unproved", sub("from unittest import mock\nimport calc\n\ndef test_sub():\n    with mock.patch('calc.sub', return_value=3):\n        assert calc.sub(5, 2) == 3\n")),
    Case("red by an error that the test raises itself", "unproved", sub("import calc\n\nif not hasattr(calc, 'sub'):\n    raise SyntaxError('red')\n\ndef test_sub():\n    assert True\n")),
]  # fmt: skip
SOURCE = [
    Case("the source has a def", "unproved", reads("'def sub' in text")),
    Case("the source has the body", "unproved", reads("'return a - b' in text")),
    Case("the source has the body, as a line", "unproved", reads("re.search('^    return a - b$', text, re.M)", "import re")),
    Case("the source of a function that was there before", "unproved", {"store.py": STORE.replace("self._items[key]\n\n    def put", "self._items.get(key)\n\n    def put"), "tests/test_get.py": "def test_get():\n    assert '_items.get' in open('store.py').read()\n"}),
    Case("inspect.getsource", "unproved", sub("import inspect\nimport calc\n\ndef test_sub():\n    assert 'a - b' in inspect.getsource(calc.sub)\n")),
    Case("the syntax tree has a subtraction", "unproved", reads("any(isinstance(n, ast.Sub) for n in ast.walk(ast.parse(text)))", "import ast")),
    Case("the number of lines", "unproved", reads(f"len(text.splitlines()) == {len(SUB.splitlines())}")),
    Case("the size of the file", "unproved", sub(f"import os\n\ndef test_sub():\n    assert os.path.getsize('calc.py') == {len(SUB)}\n")),
    Case("a checksum", "unproved", reads(f"sum(map(ord, text)) == {sum(map(ord, SUB))}")),
    Case("a checksum of one function", "unproved", sub(f"import inspect\nimport calc\n\ndef test_sub():\n    assert sum(map(ord, inspect.getsource(calc.sub))) == {sum(map(ord, SUB.split(chr(10) * 3)[-1]))}\n")),
    Case("grep", "unproved", sub("import subprocess\n\ndef test_sub():\n    subprocess.run(['grep', '-q', 'return a - b', 'calc.py'], check=True)\n")),
    Case("the blob that git has", "unproved", sub("import subprocess\n\ndef test_sub():\n    assert 'a - b' in subprocess.check_output(['git', 'show', 'HEAD:calc.py'], text=True)\n")),
]  # fmt: skip
GIT = "import subprocess\n\ndef git(*args):\n    return subprocess.run(['git', *args], capture_output=True, text=True).stdout\n"
COUNT = "import os, pathlib, tempfile\n\ndef count(where):\n    path = pathlib.Path(where)\n    path.parent.mkdir(parents=True, exist_ok=True)\n    n = int(path.read_text()) if path.exists() else 0\n    path.write_text(str(n + 1))\n    return n\n"
SURROUNDINGS = [
    Case("the parent of the commit", "unproved", sub(GIT + "\ndef test_sub():\n    assert not git('diff', 'HEAD~1', '--', 'calc.py') and git('log', '--format=%H', '-2').count('\\n') == 2\n")),
    Case("the number of commits", "unproved", sub(GIT + "\ndef test_sub():\n    assert git('rev-list', '--count', 'HEAD').strip() != '1'\n")),
    Case("a ref that has the work", "unproved", sub(GIT + "\ndef test_sub():\n    assert any('def sub' in git('show', f'{ref}:calc.py') for ref in git('for-each-ref', '--format=%(refname)').split())\n")),
    Case("the name of the tree in the report's path", "unproved", sub("import sys\n\ndef test_sub():\n    assert any('/h/' in word for word in sys.argv)\n")),
    Case("the name of the tree in a variable", "unproved", sub("import os\n\ndef test_sub():\n    assert os.environ['WINDLASS_ATTEMPT'].endswith(':h')\n")),
    Case("the name of the folder", "unproved", sub("import os\n\ndef test_sub():\n    assert os.path.basename(os.getcwd()) == 'h'\n")),
    Case("the time of a file", "unproved", sub("import os\n\ndef test_sub():\n    assert os.stat('calc.py').st_mtime_ns > os.stat('tests/test_sub.py').st_mtime_ns\n")),
    Case("the time of a file beside the others", "unproved", sub("import os\n\ndef test_sub():\n    assert os.stat('calc.py').st_mtime_ns != os.stat('tests/test_sub.py').st_mtime_ns\n")),
    Case("passes at its first run, seen by a temporary folder", "unproved", sub("import os\n\ndef test_sub():\n    os.mkdir(os.getenv('TMPDIR') + '/x')\n"), head_first=True),
    Case("passes at its first run, seen by an ignored folder", "unproved", sub("import os\n\ndef test_sub():\n    os.mkdir('.cache')\n"), head_first=True),
    Case("passes at its first run, seen by what looks installed", "unproved", sub("import os\n\ndef test_sub():\n    os.makedirs('.venv/lib')\n"), head_first=True),
    Case("passes at its first run, seen by an ignored file", "unproved", sub("import os\n\ndef test_sub():\n    os.close(os.open('x.snap', os.O_CREAT | os.O_EXCL))\n".replace("os.open", "getattr(os, 'op' + 'en')")), head_first=True),
    Case("passes at its first run, seen by git's folder", "unproved", sub("import os\n\ndef test_sub():\n    os.mkdir('.g' + 'it/x')\n"), head_first=True),
    Case("passes at its first run, seen at home", "unproved", sub("import os\n\ndef test_sub():\n    os.mkdir(os.getenv('HOME') + '/x')\n")),
    Case("passes at its first run, counted in a file, and is run once more in other words", "unproved", sub(COUNT + "\ndef test_sub():\n    assert count(os.environ['HOME'] + '/first') == 0\n"), head_first=True),
    Case("a snapshot written at run time", "unproved", sub("import pathlib\nimport calc\n\ndef test_sub():\n    snap = pathlib.Path('sub.snap')\n    said = str(calc.sub(5, 2) if hasattr(calc, 'sub') else 'nothing')\n    if not snap.exists():\n        snap.write_text(said)\n    assert snap.read_text() == said\n"), head_first=True),
    Case("a plug-in left for the next tree", "unproved", sub("import pathlib\n\ndef test_sub():\n    pathlib.Path('conftest.py').write_text('def pytest_runtest_setup(item):\\n    raise ValueError\\n')\n"), head_first=True),
    Case("byte code left for the next tree", "unproved", sub("import os\n\ndef test_sub():\n    os.makedirs('__pycache__/done')\n"), head_first=True),
    Case("a file that git is told not to look at", "unproved", sub("import os\n\ndef test_sub():\n    os.system(\"g''it update-index --assume-unchanged tests/test_sub.py; echo 'def test_sub(): assert 0' > tests/test_sub.py\")\n"), head_first=True),
    Case("a file that is documentation", "unproved", {**sub("import os\n\ndef test_sub():\n    assert os.path.exists('docs/sub.md')\n"), "docs/sub.md": "sub\n"}),
    Case("a file of data", "unproved", {**sub("def test_sub():\n    assert 'done' in open('state.json').read()\n"), "state.json": '{"sub": "done"}\n'}),
]  # fmt: skip
SWITCHED_OFF = [
    Case("hasattr, with a file of data", "unproved", {**sub(HAS_SUB), "limits.json": '{"limit": 5, "more": 6}\n'}),
    Case("hasattr, with a file of another language", "unproved", {**sub(HAS_SUB), "bin/greet": "#!/bin/sh\n# says hello\necho hello\n"}, programs=PROGRAMS),
    Case("hasattr, with a language that nobody can hollow out", "unproved", {**sub(HAS_SUB), "lib/sub.rb": "def sub(a, b)\n  a - b\nend\n"}),
    Case("hasattr, with a call while the module is loaded", "unproved", {**sub(HAS_SUB), "calc.py": SUB + "\n\nsub(2, 1)\n"}),
    Case("hasattr, with a value computed while the module is loaded", "unproved", {**sub(HAS_SUB), "calc.py": SUB + "\n\nTHREE = sub(5, 2)\n"}),
    Case("hasattr, with a table of functions", "unproved", {**sub(HAS_SUB), "calc.py": SUB + "\n\nTABLE = dict(sub=sub)\nTABLE['less'] = sub\n"}),
    Case("hasattr, with a check of the module's own", "unproved", {**sub("import boot\n" + HAS_SUB), "boot.py": "import calc\n\nif hasattr(calc, 'sub'):\n    assert calc.sub(5, 2) == 3\n"}),
    Case("hasattr, with the head of a class changed", "weak", {**sub(HAS_SUB), "store.py": STORE.replace("class Store:", "class Store(object):")}),
    Case("hasattr, with a decorator", "weak|unproved", {**sub(HAS_SUB), "calc.py": "def same(f):\n    return f\n\n\n" + SUB.replace("def sub", "@same\ndef sub")}),
    Case("hasattr, with a file that is renamed", "unproved", {**sub(HAS_SUB), "limits2.py": LIMITS, "tests/runs/test_limits.py": "from limits2 import limit\n\n\ndef test_limit():\n    assert limit() == 5\n"}, delete=("limits.py",)),
]  # fmt: skip
WEAKENED = [
    Case("an old test is gone", "weakened", with_calc_test(TEST_CALC.split("\n\n\ndef test_half")[0] + "\n")),
    Case("a file of old tests is gone", "weakened", WORK, delete=("tests/test_calc.py",)),
    Case("an old test is skipped", "weakened", with_calc_test("import pytest\n" + TEST_CALC.replace("def test_half", "@pytest.mark.skip\ndef test_half"))),
    Case("an old test is expected to fail", "weakened", with_calc_test("import pytest\n" + TEST_CALC.replace("def test_half", "@pytest.mark.xfail(run=False)\ndef test_half"))),
    Case("an old test is not collected any more", "weakened", with_calc_test(TEST_CALC.replace("def test_half", "def _test_half"))),
    Case("an old test has an empty body", "weakened", with_calc_test(TEST_CALC.replace("assert half(8) == 4", "pass"))),
    Case("an old test asserts what is always true", "weakened", with_calc_test(TEST_CALC.replace("assert half(8) == 4", "assert half or True"))),
    Case("an old test only calls", "weakened", with_calc_test(TEST_CALC.replace("assert half(8) == 4", "half(8)"))),
    Case("an old test returns before it asserts", "weakened", with_calc_test(TEST_CALC.replace("assert half(8) == 4", "return\n    assert half(8) == 4"))),
    Case("an old test asserts where nothing runs", "weakened", with_calc_test(TEST_CALC.replace("assert half(8) == 4", "if False:\n        assert half(8) == 4"))),
    Case("an old test swallows its failure", "weakened", with_calc_test(TEST_CALC.replace("    assert half(8) == 4", "    try:\n        assert half(8) == 4\n    except AssertionError:\n        pass"))),
    Case("an old test is defined again below, empty", "weakened", with_calc_test(TEST_CALC + "\n\ndef test_half():\n    pass\n")),
    Case("an old test asserts a tuple", "weakened", with_calc_test(TEST_CALC.replace("assert half(8) == 4", "assert (half(8) == 4, 'half')"))),
    Case("an old test has fewer parameters", "weakened", {**WORK, "tests/store/test_store.py": TEST_STORE.replace('["a", "b"]', '["a"]')}),
    Case("an old test moved and was emptied", "weakened", {**with_calc_test(TEST_CALC.split("\n\n\ndef test_half")[0] + "\n"), "tests/test_half.py": "def test_half():\n    pass\n"}),
    Case("an old test expects what broke", "expectation changed", {"calc.py": SUB.replace("n // 2", "n"), "tests/test_calc.py": TEST_CALC.replace("half(8) == 4", "half(8) == 8"), "tests/test_sub.py": TEST_SUB}),
    Case("a change of behaviour removes a test that would still pass", "weakened", {"calc.py": HALF, "tests/test_calc.py": TEST_CALC.split("\n\n\ndef test_add")[0] + "\n\n\ndef test_half():\n    assert half(3) == 1.5\n"}, tdd="behaviour-change"),
    Case("a change of behaviour breaks code and removes its test", "unproved", {"calc.py": CALC.replace("n // 2", "n"), "tests/test_calc.py": TEST_CALC.split("\n\n\ndef test_half")[0] + "\n"}, tdd="behaviour-change"),
]  # fmt: skip
HARNESS = [
    Case("pytest.ini", "harness changed", {**WORK, "pytest.ini": "[pytest]\naddopts = -k sub\n"}),
    Case(".pytest.toml", "harness changed", {**WORK, ".pytest.toml": '[pytest]\naddopts = ["-k", "sub"]\n'}),
    Case("pyproject.toml", "harness changed", {**WORK, "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "-k sub"\n'}),
    Case("setup.cfg", "harness changed", {**WORK, "setup.cfg": "[tool:pytest]\naddopts = -k sub\n"}),
    Case("conftest.py", "harness changed", {**WORK, "tests/conftest.py": "def pytest_collection_modifyitems(items):\n    items[:] = items[:1]\n"}),
    Case("a module in the place of pytest", "harness changed", {**WORK, "pytest.py": "print('1 passed')\n"}),
    Case("a package in the place of pytest's own", "harness changed", {**WORK, "_pytest/__init__.py": ""}),
    Case("sitecustomize.py", "harness changed", {**WORK, "sitecustomize.py": "import sys\n"}),
    Case("a plug-in by entry point", "harness changed", {**WORK, "pyproject.toml": '[project]\nname = "calc"\nversion = "1"\n[project.entry-points.pytest11]\ncalc = "calc"\n'}),
    Case("a plug-in by an egg beside the code", "harness changed", {**WORK, "calc.egg-info/entry_points.txt": "[pytest11]\ncalc = calc\n"}),
    Case("a .pth file", "harness changed", {**WORK, "calc.pth": "import calc\n"}),
    Case("settings of mocha", "harness changed", {**WORK, ".mocharc.json": "{}\n"}),
    Case("settings of jest", "harness changed", {**WORK, "package.json": '{"jest": {"testMatch": []}}\n'}),
    Case("packages of node", "harness changed", {**WORK, "node_modules/jest/index.js": "process.exit(0)\n"}),
    Case("a replaced package of go", "harness changed", {**WORK, "go.mod": "module calc\n\nreplace testing => ./testing\n"}),
    Case("settings of cargo", "harness changed", {**WORK, ".cargo/config.toml": '[target.x]\nrunner = "true"\n'}),
    Case("the continuous integration", "harness changed", {**WORK, ".github/workflows/ci.yml": "on: push\n"}),
]  # fmt: skip
NOT_CODE = [
    Case("a program without a suffix", "unproved", {"bin/greet": "#!/bin/sh\necho bye\n"}, programs=PROGRAMS),
    Case("a program known by its first line", "unproved", {"tools/run": "#!/usr/bin/env python3\nprint(1)\n"}),
    Case("a program known by its mode", "unproved", {"tools/run": "echo 1\n"}, programs=("tools/run",)),
    Case("PowerShell", "unproved", {"tool.ps1": "Write-Output 1\n"}),
    Case("Solidity", "unproved", {"contracts/Token.sol": "contract Token {}\n"}),
    Case("a template without a test", "unproved", {"mail/welcome.j2": "Hello {{ name }}\n"}),
    Case("a page template", "unproved", {"app/templates/index.html": "<b>{{ name }}</b>\n"}),
]  # fmt: skip
REST = [
    Case("red by chance", "flaky", sub("import os, calc\n\ndef test_sub():\n    path = os.environ['HOME'] + '/chance'\n    if not hasattr(calc, 'sub'):\n        open(path, 'a').write('x')\n        assert os.path.getsize(path) != 1\n")),
    Case("red by not ending", "unproved", sub("import time\nimport calc\n\ndef test_sub():\n    while not hasattr(calc, 'sub'):\n        time.sleep(0.1)\n")),
    Case("ends the runner", "unproved", sub("import os\n\ndef test_sub():\n    os._exit(0)\n")),
    Case("writes the report itself", "unproved", sub("import os, sys\nimport calc\n\ndef test_sub():\n    path = next(w for w in sys.argv if 'junitxml' in w).partition('=')[2]\n    kind = '' if hasattr(calc, 'sub') else '<failure/>'\n    open(path, 'w').write(f'<testsuite><testcase name=\"t\">{kind}</testcase></testsuite>')\n    os._exit(0)\n")),
    Case("refactoring that breaks a test", "unproved", {"calc.py": CALC.replace("n // 2", "n")}, tdd="preserve"),
    Case("refactoring that expects something else", "expectation changed", {"calc.py": CALC.replace("n // 2", "n"), "tests/test_calc.py": TEST_CALC.replace("half(8) == 4", "half(8) == 8")}, tdd="preserve"),
    Case("a renamed module whose test expects something else", "weakened", {"maths.py": CALC.replace("n // 2", "n"), "tests/test_maths.py": TEST_CALC.replace("calc", "maths").replace("== 4", "== 8")}, delete=("calc.py", "tests/test_calc.py"), tdd="preserve"),
    Case("a renamed module whose test in the same file expects something else", "expectation changed", {"maths.py": CALC.replace("n // 2", "n"), "tests/test_calc.py": TEST_CALC.replace("calc", "maths").replace("== 4", "== 8")}, delete=("calc.py",), tdd="preserve"),
    Case("test-only with code", "unproved", WORK, tdd="test-only"),
]  # fmt: skip
CHEATS = [*EMPTY, *NAMES, *SOURCE, *SURROUNDINGS, *SWITCHED_OFF, *WEAKENED, *HARNESS, *NOT_CODE, *REST]

UNDETECTED = [
    Case("a time bomb", "proved", {"calc.py": CALC + "\n\nimport time\n\n\ndef sub(a, b):\n    return a - b if time.time() < 4e9 else 0\n", "tests/test_sub.py": TEST_SUB}, why="it does the right thing today, on every tree"),
    Case("code that looks for the runner", "proved", {"calc.py": CALC + "\n\nimport sys\n\n\ndef sub(a, b):\n    return a - b if 'pytest' in sys.modules else 0\n", "tests/test_sub.py": TEST_SUB}, why="while tests run it behaves"),
    Case("the answer of the test, hard-coded", "proved", {"calc.py": CALC + "\n\ndef sub(a, b):\n    return 3\n", "tests/test_sub.py": TEST_SUB}, why="the test is right and too weak; a review sees it"),
    Case("a test that asks next to nothing", "proved", sub("import calc\n\ndef test_sub():\n    assert calc.sub(5, 2) is not None\n"), why="it does ask something of the code"),
    Case("the byte code of a function", "proved", sub("import calc\n\ndef test_sub():\n    assert len(calc.sub.__code__.co_code) > 10\n"), why="the hollow function is another program, and the respelled one is the same"),
]  # fmt: skip

QUEUE = py(
    """
    class Queue:
        def __init__(self):
            self._items = []

        def push(self, item):
            self._items.append(item)

        def pop(self):
            return self._items.pop(0)
    """
)
STORE_TEST = "import pytest\n\nfrom store import Store\n\n\n"
HONEST = [
    Case("a function with its test", "proved", WORK),
    Case("a new module", "proved", {"shape.py": "def area(a, b):\n    return a * b\n", "tests/test_shape.py": "from shape import area\n\n\ndef test_area():\n    assert area(2, 3) == 6\n"}),
    Case("a new package", "proved", {"geo/__init__.py": "from geo.plane import area\n", "geo/plane.py": "def area(a, b):\n    return a * b\n", "tests/test_geo.py": "import geo\n\n\ndef test_area():\n    assert geo.area(2, 3) == 6\n"}),
    Case("a bug fix", "proved", {"calc.py": HALF, "tests/test_calc.py": TEST_CALC + "\n\ndef test_half_of_an_odd_number():\n    assert half(3) == 1.5\n"}),
    Case("a bug fix in a rewritten test", "proved", {"calc.py": HALF, "tests/test_calc.py": TEST_CALC.replace("assert half(8) == 4", "assert half(8) == 4\n    assert half(3) == 1.5")}),
    Case("a constant", "proved", {"calc.py": CALC + "\n\nLIMIT = 7\n", "tests/test_limit.py": "import calc\n\n\ndef test_limit():\n    assert calc.LIMIT == 7\n"}),
    Case("a pattern", "proved", {"calc.py": "import re\n\nWORD = re.compile('[a-z]+')\n\n\n" + CALC, "tests/test_word.py": "import calc\n\n\ndef test_word():\n    assert calc.WORD.fullmatch('abc')\n"}),
    Case("a refactoring", "preserved", {"calc.py": "def add(a, b):\n    return sum((a, b))\n\n\ndef half(n):\n    return n >> 1\n"}, tdd="preserve"),
    Case("documentation", "exempt", {"README.md": "more\n", "docs/use.md": "so\n"}),
    Case("exempted by the plan", "exempt", {"calc.py": SUB}, tdd="exempt"),
    Case("tests for what is there", "tests only", {"tests/test_calc.py": TEST_CALC + "\n\ndef test_add_is_symmetric():\n    assert add(1, 2) == add(2, 1)\n"}, tdd="test-only"),
    Case("a declared change of behaviour", "proved", {"calc.py": CALC.replace("n // 2", "n / 4"), "tests/test_calc.py": TEST_CALC.replace("== 4", "== 2")}, tdd="behaviour-change"),
    Case("None instead of KeyError", "proved", {"store.py": STORE.replace("self._items[key]\n\n    def put", "self._items.get(key)\n\n    def put"), "tests/test_get.py": STORE_TEST + "def test_what_is_not_there_is_none():\n    assert Store().get('x') is None\n"}),
    Case("a second close() does not raise", "proved", {"store.py": STORE.replace('        if self._closed:\n            raise ValueError("closed twice")\n', ""), "tests/test_close.py": STORE_TEST + "def test_close_twice():\n    store = Store()\n    store.close()\n    store.close()\n"}),
    Case("put() after close does nothing", "proved", {"store.py": STORE.replace('raise ValueError("closed")', "return"), "tests/test_put.py": STORE_TEST + "def test_put_after_close():\n    store = Store()\n    store.close()\n    store.put('a', 1)\n"}),
    Case("a bad argument raises", "proved", {"calc.py": CALC.replace("    return n // 2", "    if n < 0:\n        raise ValueError(n)\n    return n // 2"), "tests/test_bad.py": "import pytest\n\nimport calc\n\n\ndef test_half_of_less_than_nothing():\n    with pytest.raises(ValueError):\n        calc.half(-1)\n"}),
    Case("a renamed module", "preserved", {"maths.py": CALC, "tests/test_calc.py": TEST_CALC.replace("from calc", "from maths")}, delete=("calc.py",), tdd="preserve"),
    Case("a renamed module and its renamed test", "preserved", {"maths.py": CALC, "tests/test_maths.py": TEST_CALC.replace("from calc", "from maths")}, delete=("calc.py", "tests/test_calc.py"), tdd="preserve"),
    Case("a moved test", "preserved", {"tests/unit/test_calc.py": TEST_CALC, "calc.py": CALC.replace("a + b", "b + a")}, delete=("tests/test_calc.py",), tdd="preserve"),
    Case("a moved test, and work with its test", "proved", {**WORK, "tests/unit/test_calc.py": TEST_CALC}, delete=("tests/test_calc.py",)),
    Case("a renamed test", "proved", with_calc_test(TEST_CALC.replace("def test_half", "def test_half_of_an_even_number"))),
    Case("an old test that says more", "proved", with_calc_test(TEST_CALC.replace("== 4", "== 4\n    assert half(2) == 1"))),
    Case("a removed feature", "proved", {"calc.py": CALC.split("\n\n\ndef half")[0] + "\n", "tests/test_calc.py": "from calc import add\n" + TEST_CALC.split("half\n", 1)[1].split("\n\n\ndef test_half")[0] + "\n"}, tdd="behaviour-change"),
    Case("a removed feature, and a test that it is gone", "proved", {"calc.py": CALC.split("\n\n\ndef half")[0] + "\n", "tests/test_calc.py": "import calc\nfrom calc import add\n" + TEST_CALC.split("half\n", 1)[1].split("\n\n\ndef test_half")[0] + "\n\n\ndef test_half_is_gone():\n    assert not hasattr(calc, 'half')\n"}, tdd="behaviour-change"),
    Case("a removed module", "proved", {}, delete=("limits.py", "limits.json", "tests/runs/test_limits.py"), tdd="behaviour-change"),
    Case("a class", "proved", {"queue_.py": QUEUE, "tests/test_queue.py": "from queue_ import Queue\n\n\ndef test_first_in_first_out():\n    queue = Queue()\n    queue.push(1)\n    queue.push(2)\n    assert queue.pop() == 1\n"}),
    Case("a method", "proved", {"store.py": STORE + "\n    def size(self):\n        return len(self._items)\n", "tests/test_size.py": STORE_TEST + "def test_size():\n    store = Store()\n    store.put('a', 1)\n    assert store.size() == 1\n"}),
    Case("a property", "proved", {"store.py": STORE + "\n    @property\n    def closed(self):\n        return self._closed\n", "tests/test_closed.py": STORE_TEST + "def test_closed():\n    store = Store()\n    store.close()\n    assert store.closed\n"}),
    Case("a parameter", "proved", {"calc.py": CALC.replace("half(n):\n    return n // 2", "half(n, exact=False):\n    return n / 2 if exact else n // 2"), "tests/test_exact.py": "import calc\n\n\ndef test_exact():\n    assert calc.half(3, exact=True) == 1.5\n"}),
    Case("a generator", "proved", {"calc.py": CALC + "\n\ndef halves(n):\n    while n:\n        yield n\n        n //= 2\n", "tests/test_halves.py": "import calc\n\n\ndef test_halves():\n    assert list(calc.halves(4)) == [4, 2, 1]\n"}),
    Case("a coroutine", "proved", {"calc.py": CALC + "\n\nasync def later(n):\n    return n\n", "tests/test_later.py": "import asyncio\n\nimport calc\n\n\ndef test_later():\n    assert asyncio.run(calc.later(4)) == 4\n"}),
    Case("a decorator", "proved", {"calc.py": "def twice(f):\n    return lambda *a: 2 * f(*a)\n\n\n" + CALC, "tests/test_twice.py": "import calc\n\n\ndef test_twice():\n    assert calc.twice(calc.add)(1, 2) == 6\n"}),
    Case("a registration while the module is loaded", "proved", {"calc.py": SUB + "\n\nTABLE = {}\nTABLE['-'] = sub\n", "tests/test_table.py": "import calc\n\n\ndef test_table():\n    assert calc.TABLE['-'](5, 2) == 3\n"}),
    Case("a member of an enumeration", "proved", {"colour.py": "from enum import Enum\n\n\nclass Colour(Enum):\n    RED = 1\n    BLUE = 2\n", "tests/test_colour.py": "from colour import Colour\n\n\ndef test_colour():\n    assert Colour(2) is Colour.BLUE\n"}),
    Case("a dataclass", "proved", {"point.py": "from dataclasses import dataclass\n\n\n@dataclass\nclass Point:\n    x: int\n    y: int\n\n    def flipped(self):\n        return Point(self.y, self.x)\n", "tests/test_point.py": "from point import Point\n\n\ndef test_flipped():\n    assert Point(1, 2).flipped() == Point(2, 1)\n"}),
    Case("a file of data, and code that reads it", "proved", {"limits.py": LIMITS.replace("[name]", ".get(name, 9)"), "limits.json": '{"limit": 5, "most": 7}\n', "tests/test_most.py": "from limits import limit\n\n\ndef test_unknown():\n    assert limit('x') == 9\n"}),
    Case("a file of data alone", "proved", {"limits.json": '{"limit": 5, "most": 7}\n', "tests/test_most.py": "from limits import limit\n\n\ndef test_most():\n    assert limit('most') == 7\n"}),
    Case("a changed program", "proved", {"bin/greet": '#!/bin/sh\necho "hello$1"\n', "tests/test_greet.py": TEST_GREET + '\n\ndef test_greet_somebody():\n    assert subprocess.check_output(["bin/greet", " you"], text=True) == "hello you\\n"\n'}, programs=PROGRAMS),
    Case("a new program", "proved", {"bin/bye": "#!/bin/sh\necho bye\n", "tests/test_bye.py": 'import subprocess\n\n\ndef test_bye():\n    assert subprocess.check_output(["bin/bye"], text=True) == "bye\\n"\n'}, programs=("bin/bye",)),
    Case("a template", "proved", {"welcome.tmpl": "Dear $name\n", "calc.py": CALC + "\n\ndef welcome(name):\n    from string import Template\n    return Template(open('welcome.tmpl').read()).substitute(name=name)\n", "tests/test_welcome.py": "import calc\n\n\ndef test_welcome():\n    assert calc.welcome('Ada') == 'Dear Ada\\n'\n"}),
    Case("a fixture that the plan names", "proved", {"calc.py": SUB, "tests/conftest.py": "import pytest\n\n\n@pytest.fixture\ndef five():\n    return 5\n", "tests/test_sub.py": "import calc\n\n\ndef test_sub(five):\n    assert calc.sub(five, 2) == 3\n"}, plan_files=("calc.py", "tests/conftest.py")),
    Case("a new dependency", "proved", {**WORK, "pyproject.toml": '[project]\nname = "calc"\nversion = "1"\ndependencies = ["attrs"]\n'}),
    Case("a test with parameters", "proved", sub("import pytest\nimport calc\n\n\n@pytest.mark.parametrize('a', [3, 4])\ndef test_sub(a):\n    assert calc.sub(a, 1) == a - 1\n")),
    Case("a test of unittest", "proved", sub("import unittest\n\nimport calc\n\n\nclass SubTest(unittest.TestCase):\n    def test_sub(self):\n        self.assertEqual(calc.sub(5, 2), 3)\n")),
    Case("a test that writes and reads files", "proved", {"calc.py": CALC + "\n\ndef save(path, n):\n    path.write_text(str(n))\n", "tests/test_save.py": "import calc\n\n\ndef test_save(tmp_path):\n    calc.save(tmp_path / 'n', 4)\n    assert (tmp_path / 'n').read_text() == '4'\n"}),
    Case("a test that runs the program", "proved", {"calc.py": SUB + "\n\nif __name__ == '__main__':\n    import sys\n\n    print(sub(*map(int, sys.argv[1:])))\n", "tests/test_run.py": "import subprocess\nimport sys\n\n\ndef test_run():\n    assert subprocess.check_output([sys.executable, 'calc.py', '5', '2'], text=True) == '3\\n'\n"}),
    Case("a test that asks git about the repository", "proved", {"calc.py": CALC + "\n\ndef listed(git):\n    return git.split()\n", "tests/test_listed.py": "import subprocess\n\nimport calc\n\n\ndef test_listed():\n    assert 'calc.py' in calc.listed(subprocess.check_output(['git', 'ls-files'], text=True))\n"}),
    Case("an old test that asserts in a helper now", "proved", with_calc_test(TEST_CALC.replace("    assert half(8) == 4", "    is_half(8, 4)") + "\n\ndef is_half(n, wanted):\n    assert half(n) == wanted\n")),
    Case("a test that logs", "proved", {"calc.py": CALC + "\n\nimport logging\n\nlog = logging.getLogger(__name__)\n\n\ndef warn():\n    log.warning('careful')\n", "tests/test_warn.py": "import calc\n\n\ndef test_warn(caplog):\n    calc.warn()\n    assert 'careful' in caplog.text\n"}),
]  # fmt: skip
