"""Helpers for the syntax trees of tree-sitter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cache
from importlib import import_module

from tree_sitter import Language, Node, Parser

#: grammar -> package on PyPI and its function
GRAMMARS = {
    "go": ("tree_sitter_go", "language"),
    "javascript": ("tree_sitter_javascript", "language"),
    "typescript": ("tree_sitter_typescript", "language_typescript"),
    "tsx": ("tree_sitter_typescript", "language_tsx"),
}


def parse(grammar: str, data: bytes) -> Node | None:
    """The root of the tree; None if the file has a syntax error."""
    root = _parser(grammar).parse(data).root_node
    return None if root.has_error else root


@cache
def _parser(grammar: str) -> Parser:
    package, function = GRAMMARS[grammar]
    return Parser(Language(getattr(import_module(package), function)()))


def text(node: Node | None) -> str:
    return node.text.decode("utf-8", "surrogateescape") if node and node.text is not None else ""


def line(node: Node) -> int:
    return int(node.start_point[0]) + 1


def tokens(node: Node, skip: Collection[int] = ()) -> str:
    """The text of the node without comments, layout and the nodes with ids in `skip`."""
    return " ".join(text(leaf) for leaf in leaves(node, lambda child: child.id not in skip))


def leaves(node: Node, wanted: Callable[[Node], bool]) -> Iterator[Node]:
    """The leaves below `node`, in order. `wanted` selects the nodes to enter."""
    waiting = [node]
    while waiting:
        at = waiting.pop()
        if at.type in ("comment", "html_comment") or not wanted(at):
            continue
        if at.child_count == 0:
            yield at
        waiting.extend(reversed(at.children))


def outermost(node: Node, kinds: Collection[str]) -> Iterator[Node]:
    """Nodes of these kinds at or below `node` that are not inside another such node."""
    waiting = [node]
    while waiting:
        at = waiting.pop()
        if at.type in kinds:
            yield at
        else:
            waiting.extend(reversed(at.children))


def field(node: Node, name: str) -> Node | None:
    return node.child_by_field_name(name)
