"""The tag of a dispatch's block: the contract's tag with a nonce that only this run can make.

A reviewer may quote any file. A block in a file cannot carry the tag of the dispatch that quotes it: the nonce is
derived from the dispatch's key and a secret of the run. The same key always gives the same tag, so a continued session
is asked for the tag that it already knows.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path

from windlass.private_files import make_private, replace_file

FILE = "tag-secret"
DIGITS = 12


def run_secret(folder: Path) -> str:
    """Made once, in the run's folder, which only the user can read. A lost secret is replaced: every prompt names its
    tag, also that of a continued session."""
    path = folder / FILE
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        make_private(folder)
    # Windlass depends only on the secrecy of this value.
    made = os.urandom(32).hex()
    replace_file(path, made)
    return made


def block_tag(secret: str, key: str, tag: str) -> str:
    nonce = hmac.new(secret.encode(), key.encode(), hashlib.sha256).hexdigest()[:DIGITS]
    return f"{tag}-{nonce}"
