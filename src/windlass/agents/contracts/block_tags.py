"""The tag of a dispatch's block: the contract's, with a nonce that only this run can make.

A reviewer may quote any file. A block in a file cannot carry the tag of the dispatch that quotes it, because the nonce
is derived from the dispatch's key with a secret of the run. The same key always gives the same tag, so that an agent
whose session is continued is asked for the tag that it was told before.
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
    """Made once, in the run's own folder, which only the user can read. A lost one is made anew: every prompt, also
    that of a continued session, names its tag."""
    path = folder / FILE
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        make_private(folder)
    # Nothing that Windlass does depends on its value, only that nobody else can know it.
    made = os.urandom(32).hex()
    replace_file(path, made)
    return made


def block_tag(secret: str, key: str, tag: str) -> str:
    nonce = hmac.new(secret.encode(), key.encode(), hashlib.sha256).hexdigest()[:DIGITS]
    return f"{tag}-{nonce}"
