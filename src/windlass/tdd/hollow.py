"""Python with the changed bodies taken out: a test that still passes there asks nothing of the change.

What is needed to load the module stays: a body that runs while it is imported, a value that is no plain literal.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

#: run by the class statement itself
HOOKS = frozenset({"__init_subclass__", "__set_name__", "__class_getitem__", "__prepare__", "__getattr__"})
MAKERS = ("__init__", "__new__", "__post_init__")
SENTINEL = "hollowed out by windlass"

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Block: TypeAlias = ast.Module | ast.ClassDef


@dataclass(frozen=True)
class Hollowed:
    text: str
    whole: bool
    """Nothing of the change is left that a test could ask about."""
    left: tuple[str, ...] = ()
    """What of the change had to stay, such as "a statement in line 12"."""


def hollow(path: str, old: str, new: str) -> Hollowed | None:
    """`new` without the bodies and literals that `old` does not have. None: there are none, or it is not Python."""
    before, after = (_parse(old), _parse(new)) if path.endswith(".py") else (None, None)
    if after is None:
        return None
    known = _dumps(before) if before is not None else Counter()
    work = _Hollowing(known, _called_at_import(after))
    work.block(after, "")
    return Hollowed(ast.unparse(after) + "\n", not work.left, tuple(work.left)) if work.done else None


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _dumps(tree: ast.Module) -> Counter[str]:
    return Counter(f"{place}|{ast.dump(statement)}" for place, statement in _statements(tree, ""))


def _statements(block: Block, place: str) -> Iterator[tuple[str, ast.stmt]]:
    """Every statement that runs on import, with the class it stands in; of a class its head and its statements."""
    for statement in block.body:
        if isinstance(statement, ast.ClassDef):
            yield place, _head(statement)
            yield from _statements(statement, f"{place}.{statement.name}")
        else:
            yield place, statement


def _head(node: ast.ClassDef) -> ast.ClassDef:
    return ast.ClassDef(node.name, node.bases, node.keywords, [ast.Pass()], node.decorator_list)


class _Hollowing:
    def __init__(self, known: Counter[str], called: frozenset[str]) -> None:
        self._known = known
        self._called = called
        self.done = False
        self.left: list[str] = []

    def block(self, block: Block, place: str) -> None:
        for number, statement in enumerate(block.body):
            if isinstance(statement, ast.ClassDef):
                if self._had(place, statement) and not self._is_known(place, _head(statement)):
                    self.left.append(f"the head of class {statement.name}")
                self.block(statement, f"{place}.{statement.name}")
            elif not self._is_known(place, statement):
                block.body[number] = self._changed(statement, block)

    def _is_known(self, place: str, statement: ast.stmt) -> bool:
        return self._known[f"{place}|{ast.dump(statement)}"] > 0

    def _had(self, place: str, node: ast.ClassDef) -> bool:
        """The class was there before, with another head."""
        start = f"{place}|ClassDef(name={node.name!r},"
        return any(dump.startswith(start) for dump in self._known)

    def _changed(self, statement: ast.stmt, block: Block) -> ast.stmt:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                return self._function(statement, block)
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                return self._assignment(statement, value)
            case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Expr(value=ast.Constant()) | ast.AnnAssign():
                return statement
            case ast.If() if _is_main(statement):
                return statement
            case _:
                self.left.append(f"a statement in line {statement.lineno}")
                return statement

    def _function(self, node: Function, block: Block) -> Function:
        owner = block.name if isinstance(block, ast.ClassDef) else ""
        needed = node.name in self._called or node.name in HOOKS or (node.name in MAKERS and owner in self._called)
        if needed or _is_hollow(node):
            if needed:
                self.left.append(f"{node.name}(), which is called while the module is loaded")
            return node
        self.done = True
        node.body = [ast.Pass()]
        return node

    def _assignment(self, statement: ast.Assign | ast.AnnAssign, value: ast.expr) -> ast.stmt:
        name = _target(statement)
        needed = name.startswith("__") or name in self._called
        emptied = None if needed else _emptied(value, name)
        if emptied is None:
            if not name.startswith("__"):
                self.left.append(f"the value in line {statement.lineno}")
            return statement
        self.done = True
        statement.value = emptied
        return statement


def _is_main(node: ast.If) -> bool:
    """`if __name__ == "__main__":` is not for tests."""
    return (
        isinstance(node.test, ast.Compare) and isinstance(node.test.left, ast.Name) and node.test.left.id == "__name__"
    )


def _is_hollow(node: Function) -> bool:
    """A body of nothing but a docstring, `pass` or `...` cannot be made any emptier."""
    return all(
        isinstance(s, ast.Pass) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)) for s in node.body
    )


def _target(statement: ast.Assign | ast.AnnAssign) -> str:
    first = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
    return first.id if isinstance(first, ast.Name) else ""


def _emptied(value: ast.expr, name: str) -> ast.expr | None:
    """Another value of the same kind; None where that could keep the module from loading."""
    match value:
        case ast.Constant(value=bool() as flag):
            return ast.Constant(not flag)
        case ast.Constant(value=str()):
            return ast.Constant(f"{name}: {SENTINEL}")
        case ast.Constant(value=int() | float()):
            return ast.Constant(-999983)
        case ast.Lambda():
            return ast.Lambda(value.args, ast.Constant(None))
        case ast.List():
            return ast.List([], ast.Load())
        case ast.Dict():
            return ast.Dict([], [])
        case _:
            return None


def _called_at_import(tree: ast.Module) -> frozenset[str]:
    """Names that statements, decorators and defaults use while the module is loaded."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                waiting.extend([*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)])
            case ast.Lambda():
                continue
            case ast.ClassDef():
                # A plain base class is not called; its methods may go.
                bases = [base for base in node.bases if not isinstance(base, ast.Name)]
                waiting.extend([*node.decorator_list, *bases, *node.keywords, *node.body])
            case ast.If() if _is_main(node):
                waiting.extend(node.orelse)
            case ast.AnnAssign():
                waiting.extend([node.value] if node.value else [])
            case _:
                names |= _name(node)
                waiting.extend(ast.iter_child_nodes(node))
    return frozenset(names)


def _name(node: ast.AST) -> set[str]:
    match node:
        case ast.Name(ctx=ast.Load()):
            return {node.id}
        case ast.Attribute():
            return {node.attr}
        case _:
            return set()
