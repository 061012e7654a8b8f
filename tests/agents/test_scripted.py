from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from jobs import dispatch, make_job, run
from windlass.agents.base import Adapter, Job, Limits
from windlass.agents.cli.script import FIELDS, ScriptError, load_script, parse_script
from windlass.agents.contracts.registry import ReviewBlock, parse
from windlass.agents.registry import ADAPTERS, make
from windlass.errors import UserError
from windlass.model import ErrorClass, Finding, Severity, Usage, Verdict


def scripted(tmp_path: Path, text: str) -> Adapter:
    path = tmp_path / "script.yaml"
    path.write_text(text)
    return make("scripted", {"script": str(path)})


def log(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "state" / "dispatches.jsonl").read_text().splitlines()]


def git(cwd: Path, *args: str) -> str:
    return subprocess.run(["git", *args], cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


def test_a_rule_writes_runs_commits_and_says(tmp_path: Path) -> None:
    adapter = scripted(
        tmp_path,
        """
- when: {role: implementer}
  files: {src/limiter.py: "rate = 1\\n", "{task_id}.txt": "{task_title} in {cwd}"}
  delete: [old.txt]
  run: ["test -f src/limiter.py && echo seen > seen.txt"]
  commit: "feat: {task_title}"
  say: "Done with {task_id}."
  events: 2
  usage: {input: 1200, output: 300, cost_usd: 0.02}
""",
    )
    job = make_job(tmp_path)
    git(job.cwd, "init", "-q")
    (job.cwd / "old.txt").write_text("x")
    result = run(adapter, job)
    assert (result.error, result.reason, result.text) == (None, "", "Done with t1.")
    assert result.usage == Usage(1200, 300, 0, 0.02)
    assert (job.cwd / "t1.txt").read_text() == f"Token bucket in {job.cwd}"
    assert git(job.cwd, "log", "--format=%s") == "feat: Token bucket"
    assert sorted(git(job.cwd, "ls-files").split()) == ["seen.txt", "src/limiter.py", "t1.txt"]
    assert result.tools == 2 + 2 + 1 + 1


def test_json_becomes_the_block_of_the_role_s_contract(tmp_path: Path) -> None:
    adapter = scripted(
        tmp_path,
        "- say: I looked.\n"
        "  json: {status: fail, findings: [{severity: high, file: a.py, line: 3, message: 'no: 5'}]}\n",
    )
    text = run(adapter, make_job(tmp_path, role="spec-reviewer", contract="review")).text
    assert text.startswith("I looked.\n\n```superteam-json\n")
    found = ReviewBlock.from_json(parse("review", text).value)
    assert found == ReviewBlock(Verdict.FAIL, (Finding("no: 5", Severity.HIGH, "a.py", 3),))


def test_plain_words_in_json_are_what_they_look_like(tmp_path: Path) -> None:
    body = "{a: true, b: 12, c: 1.5, d: '12', e: null, f: [x, false], g: on}"
    path = tmp_path / "s.yaml"
    path.write_text(f"- json: {body}\n")
    expected = {"a": True, "b": 12, "c": 1.5, "d": "12", "e": None, "f": ["x", False], "g": "on"}
    assert load_script(path).rules == ({"json": expected},)


def test_declared_artifacts_are_named_by_their_paths(tmp_path: Path) -> None:
    adapter = scripted(tmp_path, "- files: {'{plan_path}': p, '{out.design-doc}': d}\n  say: '{out.plan} f{x}'\n")
    job = make_job(tmp_path, outs={"plan": "docs/plan.md", "design-doc": "docs/design.md"})
    assert run(adapter, job).text == "docs/plan.md f{x}"
    assert ((job.cwd / "docs/plan.md").read_text(), (job.cwd / "docs/design.md").read_text()) == ("p", "d")
    with pytest.raises(UserError) as caught:
        adapter.invocation(make_job(tmp_path))
    assert "uses '{plan_path}', which role 'implementer' does not have" in caught.value.message


RULES = """
- {when: {role: implementer, task: t2}, say: by id}
- {when: {task: Big Task}, say: by title}
- {when: {phase: finalize}, say: by phase}
- {when: {cycle: 2}, say: by cycle}
- {when: {attempt: 2}, say: by attempt}
- {when: {purpose: fix}, say: by purpose}
- {when: {role: scout}, say: by role}
"""


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"task_id": "t2"}, "by id"),
        ({"task_title": "Big Task"}, "by title"),
        ({"phase": "finalize"}, "by phase"),
        ({"cycle": 2}, "by cycle"),
        ({"attempt": 2}, "by attempt"),
        ({"purpose": "fix"}, "by purpose"),
        ({"role": "scout"}, "by role"),
        ({"role": "scout", "attempt": 2}, "by attempt"),
    ],
)
def test_the_first_rule_whose_conditions_all_hold_answers(tmp_path: Path, facts: Mapping[str, Any], said: str) -> None:
    assert run(scripted(tmp_path, RULES), make_job(tmp_path, **facts)).text == said


