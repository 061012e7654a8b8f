"""Makes Python files that have the names and the text of a change, but not its behaviour.

In such a file a changed function has its old behaviour, a new one does nothing, and a removed one still exists. The
new text stays readable, as a function without callers and as a string at the end of the file. So a test that passes
here does not test the new behaviour: it only looks for a name, or reads the source.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from msgspec import Struct

from windlass.proof.hollow import hollow

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Block: TypeAlias = ast.Module | ast.ClassDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
UNUSED = "_as_the_change_wrote_it"
#: values that are already empty, as `ast.unparse` writes them
BARE = ("None", "{}", "[]", "()", "set()")


class WithoutBehaviour(Struct, frozen=True):
    text: str
    left: tuple[str, ...]
    """Parts of the change that still have an effect."""


def without_behaviour(path: str, old: str, new: str, *, deep: bool = True) -> WithoutBehaviour | None:
    """None if the text is not Python. `deep`: also undo the statements that run while the module loads. The module
    may then fail to load."""
    before, after = _parse(old), _parse(new)
    if before is None or after is None:
        return None
    source = ast.unparse(_without_statements(before, _parse(new) or after)) if deep else new
    done = hollow(path, old, source)
    module = _parse(done.text if done else source)
    if module is None:
        return None
    _restore(module, before, after)
    ast.fix_missing_locations(module)
    # The new text stays readable: in a string, or in comments if no quotes fit around it.
    quotes = next((one for one in ("'''", '"""') if one not in new and not new.endswith(("\\", one[0]))), "")
    comments = "".join(f"# {line}\n" for line in new.splitlines())
    text = ast.unparse(module) + (f"\n\n0\nr{quotes}{new}{quotes}\n" if quotes else f"\n{comments}")
    return WithoutBehaviour(text, tuple(_remaining_parts(module, before, after)))


def respell(text: str) -> str:
    """The same program in other words. The text of every function changes."""
    module = _parse(text)
    if module is None:
        return text
    for node in ast.walk(module):
        if isinstance(node, FUNCTIONS):
            docstring, body = _split(node)
            node.body = [*docstring, ast.Pass(), *body]
    ast.fix_missing_locations(module)
    return ast.unparse(module) + "\n\n# the same in other words\n"


def removes_names(old: str, new: str) -> bool:
    """Whether a function or class of `old` is not in `new`."""
    before, after = _parse(old), _parse(new)
    if before is None or after is None:
        return False
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    here = {name for node in ast.walk(after) if isinstance(node, ast.stmt) for name in _bound_names(node)}
    return any(isinstance(node, kinds) and node.name not in here for node in ast.walk(before))


def _parse(text: str) -> ast.Module | None:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _count_statements(module: ast.Module) -> Counter[str]:
    return Counter(f"{place}|{ast.dump(statement)}" for place, _, statement in _statements(module))


def _statements(block: Block, place: str = "") -> Iterator[tuple[str, Block, ast.stmt]]:
    """Every statement that runs on import, with its class. A class counts as its statements."""
    for statement in block.body:
        if isinstance(statement, ast.ClassDef):
            yield from _statements(statement, f"{place}.{statement.name}")
        else:
            yield place, block, statement


# -- statements that run while the module loads


def _without_statements(before: ast.Module, after: ast.Module) -> ast.Module:
    known, values = _count_statements(before), dict[str, ast.expr]()
    for place, _, statement in _statements(before):
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value and _name_of(statement):
            values[f"{place}|{_name_of(statement)}"] = statement.value
    changed = [found for found in _statements(after) if not known[f"{found[0]}|{ast.dump(found[2])}"]]
    for _, block, statement in changed:
        if _binds_no_name(statement):
            block.body[block.body.index(statement)] = ast.Pass()
    used = {node.id for node in _run_on_import(after) if isinstance(node, ast.Name)}
    for place, _, statement in changed:
        target = _name_of(statement)
        if target and isinstance(statement, ast.Assign | ast.AnnAssign) and not target.startswith("__"):
            old_value = values.get(f"{place}|{target}")
            if old_value is not None:
                statement.value = old_value
            elif target not in used and not isinstance(
                statement.value, ast.Constant | ast.List | ast.Dict | ast.Lambda
            ):
                statement.value = ast.Constant(None) if statement.value else None
    return after


def _name_of(statement: ast.stmt) -> str:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target: ast.expr = statement.targets[0]
    elif isinstance(statement, ast.AnnAssign):
        target = statement.target
    else:
        return ""
    return target.id if isinstance(target, ast.Name) else ""


def _binds_no_name(statement: ast.stmt) -> bool:
    """The statement binds no name, so the rest of the module can load without it."""
    match statement:
        case ast.Expr(value=ast.Constant()):
            return False
        case ast.Expr() | ast.Assert() | ast.Delete() | ast.AugAssign():
            return True
        case ast.Assign(targets=targets):
            return all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
        case ast.If() | ast.For() | ast.While() | ast.With() | ast.Try():
            named = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.Assign, ast.AnnAssign, *FUNCTIONS)
            return not _is_main(statement) and not any(isinstance(node, named) for node in ast.walk(statement))
        case _:
            return False


