"""Go: inserts `if <the package has loaded> { return … }` at the start of every changed body.

The old body stays below it, because Go does not compile a file with an unused import or variable.
"""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from windlass.proof.hollow.parts import NUMBER, SENTINEL, SourceEdit, SourceFile, SourcePart, flag_name
from windlass.proof.hollow.syntax import field, leaves, line, outermost, parse, text, tokens

FUNCTIONS = frozenset({"function_declaration", "method_declaration"})
STRINGS = frozenset({"interpreted_string_literal", "raw_string_literal"})
ERRORS = frozenset({"errors.New", "fmt.Errorf"})
ALWAYS = " if true { return };"


def split(path: str, source: str) -> SourceFile | None:
    data = source.encode("utf-8", "surrogateescape")
    root = parse("go", data)
    if root is None:
        return None
    flag = flag_name(path)
    # Go sets the variables of the package before any init() runs.
    ending = f"\nvar {flag} bool\n\nfunc init() {{ {flag} = true }}\n"
    return SourceFile(data, tuple(_GoFile(root, data, flag).parts()), ending)


class _GoFile:
    def __init__(self, root: Node, data: bytes, flag: str) -> None:
        self._root = root
        self._data = data
        self._flag = flag
        self._used = frozenset(
            text(leaf)
            for leaf in leaves(root, _runs_at_load)
            if leaf.type in ("identifier", "field_identifier") and not _is_declared(leaf)
        )
        """Names that the package uses while it loads: in values, in types and in init()."""

    def parts(self) -> Iterator[SourcePart]:
        for node in self._root.named_children:
            match node.type:
                case "function_declaration" | "method_declaration":
                    yield from self._function(node)
                case "const_declaration":
                    yield from self._constants(node)
                case "var_declaration":
                    for spec in outermost(node, {"var_spec"}):
                        yield from self._spec(spec)
                case "type_declaration":
                    for spec in outermost(node, {"type_spec", "type_alias"}):
                        name = text(field(spec, "name"))
                        yield SourcePart(f"type {name}", tokens(spec), line(spec), left_if_old=f"type {name}")
                case _:
                    pass

    def _function(self, node: Node) -> Iterator[SourcePart]:
        name = text(field(node, "name"))
        receiver = field(node, "receiver")
        full = name
        if receiver is not None:
            types = [leaf for leaf in leaves(receiver, lambda node: True) if leaf.type == "type_identifier"]
            full = f"{text(types[0]) if types else ''}.{name}"
        body = field(node, "body")
        if body is None or text(body) == f"{{ {self._flag} = true }}":
            return
        guard = ALWAYS if name == "init" and receiver is None else self._guard(node)
        edits = self._guard_edits(body, guard)
        if not edits:
            yield SourcePart(full, tokens(node), line(node), left_if_old=f"{full} does nothing now")
            return
        left = f"{full} is used while the package loads" if name in self._used else ""
        yield SourcePart(full, tokens(node), line(node), edits, left)

    def _guard_edits(self, body: Node, guard: str) -> tuple[SourceEdit, ...]:
        at = body.start_byte + 1
        empty = not any(child.type != "comment" for child in body.named_children)
        return () if empty or self._data.startswith(guard.encode(), at) else (SourceEdit(at, at, guard),)

    def _guard(self, node: Node) -> str:
        result, types = field(node, "result"), list[str]()
        if result is not None and result.type != "parameter_list":
            types = [text(result)]
        elif result is not None:
            declarations = [child for child in result.named_children if child.type == "parameter_declaration"]
            # A plain `return` returns results that have names.
            if not any(field(declaration, "name") for declaration in declarations):
                types = [text(field(declaration, "type")) for declaration in declarations]
        zeros = [f"windlass{number}" for number in range(len(types))]
        declared = "".join(f"var {zero} {kind}; " for zero, kind in zip(zeros, types, strict=True))
        return f" if {self._flag} {{ {declared}return {', '.join(zeros)} }};".replace("return  }", "return }")

    def _constants(self, node: Node) -> Iterator[SourcePart]:
        specs = list(outermost(node, {"const_spec"}))
        if any(field(spec, "value") is None for spec in specs) or "iota" in tokens(node).split():
            # The value in one line also applies to the lines after it.
            for spec in specs:
                name = text(field(spec, "name"))
                yield SourcePart(name, tokens(node), line(spec), left=f"{name} is one of a series")
            return
        for spec in specs:
            yield from self._spec(spec)

    def _spec(self, spec: Node) -> Iterator[SourcePart]:
        names = [text(child) for child in spec.children_by_field_name("name") if child.type == "identifier"]
        values = field(spec, "value")
        if self._flag in names or values is None:
            return
        nodes = values.named_children
        if len(names) != len(nodes):
            yield from self._rest(spec, names[0])
            return
        for name, value in zip(names, nodes, strict=True):
            content, at = f"{tokens(value)} {tokens(field(spec, 'type') or value)}", line(value)
            edit = _other_value(name, value)
            if value.type == "func_literal":
                yield from self._literals(value, name)
            elif _is_empty(value):
                yield SourcePart(name, content, at, left_if_old=f"{name} is empty now")
            elif edit is None or edit.text == text(value):
                yield from self._rest(value, name)
            elif name in self._used:
                yield SourcePart(name, content, at, left=f"{name} is used while the package loads")
            else:
                yield SourcePart(name, content, at, (edit,))

    def _rest(self, node: Node, name: str) -> Iterator[SourcePart]:
        """A value that stays, with its functions emptied."""
        bodies = {body.id for body in (field(f, "body") for f in outermost(node, {"func_literal"})) if body is not None}
        if name == "_":  # var _ Reader = (*File)(nil)
            return
        yield SourcePart(name, tokens(node, bodies), line(node), left=f"{name} is computed while the package loads")
        yield from self._literals(node, name)

    def _literals(self, node: Node, name: str) -> Iterator[SourcePart]:
        for function in outermost(node, {"func_literal"}):
            body = field(function, "body")
            assert body is not None
            if self._data.startswith(_return_empty(text(field(function, "result"))).encode(), body.start_byte + 1):
                continue
            edits = self._guard_edits(body, self._guard(function))
            yield SourcePart(f"{name} func", tokens(function), line(function), edits)


