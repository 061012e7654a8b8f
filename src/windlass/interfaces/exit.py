"""What the shell is told, whatever happened."""

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
        # What a person typed, or a file's name, need not be UTF-8: it is refused or escaped, never a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape" if stream is sys.stdin else "backslashreplace")
    try:
        for word in argv:
            require_text(word, "an argument")
        code = cli.main(args=list(argv), prog_name="windlass", standalone_mode=False, obj=Session(apps))
        return int(code) if isinstance(code, int) else Exit.OK
    except click.UsageError as error:
        return _usage(error)
    except click.Abort:
        return Exit.INTERRUPTED
    except click.ClickException as error:
        return _say(error.format_message(), "", Exit.USER, argv)
    except WindlassError as error:
        return _say(error.message, error.hint, error.exit, argv)
    except KeyboardInterrupt:
        return _say("interrupted", "windlass status shows whether a run has begun", Exit.INTERRUPTED, argv)
    except BrokenPipeError:
        # The reader went away; Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as error:
        lacking = exhausted(error)
        if lacking is None:
            return _bug(argv, apps.environ)
        return _say(lacking.message, _without_a_run(lacking.hint, argv), lacking.exit, argv)


def _usage(error: click.UsageError) -> int:
    error.show()
    return Exit.USAGE


def _say(message: str, hint: str, code: Exit, argv: Sequence[str]) -> int:
    hint = _from_here(hint, argv)
    if "--json" in argv:
        click.echo(json.dumps({"error": message, "hint": hint, "exit": int(code)}))
    else:
        click.echo(f"error: {message}", err=True)
        if hint:
            click.echo(f"hint: {hint}", err=True)
    return code


def _without_a_run(hint: str, argv: Sequence[str]) -> str:
    """Only who drives a run has one to resume; the others type their command again."""
    word = next((word for word in argv if not word.startswith("-")), "")
    drives = word in ("", "run", "resume", "retry", "task", "answer", "drive", "demo")
    return hint if drives else hint.replace("windlass resume", f"windlass {word}")


def _from_here(hint: str, argv: Sequence[str]) -> str:
    """Who named a repository must name it again in the next command."""
    named = [after for word, after in itertools.pairwise(argv) if word == "--repo"]
    named += [word.partition("=")[2] for word in argv if word.startswith("--repo=")]
    if not hint or not named:
        return hint
    from windlass.views.outlook import addressed

    return addressed(hint, named[0])


def _bug(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Ours: the details go to a file that can be sent in, one line to the screen."""
    import traceback

    from windlass.runs.bug_log import write_bug_log

    text = traceback.format_exc()
    try:
        path: Path | str = write_bug_log(environ, " ".join(argv[:1]), text)
    except (OSError, WindlassError):
        path = "(no log could be written)"
        click.echo(text, err=True)
    return _say(
        f"this is a bug in Windlass: {text.strip().splitlines()[-1]}", f"the details are in {path}", Exit.BUG, argv
    )
