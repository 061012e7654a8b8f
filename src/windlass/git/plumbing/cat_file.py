"""One `git cat-file` process that reads a repository's objects."""

from __future__ import annotations

import os
import subprocess
import weakref
from pathlib import Path

from windlass.errors import GitUnansweredError
from windlass.git import run as git


class CatFile:
    """One process for many objects; restarted when it was ended. Not for several threads at once."""

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

    def read(self, sha: str) -> tuple[str, bytes] | None:
        """Kind and content of an object; None when there is no such object."""
        return self._ask("contents", sha)

    def has(self, sha: str) -> bool:
        """Does not read the content, which may be large."""
        return self._ask("info", sha) is not None

    def _ask(self, command: str, sha: str) -> tuple[str, bytes] | None:
        try:
            return self._answer(command, sha)
        except OSError:
            # It was ended.
            _end(self._child)
            self._child = self._start()
        try:
            return self._answer(command, sha)
        except OSError:
            raise GitUnansweredError(f"`git cat-file` ends at once in {self._git_dir}", hint="try it there") from None

    def _answer(self, command: str, sha: str) -> tuple[str, bytes] | None:
        questions, answers = self._child.stdin, self._child.stdout
        assert questions is not None
        assert answers is not None
        questions.write(f"{command} {sha}\n".encode("ascii"))
        questions.flush()
        header = answers.readline()
        if not header:
            raise BrokenPipeError
        match header.decode("ascii").split():
            case [_, kind, _] if command == "info":
                return kind, b""
            case [_, kind, size]:
                body = answers.read(int(size) + 1)
                if len(body) != int(size) + 1:
                    raise BrokenPipeError
                return kind, body[:-1]
            case _:
                return None


def _end(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.communicate()
