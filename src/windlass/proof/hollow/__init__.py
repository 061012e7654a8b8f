"""Empties the changed bodies of source code. A test that still passes does not depend on the change.

A changed function works while its module loads and does nothing afterwards, so that a call at module level does not
break the hollow file. The text of the body stays in the file, but never runs: a test that searches the source still
finds its words. Unchanged code stays the same, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import PurePosixPath

from windlass.proof.hollow.parts import HollowSource, SourceFile, changed_parts, empty

#: suffix -> the module of this package for the language; loaded for the first changed file of the language
LANGUAGES = {
    ".py": "python",
    ".js": "javascript",
    ".jsx": "javascript",
    ".mjs": "javascript",
    ".cjs": "javascript",
    ".ts": "javascript",
    ".tsx": "javascript",
    ".mts": "javascript",
    ".cts": "javascript",
    ".go": "go",
}


def hollow(path: str, old: str, new: str) -> HollowSource | None:
    """`new` without the bodies and literals that are not in `old`.

    None if the language is unknown, `new` does not parse, or no body and no plain value changed.
    """
    after = _split(path, new)
    return empty(_split(path, old), after) if after else None


def is_inert(path: str, old: str, new: str) -> bool:
    """The change has no behaviour to test: only comments, layout, or imports that the file uses."""
    after = _split(path, new)
    return after is not None and not changed_parts(_split(path, old), after)


def _split(path: str, text: str) -> SourceFile | None:
    name = LANGUAGES.get(PurePosixPath(path).suffix.lower())
    if name is None:
        return None
    split: Callable[[str, str], SourceFile | None] = import_module(f"{__name__}.{name}").split
    try:
        return split(path, text)
    except RecursionError:  # brackets a thousand deep
        return None
