"""Runs a command line and turns every result and error into an exit code."""

from __future__ import annotations

import io
import itertools
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from windlass.errors import Exit, WindlassError, exhausted, require_text
from windlass.runs.app import Apps


def run(argv: Sequence[str], apps: Apps) -> int:
    from windlass.interfaces.cli import cli
    from windlass.interfaces.cli.common import Session

    for stream in (sys.stdin, sys.stdout):
        # Input and file names may not be UTF-8. Windlass refuses or escapes them instead of failing with a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape" if stream is sys.stdin else "backslashreplace")
    try:
        for word in argv:
            require_text(word, "an argument")
        code = cli.main(args=list(argv), prog_name="windlass", standalone_mode=False, obj=Session(apps))
        return int(code) if isinstance(code, int) else Exit.OK
    except click.UsageError as error:
        error.show()
        return Exit.USAGE
    except click.Abort:
        return Exit.INTERRUPTED
    except click.ClickException as error:
        return _report(error.format_message(), "", Exit.USER, argv)
    except WindlassError as error:
        return _report(error.message, error.hint, error.exit, argv)
    except KeyboardInterrupt:
        return _report("interrupted", "windlass status shows whether a run has started", Exit.INTERRUPTED, argv)
    except BrokenPipeError:
        # The reader closed the pipe. Without this, Python reports the error again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as error:
        exhaustion = exhausted(error)
        if exhaustion is None:
            return _bug(argv, apps.environ)
        return _report(exhaustion.message, _retry_hint(exhaustion.hint, argv), exhaustion.exit, argv)


def _report(message: str, hint: str, code: Exit, argv: Sequence[str]) -> int:
    # If the command line named a repository, name it in the hint's commands too.
    named = [after for word, after in itertools.pairwise(argv) if word == "--repo"]
    named += [word.partition("=")[2] for word in argv if word.startswith("--repo=")]
    if hint and named:
        from windlass.views.outlook import add_repository

        hint = add_repository(hint, named[0])
    if "--json" in argv:
        click.echo(json.dumps({"error": message, "hint": hint, "exit": int(code)}))
    else:
        click.echo(f"error: {message}", err=True)
        if hint:
            click.echo(f"hint: {hint}", err=True)
    return code


def _retry_hint(hint: str, argv: Sequence[str]) -> str:
    """For a command that drives no run, replace `windlass resume` in the hint with the command itself."""
    word = next((word for word in argv if not word.startswith("-")), "")
    drives = word in ("", "run", "resume", "retry", "restart", "skip", "task", "answer", "drive", "demo")
    return hint if drives else hint.replace("windlass resume", f"windlass {word}")


def _bug(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Print one line, and write the details to a file that the user can send in."""
    import traceback

    from windlass.runs.bug_log import write_bug_log

    text = traceback.format_exc()
    try:
        path: Path | str = write_bug_log(environ, " ".join(argv[:1]), text)
    except (OSError, WindlassError):
        path = "(no log could be written)"
        click.echo(text, err=True)
    return _report(
        f"this is a bug in Windlass: {text.strip().splitlines()[-1]}", f"the details are in {path}", Exit.BUG, argv
    )
