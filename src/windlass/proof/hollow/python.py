"""Python: inserts `if <the module has loaded>: return` at the start of every changed body."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TypeAlias

from windlass.proof.hollow.parts import NUMBER, SENTINEL, SourceEdit, SourceFile, SourcePart

FLAG = "windlass_loaded"
LOADED = f'globals().get("{FLAG}")'
ENDING = f"\n{FLAG} = True\n"
#: as `ast.unparse` writes it
LOADED_PLAIN = f"globals().get('{FLAG}')"
BOM = "\ufeff"
#: results of methods that must not return None: {0} is the first argument, {1} the last
RESULTS = {
    "__class_getitem__": "return {0}",
    "__getattr__": "raise AttributeError({1})",
    "__getattribute__": "return object.__getattribute__({0}, {1})",
    "__prepare__": "return {{}}",
}
MAKERS = ("__init__", "__new__", "__post_init__")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Block: TypeAlias = ast.If | ast.Try | ast.TryStar | ast.With | ast.For | ast.While | ast.Match


def split(path: str, text: str) -> SourceFile | None:
    try:
        # The parser refuses a byte order mark, which Python allows in a file.
        file = _PythonFile(ast.parse(text.removeprefix(BOM)), text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return SourceFile(file.data, tuple(file.parts()), ENDING)


class _PythonFile:
    def __init__(self, tree: ast.Module, text: str) -> None:
        self.data = text.encode("utf-8", "surrogateescape")
        self._tree = tree
        ends = [match.end() for match in re.finditer(rb"\r\n|\r|\n", self.data)]
        self._lines = [len(BOM.encode()) if text.startswith(BOM) else 0, *ends]
        self._used = _used_at_load(tree)
        self._read = frozenset(n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))

    def parts(self) -> Iterator[SourcePart]:
        yield from self._block(self._tree.body, "")

    def _block(self, statements: list[ast.stmt], place: str) -> Iterator[SourcePart]:
        for statement in statements:
            match statement:
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield self._function(statement, place)
                case ast.ClassDef():
                    name, bases = place + statement.name, statement.bases
                    head = ast.ClassDef(name, bases, statement.keywords, [ast.Pass()], statement.decorator_list)
                    has_methods = any(isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef) for s in statement.body)
                    yield SourcePart(
                        f"class {name}",
                        ast.dump(head),
                        statement.lineno,
                        left=f"class {name} is all in its head" if bases and not has_methods else "",
                        left_if_old=f"the head of class {name}",
                    )
                    yield from self._block(statement.body, f"{name}.")
                case ast.If(test=test) if _is_skipped(test):
                    yield from self._block(statement.orelse, place)
                case ast.If() | ast.Try() | ast.TryStar() | ast.With() | ast.For() | ast.While() | ast.Match():
                    yield from self._compound(statement, place)
                case _:
                    yield from self._simple(statement, place)

    # -- functions

    def _function(self, node: Function, place: str) -> SourcePart:
        name, content, line = place + node.name, ast.dump(node), node.lineno
        edits = self._guard(node)
        if not edits:
            return SourcePart(name, content, line, left_if_old=f"{name} does nothing now")
        owner = place.rstrip(".").rpartition(".")[2]
        called = f".{node.name}" if place else node.name
        used = called in self._used or (node.name in MAKERS and owner in self._used)
        return SourcePart(name, content, line, edits, f"{name} is used while the module loads" if used else "")

    def _guard(self, node: Function) -> tuple[SourceEdit, ...]:
        """No edits if the body is already empty."""
        match node.body:
            case [ast.Expr(value=ast.Constant(value=str())), *body]:
                pass  # without the docstring
            case _:
                body = node.body
        match body:
            case [] | [ast.Pass() | ast.Expr(value=ast.Constant())]:
                return ()
            case [ast.If(test=test), *_] if ast.unparse(test) == LOADED_PLAIN:
                return ()
        arguments = [*node.args.posonlyargs, *node.args.args]
        special = RESULTS.get(node.name)
        result = special.format(arguments[0].arg, arguments[-1].arg) if special and arguments else "return"
        guard = f"if {LOADED}: {result}"
        start = self._start(body[0])
        line = self.data.rfind(b"\n", 0, start) + 1
        indent = self.data[line:start]
        if not indent.strip():
            return (SourceEdit(start, start, f"{guard}\n{indent.decode()}"),)
        # The body is on the line of its `def` or docstring, where Python allows no `if`.
        first = self._start(node.body[0])
        line = self.data.rfind(b"\n", 0, first) + 1
        margin = re.match(rb"\s*", self.data[line:]).group().decode()  # type: ignore[union-attr]
        deeper = margin if not self.data[line:first].strip() else f"{margin} "
        return (SourceEdit(first, first, f"\n{deeper}{guard}\n{deeper}"),)

    def _start(self, node: ast.stmt) -> int:
        decorators = getattr(node, "decorator_list", [])
        if not decorators:
            return self._at(node.lineno, node.col_offset)
        return self._at(decorators[0].lineno, node.col_offset)

    def _at(self, line: int, column: int) -> int:
        return self._lines[line - 1] + column

    def _lambdas(self, statement: ast.AST, place: str) -> Iterator[SourcePart]:
        """The outermost lambdas of a statement, which are functions too."""
        waiting = [statement]
        while waiting:
            node = waiting.pop()
            if isinstance(node, ast.Lambda):
                body = node.body
                start, end = self._span(body)
                is_none = isinstance(body, ast.Constant) and body.value is None
                empty = is_none or (isinstance(body, ast.IfExp) and ast.unparse(body.test) == LOADED_PLAIN)
                edits = (
                    () if empty else (SourceEdit(start, start, f"(None if {LOADED} else ("), SourceEdit(end, end, "))"))
                )
                yield SourcePart(f"{place}lambda", ast.dump(node), node.lineno, edits)
            else:
                waiting.extend(ast.iter_child_nodes(node))

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    # -- other code that runs while the module loads

    def _compound(self, node: Block, place: str) -> Iterator[SourcePart]:
        blocks: list[list[ast.stmt]] = []
        head: list[str] = [type(node).__name__]
        for field, value in ast.iter_fields(node):
            for item in value if isinstance(value, list) else [value]:
                if isinstance(item, ast.ExceptHandler | ast.match_case):
                    blocks.append(item.body)
                    head += [ast.dump(child) for child in ast.iter_child_nodes(item) if not isinstance(child, ast.stmt)]
                elif not isinstance(item, ast.stmt) and isinstance(item, ast.AST):
                    head.append(ast.dump(item))
            if field in ("body", "orelse", "finalbody"):
                blocks.append(value)
        # `try` and `else` have no condition.
        left = "" if isinstance(node, ast.Try | ast.TryStar) else "code that runs while the module loads"
        yield SourcePart(f"{place}{head[0]}", "|".join(head), node.lineno, left=left)
        for block in blocks:
            yield from self._block(block, place)

    def _simple(self, node: ast.stmt, place: str) -> Iterator[SourcePart]:
        line, content = node.lineno, ast.dump(node)
        match node:
            case ast.ImportFrom(module="__future__"):
                return
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    name = (alias.asname or alias.name).partition(".")[0]
                    # Other modules may use an import that the file does not use.
                    if name not in self._read:
                        origin = f"{getattr(node, 'module', '')}.{alias.name}"
                        left = f"{name} is imported, and nothing here uses it"
                        yield SourcePart(f"{place}import {name}", origin, line, left=left)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield from self._value(name, value, node, place)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield from self._value(name, value, node, place)
            case ast.AnnAssign(target=ast.Name(id=name), value=None):
                yield SourcePart(place + name, content, line, left=f"the field {place}{name}" if place else "")
            case ast.Pass() | ast.Global() | ast.Expr(value=ast.Constant()):
                return
            case ast.AugAssign(target=ast.Name(id=name)) if _is_dunder(name):
                return
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                yield SourcePart(f"{place}=", content, line, left="a value that is computed while the module loads")
                yield from self._lambdas(node, place)
            case _:
                called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
                what = "a call" if called else "code that runs"
                yield SourcePart(f"{place}{type(node).__name__}", content, line, left=f"{what} while the module loads")
                yield from self._lambdas(node, place)

    def _value(self, name: str, value: ast.expr, node: ast.Assign | ast.AnnAssign, place: str) -> Iterator[SourcePart]:
        full, content, line = place + name, ast.dump(node), node.lineno
        if _is_dunder(name) or name == FLAG:
            return
        if _is_empty(value):
            yield SourcePart(full, content, line, left_if_old=f"{full} is empty now")
            return
        if isinstance(value, ast.Lambda):
            yield from self._lambdas(value, f"{full} ")
            return
        other = _other_value(value, name)
        if other is None:
            yield SourcePart(full, content, line, left=f"{full} is computed while the module loads")
            yield from self._lambdas(value, f"{full} ")
        elif name in self._used or (place and f".{name}" in self._used):
            # The value stays until the module has loaded.
            last = len(self.data)
            later = f"{name} = {name} {'and' if _is_true(value) else 'or'} {other}"
            written = any(isinstance(one, ast.Assign) and ast.unparse(one) == later for one in self._tree.body)
            edits = () if place or written else (SourceEdit(last, last, f"\n{later}"),)
            yield SourcePart(full, content, line, edits, f"{full} is used while the module loads")
        elif isinstance(value, ast.Constant) and isinstance(value.value, bool):
            start, _ = self._span(value)
            yield SourcePart(full, content, line, (SourceEdit(start, start, "not "),))
        else:
            # The old text stays in front of the new value, for tests that only read the source.
            start, end = self._span(value)
            bare = isinstance(value, ast.Tuple) and self.data[start : start + 1] != b"("
            after = f"{')' if bare else ''} {'and' if _is_true(value) else 'or'} {other}"
            before = SourceEdit(start, start, "(" if bare else "")
            yield SourcePart(full, content, line, (before, SourceEdit(end, end, after)))


# -- facts about a statement


def _is_dunder(name: str) -> bool:
    return name.startswith("__")


def _is_skipped(test: ast.expr) -> bool:
    """`if __name__ == "__main__":` does not run in tests, `if TYPE_CHECKING:` never runs."""
    if isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__":
        return True
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def _is_empty(value: ast.expr) -> bool:
    match value:
        case ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]) | ast.Constant(value=None):
            return True
        case ast.Call(func=ast.Name(id="dict" | "list" | "set" | "tuple" | "frozenset"), args=[], keywords=[]):
            return True
        case _:
            return False


def _is_true(value: ast.expr) -> bool:
    match value:
        case ast.Constant(value=constant):
            return bool(constant)
        case ast.UnaryOp(operand=ast.Constant(value=constant)):
            return bool(constant)
        case ast.JoinedStr():
            return any(isinstance(part, ast.Constant) and part.value for part in value.values)
        case _:
            return True


def _other_value(value: ast.expr, name: str) -> str | None:
    """Another value of the same kind; None if the module might not load with it."""
    match value:
        case ast.Constant(value=bool() as flag):
            return str(not flag)
        case ast.Constant(value=str()):
            return repr(f"{name}: {SENTINEL}")
        case ast.Constant(value=bytes()):
            return repr(f"{name}: {SENTINEL}".encode())
        case ast.JoinedStr() if _is_true(value):
            return repr(f"{name}: {SENTINEL}")
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float())):
            return str(NUMBER)
        case ast.Constant(value=int() | float() as number):
            return str(NUMBER if number != NUMBER else NUMBER + 1)
        case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Set(elts=elements):
            # `[*()]` is empty, so `and` would not return the other value.
            plain = not isinstance(elements[0], ast.Starred)
            empty = {ast.List: "[]", ast.Tuple: "()", ast.Set: "set()"}[type(value)]
            return empty if plain else None
        case ast.Dict(keys=[ast.expr(), *_]):
            return "{}"
        case _:
            return None


def _used_at_load(tree: ast.Module) -> frozenset[str]:
    """Names, and attributes with a dot, that statements, decorators and defaults use while the module loads."""
    names: set[str] = set()
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                waiting.extend([*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)])
            case ast.Lambda():
                waiting.extend([*node.args.defaults, *filter(None, node.args.kw_defaults)])
            case ast.ClassDef():
                # A plain base class is not called.
                bases = [base for base in node.bases if not isinstance(base, ast.Name)]
                waiting.extend([*node.decorator_list, *bases, *node.keywords, *node.body])
            case ast.If() if _is_skipped(node.test):
                waiting.extend(node.orelse)
            case ast.AnnAssign():
                waiting.extend([node.value] if node.value else [])
            case ast.Name(ctx=ast.Load()):
                names.add(node.id)
            case ast.Attribute():
                names.add(f".{node.attr}")
                waiting.append(node.value)
            case _:
                waiting.extend(ast.iter_child_nodes(node))
    return frozenset(names)
