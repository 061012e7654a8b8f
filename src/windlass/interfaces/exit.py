"""What the shell is told, whatever happened."""

from __future__ import annotations

import io
import itertools
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from windlass.app import environment
from windlass.errors import Exit, WindlassError, exhausted, require_text
from windlass.place import state_dir


def run(argv: Sequence[str]) -> int:
    from windlass.interfaces.cli import cli

    for stream in (sys.stdin, sys.stdout):
        # What a person typed, or a file's name, need not be UTF-8: it is refused or escaped, never a traceback.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="surrogateescape" if stream is sys.stdin else "backslashreplace")
    try:
        for word in argv:
            require_text(word, "an argument")
        code = cli.main(args=list(argv), prog_name="windlass", standalone_mode=False)
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
        return _say(lacking.message, lacking.hint, lacking.exit, argv) if lacking else _bug(argv)


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


def _from_here(hint: str, argv: Sequence[str]) -> str:
    """Who named a repository must name it again in the next command."""
    named = [after for word, after in itertools.pairwise(argv) if word == "--repo"]
    named += [word.partition("=")[2] for word in argv if word.startswith("--repo=")]
    if not hint or not named:
        return hint
    from windlass.projections.outlook import addressed

    return addressed(hint, named[0])


def _bug(argv: Sequence[str]) -> int:
    """Ours: the details go to a file that can be sent in, one line to the screen."""
    import traceback

    from windlass.redact import redactor, secrets_in

    text = traceback.format_exc()
    try:
        folder = state_dir(environment()) / "windlass" / "logs"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path: Path | str = folder / f"bug-{os.getpid()}.log"
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(opened, "w", encoding="utf-8", errors="replace") as log:
            log.write(f"windlass {' '.join(argv[:1])}\n\n{redactor(secrets_in(environment())).text(text)}")
    except (OSError, WindlassError):
        path = "(no log could be written)"
        click.echo(text, err=True)
    return _say(
        f"this is a bug in Windlass: {text.strip().splitlines()[-1]}", f"the details are in {path}", Exit.BUG, argv
    )