def _is_main(node: ast.stmt) -> bool:
    """`if __name__ == "__main__":` does not run in tests."""
    test = node.test if isinstance(node, ast.If) else None
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _run_on_import(module: ast.Module) -> Iterator[ast.AST]:
    """Every expression that runs while the module loads, except the first value of a name."""
    waiting: list[ast.AST] = list(module.body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                waiting.extend([*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)])
            case ast.Lambda():
                continue
            case ast.If() if _is_main(node):
                waiting.extend(node.orelse)
            case ast.Name(ctx=ast.Store()):
                continue
            case _:
                yield node
                waiting.extend(ast.iter_child_nodes(node))


# -- functions


def _functions(module: ast.Module) -> dict[tuple[str, str, int], Function]:
    """Functions by class, name and count, because a property and its setter have the same name."""
    seen: Counter[str] = Counter()
    found: dict[tuple[str, str, int], Function] = {}
    for place, _, statement in _statements(module):
        if isinstance(statement, FUNCTIONS):
            seen[f"{place}.{statement.name}"] += 1
            found[place, statement.name, seen[f"{place}.{statement.name}"]] = statement
    return found


def _restore(module: ast.Module, before: ast.Module, after: ast.Module) -> None:
    old_functions, new_functions = _functions(before), _functions(after)
    # Functions that run while the module loads keep their bodies.
    used = {getattr(node, "id", getattr(node, "attr", "")) for node in _run_on_import(module)}
    for key, node in _functions(module).items():
        new = new_functions.get(key)
        if new is None or (key in old_functions and ast.dump(old_functions[key]) == ast.dump(new)):
            continue
        if key in old_functions:
            _, body = _split(old_functions[key])
        elif not _is_empty(new) and (_is_empty(node) or not (node.name in used or node.name.startswith("__"))):
            body = [ast.Return(), *([ast.Expr(ast.Yield())] if _yields(new) else [])]
        else:
            continue
        docstring, new_body = _split(new)
        unused = type(new)(UNUSED, ast.arguments([], [], None, [], [], None, []), new_body, [])
        node.body = [*docstring, *body, *([ast.Return()] if key in old_functions else []), unused]
        if key in old_functions and isinstance(body[-1], ast.Return | ast.Raise):
            node.body = [*docstring, *body, unused]
    _restore_removed(module, before)


def _restore_removed(here: Block, before: Block) -> None:
    bound = {name for statement in here.body for name in _bound_names(statement)}
    classes = {statement.name: statement for statement in here.body if isinstance(statement, ast.ClassDef)}
    for statement in before.body:
        if isinstance(statement, ast.ClassDef) and statement.name in classes:
            _restore_removed(classes[statement.name], statement)
        elif isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            statement.name not in bound and not statement.decorator_list
        ):
            here.body.append(statement)


def _bound_names(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Import() | ast.ImportFrom():
                yield from (alias.asname or alias.name.split(".")[0] for alias in node.names)
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case _:
                continue


def _split(node: Function) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The docstring, and the rest of the body, which is never empty."""
    first = 1 if ast.get_docstring(node, clean=False) is not None else 0
    return node.body[:first], node.body[first:] or [ast.Pass()]


def _is_empty(node: Function) -> bool:
    return all(
        isinstance(s, ast.Pass) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)) for s in node.body
    )


def _yields(node: Function) -> bool:
    waiting: list[ast.AST] = list(node.body)
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(inner, (*FUNCTIONS, ast.Lambda)):
            waiting.extend(ast.iter_child_nodes(inner))
    return False


# -- parts that remain


def _remaining_parts(module: ast.Module, before: ast.Module, after: ast.Module) -> Iterator[str]:
    known, remaining = _count_statements(before), _count_statements(module)
    for place, _, statement in _statements(after):
        dump = f"{place}|{ast.dump(statement)}"
        if known[dump] or not remaining[dump]:
            continue
        match statement:
            case ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Expr(value=ast.Constant()):
                continue
            case ast.AnnAssign(value=None):
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef() if _is_empty(statement):
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield f"{statement.name}(), which runs while the module is loaded"
            case ast.Assign(value=ast.expr() as value) | ast.AnnAssign(value=ast.expr() as value) if (
                _name_of(statement).startswith("__") or ast.unparse(value) in BARE
            ):
                continue
            case _ if _is_main(statement):
                continue
            case _:
                yield f"the statement in line {statement.lineno}"
    heads = _heads(before)
    for name, head in _heads(after).items():
        if name in heads and heads[name] != head:
            yield f"the head of class {name}"


def _heads(module: ast.Module) -> dict[str, str]:
    found = [node for node in ast.walk(module) if isinstance(node, ast.ClassDef)]
    return {node.name: "".join(map(ast.dump, (*node.bases, *node.keywords, *node.decorator_list))) for node in found}