def test_when_no_rule_answers_the_dispatch_says_for_whom(tmp_path: Path) -> None:
    result = run(scripted(tmp_path, "- when: {role: scout}\n  say: x\n"), make_job(tmp_path))
    assert result.error is ErrorClass.CRASHED
    assert "answers role='implementer', phase='execute', task='t1', title='Token bucket', attempt=1" in result.reason


def test_times_are_counted_across_processes(tmp_path: Path) -> None:
    adapter = scripted(tmp_path, "- {times: 3, say: limited}\n- {say: after}\n")

    async def scenario() -> list[str]:
        jobs = []
        for n in range(8):
            (tmp_path / str(n)).mkdir()
            job = make_job(tmp_path / str(n), key=f"k{n}", options={"state": str(tmp_path / "state")})
            jobs.append(dispatch(adapter, job))
        return [result.text for result in await asyncio.gather(*jobs)]

    assert sorted(asyncio.run(scenario())) == ["after"] * 5 + ["limited"] * 3
    lines = log(tmp_path)
    assert sorted((line["event"], line["key"]) for line in lines) == [
        (e, f"k{n}") for e in ("end", "start") for n in range(8)
    ]


def test_a_dispatch_that_was_killed_does_not_use_up_a_rule(tmp_path: Path) -> None:
    adapter = scripted(
        tmp_path, "- {when: {attempt: 1}, times: 1, hang: true}\n- {times: 1, say: second}\n- {say: third}\n"
    )
    killed = run(adapter, make_job(tmp_path, limits=Limits(0.3)))
    assert killed.error is ErrorClass.TIMED_OUT
    assert run(adapter, make_job(tmp_path, attempt=2)).text == "second"
    assert run(adapter, make_job(tmp_path, attempt=3)).text == "third"
    again = run(adapter, make_job(tmp_path, limits=Limits(0.3)))
    assert again.error is ErrorClass.TIMED_OUT
    assert [(line["event"], line["attempt"], line["rule"]) for line in log(tmp_path)] == [
        ("start", 1, 1),
        ("start", 2, 2),
        ("end", 2, 2),
        ("start", 3, 3),
        ("end", 3, 3),
        ("start", 1, 1),
    ]


def test_an_exit_code_and_stderr_are_a_failure_of_that_class(tmp_path: Path) -> None:
    result = run(scripted(tmp_path, "- {exit: 1, stderr: 429 Too Many Requests, say: x}\n"), make_job(tmp_path))
    assert (result.error, result.reason, result.code) == (ErrorClass.RATE_LIMITED, "429 Too Many Requests", 1)


def test_a_failing_command_fails_the_dispatch(tmp_path: Path) -> None:
    result = run(scripted(tmp_path, "- {run: ['exit 3', 'touch late'], say: x}\n"), make_job(tmp_path))
    assert (result.error, result.reason) == (ErrorClass.CRASHED, "ended with code 1: 'exit 3' ended with code 3")
    assert not (tmp_path / "cwd" / "late").exists()


@pytest.mark.parametrize("path", ["../out.txt", "/tmp/out.txt", "link/out.txt", "."])
def test_files_stay_inside_the_working_directory(tmp_path: Path, path: str) -> None:
    job = make_job(tmp_path)
    (job.cwd / "link").symlink_to(tmp_path)
    result = run(scripted(tmp_path, f"- {{files: {{'{path}': x}}, say: y}}\n"), job)
    assert result.error is ErrorClass.CRASHED
    assert "is not inside the working directory" in result.reason
    assert not (tmp_path / "out.txt").exists()


def test_usage_steps_are_streamed_so_that_a_budget_can_stop_it(tmp_path: Path) -> None:
    adapter = scripted(tmp_path, "- {usage_steps: [0.1, 0.5, 2], files: {late.txt: x}, say: done}\n")
    job = make_job(tmp_path, limits=Limits(30.0, usd=0.4))
    result = run(adapter, job)
    assert (result.error, result.usage.cost_usd) == (ErrorClass.OVER_BUDGET, 0.5)
    assert not (job.cwd / "late.txt").exists()


