"""`windlass check`: this call's output and no other's, and hints for who has no run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from front import Front

CHECKS = '[checks]\ncommands = ["sh check.sh"]\n'


def made(tmp_path: Path, script: str) -> Front:
    return Front(tmp_path, CHECKS, {"check.sh": script})


def test_a_check_shows_its_own_output_and_nothing_of_earlier_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = tmp_path / "count"
    front = made(tmp_path, f"echo x >> {count}; echo call-$(wc -l < {count}) >&2; exit 1\n")
    assert "call-1" in front("check").out
    again = front("check").out
    assert "call-2" in again
    assert "call-1" not in again


def test_what_an_earlier_check_wrote_and_cannot_be_removed_is_said_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    front = made(tmp_path, "echo first >&2; exit 1\n")
    front("check")

    remove: Any = shutil.rmtree

    def refused(path: Path, **more: object) -> Any:
        # The slot is made clean first, by the same function.
        if "slots" in Path(path).parts:
            return remove(path, **more)
        raise PermissionError(1, "Operation not permitted", str(path))

    monkeypatch.setattr(shutil, "rmtree", refused)
    done = front("check")
    assert done.code == 12
    assert "cannot remove the output of an earlier check" in done.err
    assert "first" not in done.out


def test_a_set_up_that_fails_in_a_check_hints_at_the_check(tmp_path: Path) -> None:
    front = made(tmp_path, "true\n")
    front.configure(CHECKS + '[workspace]\nsetup = ["false"]\n')
    done = front("check")
    assert done.code == 12
    assert "then: windlass check" in done.err
    assert "resume" not in done.err
