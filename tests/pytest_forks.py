"""A program that runs pytest many times: it loads pytest once, and forks for every run.

A line of JSON on standard input is one run: `cwd`, `args`, `env`, `timeout`, `output`. A line of JSON on standard
output is how it ended: `code`, `timed_out`, `seconds`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest


def main() -> None:
    warm_up()
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


def warm_up() -> None:
    """Load what pytest loads when it needs it, so that no run has to."""
    with tempfile.TemporaryDirectory() as folder:
        test = Path(folder, "test_nothing.py")
        test.write_text(
            "import subprocess, unittest.mock\n\ndef test_nothing(tmp_path, caplog, monkeypatch):\n    assert 1 == 2\n"
        )
        with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
            pytest.main(
                ["-q", "-p", "no:cacheprovider", f"--rootdir={folder}", f"--junitxml={folder}/x.xml", str(test)]
            )
    for name in ("test_nothing",):
        sys.modules.pop(name, None)
    gc.collect()
    gc.freeze()


def run(job: dict) -> dict:  # type: ignore[type-arg]
    start = time.monotonic()
    child = os.fork()
    if child == 0:
        become(job)
    while time.monotonic() - start < job["timeout"]:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            end_group(child)
            return {"code": os.waitstatus_to_exitcode(status), "timed_out": False, "seconds": time.monotonic() - start}
        time.sleep(0.002)
    end_group(child)
    os.waitpid(child, 0)
    return {"code": None, "timed_out": True, "seconds": time.monotonic() - start}


def end_group(child: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)


def become(job: dict) -> None:  # type: ignore[type-arg]
    code = 3
    try:
        os.setsid()
        gc.disable()
        os.chdir(job["cwd"])
        os.environ.clear()
        os.environ.update(job["env"])
        sys.dont_write_bytecode = True
        sys.path[0] = job["cwd"]
        sys.argv = ["pytest", *job["args"]]
        out = os.open(job["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        code = int(pytest.main(job["args"]))
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
