"""Source code with the changed bodies emptied: a test that still passes there asks nothing of the change.

A changed function does its work while its module loads and nothing afterwards, so that a call at module level neither
breaks the hollow file nor keeps the function alive. Its text stays where it is, out of reach: a test that searches the
source for words finds them in the hollow file, too. Unchanged code stays as it is, byte for byte.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import PurePosixPath

from windlass.proof.hollow.parts import Hollowed, SourceFile, changed_parts, empty

#: suffix -> the module of this package that knows the language; loaded when the first such file changed
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


def hollow(path: str, old: str, new: str) -> Hollowed | None:
    """`new` without the bodies and literals that `old` does not have.

    None: the language is unknown, `new` does not parse, or nothing changed that has a body or a plain value.
    """
    after = _split(path, new)
    return empty(_split(path, old), after) if after else None


def is_inert(path: str, old: str, new: str) -> bool:
    """The change has nothing that a test could ask about: comments, layout, imports that the file itself uses."""
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
