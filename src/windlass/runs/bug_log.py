"""Writes the details of a bug in Windlass to a file that the user can send in, without secrets."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from windlass.paths import state_dir
from windlass.redaction import redactor, secrets_in


def write_bug_log(environ: Mapping[str, str], command: str, text: str) -> Path:
    folder = state_dir(environ) / "windlass" / "logs"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = folder / f"bug-{os.getpid()}.log"
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(opened, "w", encoding="utf-8", errors="replace") as log:
        log.write(f"windlass {command}\n\n{redactor(secrets_in(environ)).text(text)}")
    return path
