"""Reads the claims (assertions) in the text of tests, to find tests that lost all claims and tests that only moved."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import TypeAlias

from msgspec import Struct

from windlass.checks.junit import normal_id

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
CLAIMING = re.compile(
    r"_?(assert|check|expect|verify|ensure|raises|warns|fail|should|must|approx_equal)", re.IGNORECASE
)
#: claims in the common test frameworks of other languages
SPELLED = re.compile(
    r"\b(?:assert\w*|expect|should|require)\s*[.(!]|\bt\.(?:Error|Fatal|Fail)|\.to(?:Be|Equal|Throw|Match)|assert_\w+!"
)
MODULE_NAME = re.compile(r"[A-Za-z_][\w.]*\.\w+")


class TestText(Struct, frozen=True):
    """One test function."""

    __test__ = False

    claims: int
    calls: int
    fingerprint: str
    """It stays the same when the test or its module is renamed or moved."""

    def lost_all_claims(self, before: TestText) -> bool:
        return (before.claims > 0 and self.claims == 0) or (before.calls > 0 and self.claims + self.calls == 0)


class Comparison(Struct, frozen=True):
    """How the tests of the head differ from those of the base."""

    emptied: frozenset[str] = frozenset()
    """Ids of tests that lost all claims but kept their name; for other languages, paths of such files."""
    moved: Mapping[str, str] | None = None
    """Id at the base -> id at the head, for tests that only moved or got another name."""
    touched: frozenset[str] | None = None
    """Ids of the tests of the base in changed files; None: the meaning of any test may have changed."""

    def id_at_head(self, id: str) -> str | None:
        return (self.moved or {}).get(plain_id(id))


def plain_id(id: str) -> str:
    """The id without parameters, for every test runner."""
    return normal_id(id).split("[")[0]


def compare(old: Mapping[str, str], new: Mapping[str, str]) -> Comparison:
    """`old`, `new`: path -> text of the test files."""
    before = {id: test for path, text in old.items() for id, test in _tests(path, text)}
    after = {id: test for path, text in new.items() for id, test in _tests(path, text)}
    emptied = {id for id, test in before.items() if id in after and after[id].lost_all_claims(test)}
    silent = {
        path
        for path, text in old.items()
        if path in new and not path.endswith(".py") and SPELLED.search(text) and not SPELLED.search(new[path])
    }
    known = all(path.endswith(".py") and _parse(text) is not None for path, text in old.items())
    moved: dict[str, str] = {}
    added = {id: test for id, test in after.items() if id not in before}
    for id, test in before.items():
        if id in after and after[id].fingerprint == test.fingerprint:
            moved[id] = id
            continue
        same = [other for other, found in added.items() if found.fingerprint == test.fingerprint]
        # If several tests have the same text, prefer the one with the same name.
        same.sort(key=lambda other: other.rsplit(".", 1)[-1] != id.rsplit(".", 1)[-1])
        if id not in after and same:
            del added[same[0]]
            moved[id] = same[0]
    return Comparison(frozenset(emptied | silent), moved, frozenset(before) if known else None)


def _tests(path: str, text: str) -> Iterator[tuple[str, TestText]]:
    if not path.endswith(".py"):
        return
    module = _parse(text)
    if module is None:
        return
    reader = _ClaimReader(module)
    place = str(PurePosixPath(path).with_suffix("")).replace("/", ".")
    for id, function in _functions(module, place):
        if function.name.startswith("test"):
            yield plain_id(id), reader.read(function)


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _functions(block: ast.Module | ast.ClassDef, place: str) -> Iterator[tuple[str, Function]]:
    for statement in block.body:
        if isinstance(statement, FUNCTIONS):
            yield f"{place}.{statement.name}", statement
        elif isinstance(statement, ast.ClassDef):
            yield from _functions(statement, f"{place}.{statement.name}")


class _ClaimReader:
    """Reads the tests of one file."""

    def __init__(self, module: ast.Module) -> None:
        self._helpers = {
            node.name: node
            for node in ast.walk(module)
            if isinstance(node, FUNCTIONS) and not node.name.startswith("test")
        }
        imports = [node for node in ast.walk(module) if isinstance(node, ast.Import | ast.ImportFrom)]
        self._modules = {
            alias.asname or alias.name.split(".")[0]
            for node in imports
            for alias in node.names
            if isinstance(node, ast.Import)
        }
        # The claims of an imported test helper are in another file.
        self._from_tests = {
            alias.asname or alias.name
            for node in imports
            if isinstance(node, ast.ImportFrom) and (node.level or "test" in (node.module or ""))
            for alias in node.names
        }

    def read(self, function: Function) -> TestText:
        calls = [node for node in _live_nodes(function.body) if isinstance(node, ast.Call)]
        claims = self._claims(function, ())
        first = 1 if ast.get_docstring(function, clean=False) is not None else 0
        dumps = []
        for part in (function.args, *function.decorator_list, *function.body[first:]):
            copied = ast.parse(ast.unparse(part)) if not isinstance(part, ast.arguments) else part
            # The names of modules change when a module moves, so they do not count.
            for inner in ast.walk(copied):
                if isinstance(inner, ast.Name) and inner.id in self._modules:
                    inner.id = "_"
                elif isinstance(inner, ast.ImportFrom):
                    inner.module = "_"
                elif isinstance(inner, ast.alias) and "." in inner.name:
                    inner.name = "_"
                elif isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    is_module = MODULE_NAME.fullmatch(inner.value)
                    inner.value = inner.value.rsplit(".", 1)[-1] if is_module else inner.value
            dumps.append(ast.dump(copied))
        return TestText(claims, len(calls), "\n".join(dumps))

    def _claims(self, function: Function, above: tuple[str, ...]) -> int:
        """`above`: the helpers that led here, because a helper may call itself."""
        count = 0
        for node in _live_nodes(function.body):
            if isinstance(node, ast.Assert) and not _is_trivial(node.test):
                count += 1
            if not isinstance(node, ast.Call):
                continue
            name = _callee(node)
            if name in self._helpers and name not in above:
                count += self._claims(self._helpers[name], (*above, name))
            elif name in self._from_tests:
                count += 1
            elif (isinstance(node.func, ast.Attribute) or name not in self._helpers) and CLAIMING.match(name):
                constant = node.args and name != "fail" and all(map(_is_constant, node.args))
                count += 0 if constant else 1
        return count


def _live_nodes(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """The nodes that can run and that make the test fail when they fail."""
    for statement in body:
        match statement:
            case ast.If(test=test) | ast.While(test=test) if _is_constant(test) and not _truth(test):
                yield from _live_nodes(statement.orelse)
            case ast.Try() if any(map(_swallows, statement.handlers)):
                yield from _live_nodes([*statement.orelse, *statement.finalbody])
            case ast.With() | ast.AsyncWith() if any(
                _callee(item.context_expr) == "suppress" for item in statement.items
            ):
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                continue
            case _:
                yield statement
                for child in ast.iter_child_nodes(statement):
                    if not isinstance(child, ast.stmt | ast.ExceptHandler):
                        yield from ast.walk(child)
                for name in ("body", "orelse", "finalbody"):
                    yield from _live_nodes(getattr(statement, name, []))
                for handler in getattr(statement, "handlers", []):
                    yield from _live_nodes(handler.body)
        if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
            return


def _swallows(handler: ast.ExceptHandler) -> bool:
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)} if handler.type else set()
    broad = handler.type is None or names & {"Exception", "BaseException", "AssertionError"}
    ends = any(isinstance(node, ast.Raise | ast.Assert) or _callee(node) == "fail" for node in ast.walk(handler))
    return bool(broad) and not ends


def _callee(node: ast.AST) -> str:
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _is_trivial(test: ast.expr) -> bool:
    """It is true for any code."""
    match test:
        case ast.Tuple(elts=elements):
            return bool(elements)
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is() | ast.GtE() | ast.LtE()], comparators=[right]):
            return ast.dump(left) == ast.dump(right) or _is_constant(test)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_is_constant(value) and _truth(value) for value in values)
        case _:
            return _is_constant(test)


def _is_constant(node: ast.expr) -> bool:
    return not any(
        isinstance(inner, ast.Name | ast.Call | ast.Attribute | ast.Subscript | ast.Await) for inner in ast.walk(node)
    )


def _truth(node: ast.expr) -> bool:
    try:
        return bool(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, MemoryError):
        return not isinstance(node, ast.UnaryOp)
