"""One `git cat-file` for all that is asked of a repository's objects."""

from __future__ import annotations

import os
import subprocess
import weakref
from pathlib import Path

from windlass.errors import GitUnansweredError
from windlass.git import run as git


class CatFile:
    """One `cat-file` that answers as long as this process lives. Not for several threads at once."""

    def __init__(self, git_dir: Path) -> None:
        self._git_dir = git_dir
        self._child = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [
            git.program(),
            *git.ISOLATED,
            f"--git-dir={self._git_dir}",
            "cat-file",
            "--batch-command",
        ]
        env, pipe = git.environment(os.environ, {}), subprocess.PIPE
        child = subprocess.Popen(
            command, cwd=self._git_dir, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
        )
        weakref.finalize(self, _end, child)
        return child

    def ask(self, sha: str) -> tuple[str, bytes] | None:
        """Its kind and content; None when there is no such object."""
        return self._asked("contents", sha)

    def has(self, sha: str) -> bool:
        """Without reading its content, which may be large."""
        return self._asked("info", sha) is not None

    def _asked(self, command: str, sha: str) -> tuple[str, bytes] | None:
        try:
            return self._answer(command, sha)
        except OSError:
            # it was ended by somebody
            _end(self._child)
            self._child = self._start()
        try:
            return self._answer(command, sha)
        except OSError:
            raise GitUnansweredError(f"`git cat-file` ends at once in {self._git_dir}", hint="try it there") from None

    def _answer(self, command: str, sha: str) -> tuple[str, bytes] | None:
        asked, told = self._child.stdin, self._child.stdout
        assert asked is not None
        assert told is not None
        asked.write(f"{command} {sha}\n".encode("ascii"))
        asked.flush()
        header = told.readline()
        if not header:
            raise BrokenPipeError
        match header.decode("ascii").split():
            case [_, kind, _] if command == "info":
                return kind, b""
            case [_, kind, size]:
                body = told.read(int(size) + 1)
                if len(body) != int(size) + 1:
                    raise BrokenPipeError
                return kind, body[:-1]
            case _:
                return None


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.communicate()