def test_ignore_term_is_deaf_and_hang_never_ends(tmp_path: Path) -> None:
    adapter = scripted(tmp_path, "- {hang: true, ignore_term: true, events: 1}\n")

    async def scenario() -> Any:
        stop = asyncio.Event()
        return await dispatch(adapter, make_job(tmp_path), stop=stop, on_event=lambda event: stop.set())

    begun = time.monotonic()
    assert asyncio.run(scenario()).error is ErrorClass.KILLED
    assert time.monotonic() - begun > 0.3


def test_commit_with_nothing_to_commit_is_no_failure(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    git(job.cwd, "init", "-q")
    assert run(scripted(tmp_path, "- {commit: nothing, say: x}\n"), job).error is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("- whne: {role: x}", "1: unknown key 'whne'; did you mean 'when'?"),
        ("- when: {rol: x}", "1: 'when' has an unknown key 'rol'; did you mean 'role'?"),
        ("- say: x\n- times: many", "2: 'times' is a number, 0 or more"),
        ("- times: 1.5", "1: 'times' is a whole number"),
        ("- usage: {cost: 1}", "1: 'usage' has an unknown key 'cost'; did you mean 'cost_usd'?"),
        ("- hang: yes", "1: 'hang' is true or false"),
        ("- run: make", "1: 'run' is a list"),
        ("- files: [a]", "1: 'files' is a mapping"),
        ("- say: [a]", "1: 'say' is text"),
        ("- text", "1: a rule is a mapping"),
        ("say: x", "1: a script is a list of rules"),
        ("- say: x\n- say: [", "3: not readable as YAML: expected the node content, but found '<stream end>'"),
        ("- say: x\n  say: y", "2: the key 'say' occurs twice"),
    ],
)
def test_a_bad_script_is_refused_with_file_and_line(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "script.yaml"
    path.write_text(text + "\n")
    with pytest.raises(ScriptError) as caught:
        make("scripted", {"script": str(path)})
    assert caught.value.message == f"{path}:{problem}"


@given(
    st.text()
    | st.lists(st.sampled_from(["- ", "when:", " {", "}", "role: x", "\n", "  ", "times: 1", "[", "json:"])).map(
        "".join
    )
)
def test_no_text_makes_the_script_reader_crash(text: str) -> None:
    try:
        assert isinstance(parse_script(text, Path("s.yaml")).rules, tuple)
    except ScriptError as error:
        assert error.message.startswith("s.yaml:")


def test_a_missing_script_is_the_user_s_to_fix(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs a script"):
        make("scripted", {})
    with pytest.raises(ScriptError, match="cannot be read"):
        make("scripted", {"script": str(tmp_path / "none.yaml")})


@given(
    st.text()
    | st.sampled_from(['{"type": "usage"}', "[]", '{"type": 3}', "[" * 5000, '{"type": "usage", "cost_usd": "x"}'])
)
def test_no_line_makes_the_parser_raise(line: str) -> None:
    adapter = make("scripted", {"script": str(SCRIPT)})
    assert len(adapter.parse(line)) <= 1


SCRIPT = Path(__file__).parents[1] / "scripts" / "smallest.yaml"


def test_an_invocation_is_pure(tmp_path: Path) -> None:
    adapter, job = scripted(tmp_path, "- {say: x}\n"), make_job(tmp_path)
    assert adapter.invocation(job) == adapter.invocation(replace(job))
    assert not job.folder.exists()


def test_only_rules_that_can_answer_travel_with_the_job(tmp_path: Path) -> None:
    job: Job = make_job(tmp_path)
    spec = json.loads(scripted(tmp_path, RULES).invocation(job).files["scripted.json"])
    assert spec["rules"] == []


def test_the_registry_names_what_exists() -> None:
    assert set(ADAPTERS) >= {"command", "scripted"}
    with pytest.raises(UserError) as caught:
        make("scriptde", {})
    assert caught.value.hint == "did you mean 'scripted'?"


def test_every_field_of_the_language_is_checked() -> None:
    does = {"files", "delete", "run", "commit", "say", "json", "events", "usage", "usage_steps"}
    ends = {"sleep", "hang", "ignore_term", "exit", "stderr"}
    assert set(FIELDS) == {"when", "times"} | does | ends
