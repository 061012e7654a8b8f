"""JavaScript and TypeScript: inserts `if (<the module has loaded>) return;` at the start of every changed body."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from msgspec.structs import replace
from tree_sitter import Node

from windlass.proof.hollow.parts import NUMBER, SENTINEL, SourceEdit, SourceFile, SourcePart, flag_name
from windlass.proof.hollow.syntax import field, leaves, line, outermost, parse, text, tokens

TYPED = {".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".tsx": "tsx"}
NOT_CHECKED = "// @ts-nocheck\n"
FUNCTIONS = frozenset(
    {
        "function_declaration",
        "generator_function_declaration",
        "function_expression",
        "generator_function",
        "arrow_function",
        "method_definition",
    }
)
CLASSES = frozenset({"class_declaration", "abstract_class_declaration", "class"})
VARIABLES = frozenset({"lexical_declaration", "variable_declaration"})
#: statements that do not run
SILENT = frozenset(
    {
        "ambient_declaration",
        "comment",
        "debugger_statement",
        "empty_statement",
        "function_signature",
        "hash_bang_line",
        "html_comment",
        "import_alias",
        "import_statement",
        "interface_declaration",
        "type_alias_declaration",
    }
)
#: an expression around another that has the same value
WRAPPERS = frozenset({"parenthesized_expression", "as_expression", "satisfies_expression", "non_null_expression"})
#: parts of running code that do not run
NOT_RUN = frozenset(
    {"abstract_method_signature", "class_heritage", "export_clause", "method_signature", "type_annotation"}
)
CONTAINERS = frozenset({"Map", "Set", "WeakMap", "WeakSet", "Array", "Object"})


def split(path: str, source: str) -> SourceFile | None:
    data = source.encode("utf-8", "surrogateescape")
    grammar = TYPED.get(PurePosixPath(path).suffix.lower(), "javascript")
    root = parse(grammar, data)
    if root is None:
        return None
    typed = grammar != "javascript"
    file = _JavaScriptFile(root, data, flag_name(path), typed=typed)
    parts = tuple(file.parts())
    start = data.index(b"\n") + 1 if data.startswith(b"#!") and b"\n" in data else 0
    if typed and not data.startswith(NOT_CHECKED.encode(), start):
        # The type checker may refuse an early return: a constructor leaves its fields unset.
        first = SourceEdit(start, start, NOT_CHECKED)
        parts = tuple(replace(part, edits=(first, *part.edits)) if part.edits else part for part in parts)
    return SourceFile(data, parts, file.ending)


class _JavaScriptFile:
    def __init__(self, root: Node, data: bytes, flag: str, *, typed: bool) -> None:
        self._root = root
        self._data = data
        self._flag = flag
        self._typed = typed
        # A `var` exists from the start of the file, and is undefined until this line.
        self.ending = f"\nvar {flag}{': any' if typed else ''} = true;\n"
        self._used = frozenset(
            f".{text(leaf)}" if leaf.type == "property_identifier" else text(leaf)
            for leaf in leaves(root, _runs_at_load)
            if leaf.type in ("identifier", "property_identifier", "shorthand_property_identifier") and _is_use(leaf)
        )
        """Names, and members with a dot, that the module uses while it loads. Exports do not count."""
        self._own: set[str] = set()
        """Names of the functions, classes and variables of the file, without imports."""
        for node in outermost(root, FUNCTIONS | CLASSES | {"variable_declarator"}):
            name, value = field(node, "name"), field(node, "value")
            is_name = name is not None and name.type in ("identifier", "type_identifier")
            if is_name and not (value and _is_import(value)):
                self._own.add(text(name))

    def parts(self) -> Iterator[SourcePart]:
        yield from self._block(self._root, "")

    def _block(self, block: Node, place: str) -> Iterator[SourcePart]:
        for statement in block.named_children:
            yield from self._statement(statement, place)

    def _statement(self, node: Node, place: str) -> Iterator[SourcePart]:
        kind = node.type
        if kind in SILENT:
            return
        if kind == "export_statement":
            yield from self._export(node, place)
        elif kind in FUNCTIONS:
            yield self._function(node, place + text(field(node, "name")))
        elif kind in CLASSES:
            yield from self._class(node, place + text(field(node, "name")))
        elif kind in VARIABLES:
            for declarator in node.named_children:
                name, value = text(field(declarator, "name")), field(declarator, "value")
                if declarator.type == "variable_declarator" and value is not None and name != self._flag:
                    yield from self._value(value, place + name)
        elif kind in ("internal_module", "module"):
            body = field(node, "body")
            if body is not None:
                yield from self._block(body, f"{place}{text(field(node, 'name'))}.")
        elif kind == "enum_declaration":
            name = place + text(field(node, "name"))
            yield SourcePart(name, tokens(node), line(node), left=f"enum {name}")
        elif kind == "expression_statement":
            yield from self._expression(node.named_children[0], place)
        else:
            yield from self._compound(node, place)

    def _export(self, node: Node, place: str) -> Iterator[SourcePart]:
        declaration, value, source = field(node, "declaration"), field(node, "value"), field(node, "source")
        if declaration is not None:
            yield from self._statement(declaration, place)
        elif value is not None:
            yield from self._value(value, f"{place}default")
        elif source is not None:
            yield SourcePart(f"{place}export", tokens(node), line(node), left="an export from another module")

    def _expression(self, node: Node, place: str) -> Iterator[SourcePart]:
        if node.type in ("string", "internal_module", "module"):
            if node.type != "string":
                yield from self._statement(node, place)
            return
        left, right = field(node, "left"), field(node, "right")
        if node.type == "assignment_expression" and left is not None and right is not None:
            yield from self._value(right, place + text(left))
            return
        called = node.type in ("call_expression", "await_expression", "new_expression")
        yield from self._rest(node, f"{place}()", f"{'a call' if called else 'code that runs'} while the module loads")

    def _compound(self, node: Node, place: str) -> Iterator[SourcePart]:
        """`if`, `for`, `try` …: the blocks are parts of their own, the conditions stay."""
        blocks = list(outermost(node, {"statement_block"}))
        if node.type == "return_statement":
            # The code below never runs, so the flag that the file has loaded is never set.
            blocks = []
        head = tokens(node, {block.id for block in blocks} | _bodies(node))
        yield SourcePart(place + node.type, head, line(node), left="code that runs while the module loads")
        inside = {at.id for block in blocks for at in outermost(block, FUNCTIONS)}
        for block in blocks:
            yield from self._block(block, place)
        for function in outermost(node, FUNCTIONS):
            if function.id not in inside:
                yield self._function(function, place)

    def _rest(self, node: Node, place: str, left: str) -> Iterator[SourcePart]:
        """An expression that stays, with its functions emptied."""
        yield SourcePart(place, tokens(node, _bodies(node)), line(node), left=left)
        for inner in outermost(node, FUNCTIONS | CLASSES):
            yield from self._class(inner, place) if inner.type in CLASSES else [self._function(inner, place)]

    # -- values

    def _value(self, whole: Node, place: str) -> Iterator[SourcePart]:
        node = whole
        while node.type in WRAPPERS and node.named_children:
            node = node.named_children[0]
        if node.type in FUNCTIONS:
            yield self._function(node, place)
        elif node.type in CLASSES:
            yield from self._class(node, place)
        elif node.type == "assignment_expression":  # exports = module.exports = …
            right = field(node, "right")
            if right is not None:
                yield from self._value(right, place)
        elif node.type == "object" and (_bodies(node) or _names_only(node)):
            yield from self._members(node, place)
        elif _is_import(node) or (node.type == "identifier" and text(node) in self._own):
            return
        elif _is_empty(node):
            yield SourcePart(place, tokens(node), line(node), left_if_old=f"{place} is empty now")
        else:
            other = _other_value(node, place)
            if other is not None and self._typed:
                other = f"({other} as any)"
            if other is None or other == text(whole):
                yield from self._rest(node, place, f"{place} is computed while the module loads")
            elif self._is_used(place):
                yield SourcePart(place, tokens(node), line(node), left=f"{place} is used while the module loads")
            else:
                edit = SourceEdit(whole.start_byte, whole.end_byte, other)
                yield SourcePart(place, tokens(node), line(node), (edit,))

    def _members(self, node: Node, place: str) -> Iterator[SourcePart]:
        for member in node.named_children:
            if member.type == "pair":
                value = field(member, "value")
                if value is not None:
                    yield from self._value(value, f"{place}.{text(field(member, 'key'))}")
            elif member.type == "method_definition":
                yield self._function(member, f"{place}.{text(field(member, 'name'))}")
            elif member.type != "comment" and (member.type == "spread_element" or text(member) not in self._own):
                yield SourcePart(f"{place}.", tokens(member), line(member), left=f"{text(member)} comes from elsewhere")

    # -- functions and classes

    def _function(self, node: Node, name: str, owner: str = "", *, derived: bool = False) -> SourcePart:
        content, at = tokens(node), line(node)
        body = field(node, "body")
        if body is None:  # a signature
            return SourcePart(name, content, at)
        edits = self._guard(node, body, derived=derived)
        if edits is None:
            return SourcePart(name, content, at, left=f"{name} calls super() in a branch")
        if not edits:
            return SourcePart(name, content, at, left_if_old=f"{name} does nothing now")
        used = self._is_used(name) or (name.endswith(".constructor") and owner in self._used)
        return SourcePart(name, content, at, edits, f"{name} is used while the module loads" if used else "")

    def _is_used(self, place: str) -> bool:
        _, dot, name = place.rpartition(".")
        return dot + name in self._used

    def _guard(self, node: Node, body: Node, *, derived: bool) -> tuple[SourceEdit, ...] | None:
        """No edits if the body is already empty; None if Windlass cannot empty it."""
        nothing = "undefined as never" if self._typed else "undefined"
        if body.type != "statement_block":
            start = f"({self._flag} ? {nothing} : ("
            if text(body) in ("undefined", "null", "{}", "({})") or text(body).startswith(start):
                return ()
            return SourceEdit(body.start_byte, body.start_byte, start), SourceEdit(body.end_byte, body.end_byte, "))")
        statements = [child for child in body.named_children if child.type != "comment"]
        if not statements:
            return ()
        after, opening = body.start_byte + 1, ""
        is_maker = node.type == "method_definition" and text(field(node, "name")) == "constructor"
        if is_maker and derived:
            call = next((child for child in statements if _is_super_call(child)), None)
            if call is None:
                return None
            if call == statements[-1]:
                return ()
            after, opening = call.end_byte, ";"
        is_setter = any(child.type == "set" for child in node.children)
        answer = f" {nothing}" if self._typed and not is_maker and not is_setter else ""
        guard = f" {opening}if ({self._flag}) return{answer};"
        written = self._data.startswith(guard.encode(), after)
        return () if written else (SourceEdit(after, after, guard),)

    def _class(self, node: Node, name: str) -> Iterator[SourcePart]:
        body = field(node, "body")
        assert body is not None
        above = [text(child) for child in node.parent.children if child.type == "decorator"] if node.parent else []
        derived = any(child.type == "class_heritage" and "extends" in tokens(child) for child in node.children)
        head = " ".join([*above, tokens(node, {body.id})])
        idle = derived and not _bodies(body)
        left = f"class {name} is all in its head" if idle else ""
        yield SourcePart(f"class {name}", head, line(node), left=left, left_if_old=f"the head of class {name}")
        for member in body.named_children:
            inner = f"{name}.{text(field(member, 'name') or field(member, 'property'))}"
            if member.type == "method_definition":
                yield self._function(member, inner, name.rpartition(".")[2], derived=derived)
            elif member.type in ("field_definition", "public_field_definition"):
                value = field(member, "value")
                if value is not None:
                    yield from self._value(value, inner)
            elif member.type == "class_static_block":
                yield from self._rest(member, f"{name}.static", "a static block")
            elif member.type == "decorator":
                yield SourcePart(f"{name}@", tokens(member), line(member), left="a decorator")


# -- facts about a node


def _bodies(node: Node) -> set[int]:
    """Ids of the bodies of the functions in a node."""
    bodies = (field(function, "body") for function in outermost(node, FUNCTIONS))
    return {body.id for body in bodies if body is not None}


def _names_only(node: Node) -> bool:
    """`{ add, sub: subtract }`"""
    members = [child for child in node.named_children if child.type != "comment"]
    kinds = [(field(m, "value") or m).type if m.type == "pair" else m.type for m in members]
    return bool(kinds) and any(kind in ("identifier", "shorthand_property_identifier") for kind in kinds)


def _is_super_call(node: Node) -> bool:
    call = node.named_children[0] if node.type == "expression_statement" else node
    function = field(call, "function") if call.type == "call_expression" else None
    return function is not None and function.type == "super"


def _is_import(node: Node) -> bool:
    """`require("x")`, `require("x").y`, `await import("x")`"""
    while node.type in ("member_expression", "await_expression", *WRAPPERS) and node.named_children:
        node = node.named_children[0]
    return node.type == "call_expression" and text(field(node, "function")) in ("require", "import")


def _is_empty(node: Node) -> bool:
    if node.type in ("null", "undefined") or text(node) == "void 0":
        return True
    if node.type in ("array", "object"):
        return not [child for child in node.named_children if child.type != "comment"]
    arguments = field(node, "arguments")
    bare = arguments is None or not arguments.named_children
    return node.type == "new_expression" and text(field(node, "constructor")) in CONTAINERS and bare


def _other_value(node: Node, place: str) -> str | None:
    """Another value of the same kind; None if the module might not load with it."""
    match node.type:
        case "number":
            return str(NUMBER)
        case "unary_expression" if text(node).lstrip("-+").strip().isdigit():
            return str(NUMBER)
        case "true" | "false":
            return f"!{text(node)}"
        case "string":
            return _quote_name(place)
        case "template_string" if all(child.type != "template_substitution" for child in node.named_children):
            return _quote_name(place)
        case "regex":
            return "/(?!)/"
        case "array":
            return "[]"
        case "object":
            return "{}"
        case _:
            return None


def _quote_name(place: str) -> str:
    words = "".join(sign for sign in place if sign.isalnum() or sign in "_$.")
    return f'"{words}: {SENTINEL}"'


def _runs_at_load(node: Node) -> bool:
    if node.type in FUNCTIONS | SILENT or node.type in NOT_RUN:
        return False
    if node.type in ("field_definition", "public_field_definition"):  # runs when an instance is made
        return any(child.type == "static" for child in node.children)
    if node.type == "assignment_expression":
        target = text(field(node, "left"))
        value = field(node, "right")
        exported = target == "module.exports" or target.startswith(("exports.", "module.exports."))
        return not (exported and value is not None and value.type in ("object", "identifier"))
    return True


def _is_use(leaf: Node) -> bool:
    parent = leaf.parent
    if parent is None:
        return True
    if parent.type in ("variable_declarator", "pair", *CLASSES) and leaf in (
        field(parent, "name"),
        field(parent, "key"),
    ):
        return False
    if parent.type == "export_statement":  # export default name
        return False
    at = parent
    while at.type == "member_expression" and at.parent is not None:
        # `Shape.prototype.area = …` uses nothing of Shape.
        if at.parent.type == "assignment_expression" and field(at.parent, "left") == at:
            return False
        at = at.parent
    return True
