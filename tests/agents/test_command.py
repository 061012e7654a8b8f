from __future__ import annotations

import sys
from pathlib import Path

import pytest

from jobs import make_job, run
from windlass.agents.base import Invocation
from windlass.agents.cli.command import CommandAdapter
from windlass.agents.registry import make
from windlass.errors import UserError
from windlass.model import ErrorClass, Usage


def test_output_is_the_answer_and_exit_0_means_done(tmp_path: Path) -> None:
    program = "import sys; print('Got:', sys.stdin.read()); print(); print('end')"
    result = run(make("command", {"argv": [sys.executable, "-c", program]}), make_job(tmp_path))
    assert (result.error, result.text) == (None, "Got: You build.\n\nBuild it.\n\nend")
    assert result.usage == Usage(cost_usd=None)


def test_another_exit_code_is_a_failure(tmp_path: Path) -> None:
    program = "import sys; print('half'); sys.exit('401 Unauthorized')"
    result = run(make("command", {"argv": [sys.executable, "-c", program]}), make_job(tmp_path))
    assert (result.error, result.reason, result.code) == (ErrorClass.AUTH, "401 Unauthorized", 1)


def test_an_end_by_the_wall_limit_is_no_success(tmp_path: Path) -> None:
    from windlass.agents.base import Limits

    program = "import time; print('x', flush=True); time.sleep(60)"
    result = run(make("command", {"argv": [sys.executable, "-c", program]}), make_job(tmp_path, limits=Limits(0.3)))
    assert result.error is ErrorClass.TIMED_OUT


def test_placeholders_are_filled_without_a_shell(tmp_path: Path) -> None:
    job = make_job(tmp_path, model="m; rm -rf /", system="")
    adapter = make("mine", {"argv": ["cli", "--in={cwd}", "{role}", "{model}", "{prompt_file}"]})
    assert adapter.name == adapter.credential == "mine"
    assert adapter.invocation(job) == Invocation(
        ("cli", f"--in={job.cwd}", "implementer", "m; rm -rf /", str(job.folder / "input.md")),
        files={"input.md": "Build it."},
    )


def test_a_prompt_file_is_there_when_the_command_starts(tmp_path: Path) -> None:
    result = run(make("mine", {"argv": ["cat", "{prompt_file}"]}), make_job(tmp_path))
    assert result.text == "You build.\n\nBuild it."


@pytest.mark.parametrize(
    ("argv", "problem", "hint"),
    [
        ((), "needs 'argv'", "like argv"),
        (("cli", "{promptfile}"), "unknown '{promptfile}' in argv", "did you mean 'prompt_file'?"),
    ],
)
def test_a_bad_template_is_refused_before_the_run(argv: tuple[str, ...], problem: str, hint: str) -> None:
    with pytest.raises(UserError) as caught:
        CommandAdapter(argv)
    assert problem in caught.value.message
    assert hint in caught.value.hint