# -- facts about a node


def _is_empty(node: Node) -> bool:
    if node.type == "composite_literal":
        body = field(node, "body")
        return body is not None and not any(child.type != "comment" for child in body.named_children)
    if node.type != "call_expression":
        return node.type == "nil"
    return text(field(node, "function")) == "make" and not text(node).strip().endswith("...)")


def _other_value(name: str, node: Node) -> SourceEdit | None:
    """Another value of the same type; None if the package might not load with it."""
    match node.type:
        case "int_literal":
            return _edit(node, str(NUMBER))
        case "float_literal":
            return _edit(node, f"{NUMBER}.5")
        case "rune_literal":
            return _edit(node, "'q'")
        case "true" | "false":
            return _edit(node, f"!{text(node)}")
        case "unary_expression" if node.named_children[0].type in ("int_literal", "float_literal"):
            return _other_value(name, node.named_children[0])
        case "binary_expression":  # 5 * time.Second
            numbers = [child for child in node.named_children if child.type == "int_literal"]
            return _edit(numbers[0], str(NUMBER)) if len(numbers) == 1 and text(numbers[0]) != str(NUMBER) else None
        case "composite_literal":
            kind = field(node, "type")
            plain = kind is not None and kind.type in ("slice_type", "map_type")
            if not plain:
                return None
            # The old value stays, but never runs: it may be the only use of an import.
            return _edit(node, f"func() {text(kind)} {{{_return_empty(text(kind))} return {text(node)} }}()")
        case "call_expression" if text(field(node, "function")) in ERRORS:
            arguments = field(node, "arguments")
            nodes = arguments.named_children if arguments is not None else []
            message = _quote_name(name)
            plain = len(nodes) == 1 and nodes[0].type in STRINGS and text(nodes[0]) != message
            return _edit(nodes[0], message) if plain else None
        case kind if kind in STRINGS:
            return _edit(node, _quote_name(name))
        case _:
            return None


def _return_empty(kind: str) -> str:
    return f" if true {{ return {kind}{{}} }};"


def _quote_name(name: str) -> str:
    return f'"{name}: {SENTINEL}"'


def _edit(node: Node, value: str) -> SourceEdit:
    return SourceEdit(node.start_byte, node.end_byte, value)


def _runs_at_load(node: Node) -> bool:
    if node.type in FUNCTIONS:
        return node.type == "function_declaration" and text(field(node, "name")) == "init"
    return node.type not in ("func_literal", "import_declaration", "package_clause", "field_declaration", "method_elem")


def _is_declared(leaf: Node) -> bool:
    parent = leaf.parent
    if parent is None or parent.type not in ("const_spec", "var_spec", "function_declaration"):
        return False
    return any(child == leaf for child in parent.children_by_field_name("name"))
