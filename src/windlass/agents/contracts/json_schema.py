"""The JSON schema of a contract's block, for CLIs that can hold a model to a schema."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

from msgspec import NODEFAULT, Meta, Struct

from windlass.conversion import bare, fields_of, members, notes
from windlass.model import Json

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_of(cls: type[Struct]) -> dict[str, Json]:
    """Nested structs go under `$defs`."""
    shared: dict[str, Json] = {}
    schema = _struct(cls, shared)
    return {"$defs": dict(sorted(shared.items())), **schema} if shared else schema


def description(hint: Any) -> str:
    return next((note.description for note in notes(hint) if isinstance(note, Meta) and note.description), "")


def _struct(cls: type[Struct], shared: dict[str, Json]) -> dict[str, Json]:
    infos = fields_of(cls)
    properties: dict[str, Json] = {}
    for info in infos:
        found = _value(info.type, shared)
        found["title"] = info.encode_name.replace("_", " ").title()
        if text := description(info.type):
            found["description"] = text
        if not info.required:
            default = info.default if info.default_factory is NODEFAULT else info.default_factory()
            found["default"] = list(default) if isinstance(default, tuple) else default
        properties[info.encode_name] = dict(sorted(found.items()))
    required: list[Json] = [info.encode_name for info in infos if info.required]
    need: dict[str, Json] = {"required": required} if required else {}
    return {"properties": properties, **need, "title": cls.__name__, "type": "object"}


def _value(hint: Any, shared: dict[str, Json]) -> dict[str, Json]:
    kind = bare(hint)
    found = _kind(kind, shared)
    least, most = ("minLength", "maxLength") if kind is str else ("minItems", "maxItems")
    for note in notes(hint):
        if isinstance(note, Meta):
            bounds: dict[str, Any] = {
                least: note.min_length,
                most: note.max_length,
                "minimum": note.ge,
                "maximum": note.le,
            }
            found |= {name: bound for name, bound in bounds.items() if bound is not None}
    return dict(sorted(found.items()))


def _kind(kind: Any, shared: dict[str, Json]) -> dict[str, Json]:
    if kind in PLAIN:
        return {"type": PLAIN[kind]}
    if isinstance(kind, type) and issubclass(kind, Struct):
        if kind.__name__ not in shared:
            shared[kind.__name__] = _struct(kind, shared)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    inner = get_args(kind)
    if get_origin(kind) is Literal:
        words: dict[str, Json] = {"enum": list(inner)} if len(inner) > 1 else {"const": inner[0]}
        return {**words, "type": "string"}
    if get_origin(kind) in (tuple, list):
        return {"items": _value(inner[0], shared), "type": "array"}
    return {"anyOf": [_value(one, shared) for one in members(kind)]}
