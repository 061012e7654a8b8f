"""Syntax trees of tree-sitter: a file that parses, the meaning of a node without comments and layout, its names."""

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
    """The root of the tree; None where the file has a mistake."""
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
    """What the node says, without comments and layout, and without the nodes whose ids are in `skip`."""
    return " ".join(text(leaf) for leaf in leaves(node, lambda child: child.id not in skip))


def leaves(node: Node, wanted: Callable[[Node], bool]) -> Iterator[Node]:
    """The leaves below `node`, in order, of the nodes that are wanted."""
    waiting = [node]
    while waiting:
        at = waiting.pop()
        if at.type in ("comment", "html_comment") or not wanted(at):
            continue
        if at.child_count == 0:
            yield at
        waiting.extend(reversed(at.children))


def outermost(node: Node, kinds: Collection[str]) -> Iterator[Node]:
    """Nodes of these kinds at or below `node` that stand in no other of them."""
    waiting = [node]
    while waiting:
        at = waiting.pop()
        if at.type in kinds:
            yield at
        else:
            waiting.extend(reversed(at.children))


def field(node: Node, name: str) -> Node | None:
    return node.child_by_field_name(name)
