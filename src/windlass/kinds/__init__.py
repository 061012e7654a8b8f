"""The kinds of phases. A new kind is one file in this folder and one line here."""

from importlib import import_module

from windlass.kinds.base import Kind

KINDS: dict[str, Kind] = {
    name: import_module(f"windlass.kinds.{name}").KIND
    for name in (
        "ask",
        "command",
        "dialogue",
        "elicit",
        "produce",
        "publish",
        "report",
        "review",
        "tasks",
    )
}
