"""Several tasks at once, through the command line: what starts when, what lands how, what becomes of the others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from crews import FIXER, IMPLEMENT, REVIEW, Crewed, flow, meeting, plan_rule, rule
from front import Rule, failing, passing
from gitrepo import write
from windlass.events import (
    CommandFinished,
    DispatchFinished,
    DispatchStarted,
    LandingRefused,
    QuestionAsked,
    TaskChanged,
    TaskLanded,
)
from windlass.tasks import scheduler

QUICK = "[retries]\ncrashed = 0\n"
CHECKS = '[checks]\ncommands = [["/bin/sh", "check.sh"]]\n'
#: two changes that are fine alone and wrong together
BOTH = "! { [ -e src/t1.py ] && [ -e src/t2.py ] && ! [ -e src/agreed.py ]; }\n"


@pytest.fixture
def crew(tmp_path: Path) -> Crewed:
    return Crewed(tmp_path, QUICK)


def titles(*names: str, **more: Any) -> list[dict[str, Any]]:
    return [{"title": name, **more} for name in names]


def own(task: str, **more: Any) -> Rule:
    return rule(task, {f"src/{task}.py": "y = 1\n"}, **more)


def kinds(crew: Crewed, *wanted: type) -> list[str]:
    return [
        f"{type(r.event).__name__} {getattr(r.event, 'task', '')}" for r in crew.records if isinstance(r.event, wanted)
    ]


def began(crew: Crewed) -> list[str]:
    return [event.task for event in crew.events(DispatchStarted) if event.key.endswith("/implement")]


def landed(crew: Crewed) -> list[str]:
    return [event.task for event in crew.events(TaskLanded)]


# -- what starts when


@pytest.mark.req("S2-28", "S2-39", "S2-41")
def test_as_many_tasks_as_there_are_slots_are_at_work_at_the_same_time(crew: Crewed) -> None:
    meet = crew.tmp / "meet"
    pairs = [own(f"t{n}", run=[meeting(meet, f"t{n}", *(f"t{m}" for m in (1, 2, 3)))]) for n in (1, 2, 3)]
    done = crew.go(flow(slots=3), [plan_rule(titles("A", "B", "C", "D")), *pairs, own("t4")])
    assert done.code == 0, done.out
    assert crew.landed >= {f"src/t{n}.py" for n in (1, 2, 3, 4)}
    assert began(crew)[3] == "t4"


@pytest.mark.sweep(3)
@pytest.mark.parametrize("how", ["--slots", "config", "setting"])
def test_the_number_of_slots_comes_from_the_command_line_the_config_or_the_flow(tmp_path: Path, how: str) -> None:
    crew = Crewed(tmp_path, "[workspace]\nslots = 2\n" if how == "config" else "")
    meet = crew.tmp / "meet"
    pair = [own(f"t{n}", run=[meeting(meet, f"t{n}", "t1", "t2")]) for n in (1, 2)]
    text = flow(slots="$pool" if how == "setting" else 1)
    text = text.replace("artifacts:", "settings:\n  pool: {type: int, default: 2}\nartifacts:", 1)
    done = crew.go(text, [plan_rule(titles("A", "B")), *pair], *(("--slots", "2") if how == "--slots" else ()))
    assert done.code == 0, done.out


def test_tasks_that_declare_the_same_files_are_not_at_work_together(crew: Crewed) -> None:
    tasks: list[dict[str, Any]] = [
        {"title": "A", "files": ["src/app.py"]},
        {"title": "B", "files": ["src/"]},
        {"title": "C"},
    ]
    done = crew.go(flow(), [plan_rule(tasks), own("t1"), own("t2"), own("t3")])
    assert done.code == 0, done.out
    order = kinds(crew, DispatchStarted, TaskLanded)
    assert order.index("TaskLanded t1") < order.index("DispatchStarted t2")
    assert order.index("DispatchStarted t3") < order.index("DispatchStarted t2")


@pytest.mark.req("S4-49")
def test_a_task_starts_on_what_it_depends_on(crew: Crewed) -> None:
    tasks: list[dict[str, Any]] = [
        {"title": "B", "depends_on": ["A"]},
        {"title": "A"},
        {"title": "C", "depends_on": ["B"]},
    ]
    needs = [own("t1", run=["test -e src/t2.py"]), own("t3", run=["test -e src/t1.py"])]
    assert crew.go(flow(), [plan_rule(tasks), *needs, own("t2")]).code == 0
    assert began(crew) == ["t2", "t1", "t3"]


def test_with_order_deps_who_has_the_most_waiting_for_it_goes_first(crew: Crewed) -> None:
    tasks: list[dict[str, Any]] = [{"title": "A"}, {"title": "B"}, {"title": "C", "depends_on": ["B"]}]
    rules = [plan_rule(tasks), own("t1"), own("t2"), own("t3")]
    assert crew.go(flow(slots=1), rules).code == 0
    assert began(crew) == ["t2", "t1", "t3"]


def test_with_order_list_the_plan_s_order_counts(crew: Crewed) -> None:
    tasks: list[dict[str, Any]] = [{"title": "A"}, {"title": "B"}, {"title": "C", "depends_on": ["B"]}]
    rules = [plan_rule(tasks), own("t1"), own("t2"), own("t3")]
    assert crew.go(flow(slots=1, order="list"), rules).code == 0
    assert began(crew) == ["t1", "t2", "t3"]


@pytest.mark.req("S2-33", "S2-34", "S2-38", "S3-24")
def test_waves_have_a_barrier_between_them_and_land_in_the_plan_s_order(crew: Crewed) -> None:
    tasks: list[dict[str, Any]] = [{"title": "A"}, {"title": "B"}, {"title": "C", "depends_on": ["B"]}]
    meet = crew.tmp / "meet"
    slow = own("t1", run=[meeting(meet, "t1", "t2")])
    rules = [plan_rule(tasks), slow, own("t2", run=[f"touch {meet}/t2"]), own("t3", run=["test -e src/t1.py"])]
    assert crew.go(flow(order="waves"), rules).code == 0
    order = kinds(crew, DispatchStarted, TaskLanded)
    assert landed(crew) == ["t1", "t2", "t3"]
    assert order.index("TaskLanded t2") < order.index("DispatchStarted t3")
    merges = crew.git("log", "--first-parent", "--merges", "--format=%s", crew.branch).splitlines()
    assert merges == ["C", "B", "A"]


def test_a_wave_larger_than_the_pool_runs_in_the_pool(crew: Crewed) -> None:
    names = [f"T{n}" for n in range(6)]
    rules = [plan_rule(titles(*names)), *(own(f"t{n}") for n in range(1, 7))]
    assert crew.go(flow(order="waves", slots=2), rules).code == 0
    assert landed(crew) == [f"t{n}" for n in range(1, 7)]
    checks = [event for event in crew.events(CommandFinished) if "land" in event.key]
    assert checks == []


# -- what lands how


def together(tmp_path: Path, check: str) -> Crewed:
    return Crewed(tmp_path, QUICK + CHECKS, {"check.sh": check})


def meet_first(crew: Crewed, *ids: str) -> list[Rule]:
    return [own(id, run=[meeting(crew.tmp / "meet", id, *ids)]) for id in ids]


def test_two_tasks_green_alone_and_red_together_are_caught_sent_back_fixed_and_landed(tmp_path: Path) -> None:
    crew = together(tmp_path, BOTH)
    agree = rule("t2", {"src/agreed.py": "z = 1\n"}, when={"purpose": "land-fix"}, run=["test -e src/t1.py"])
    other = {**agree, "when": {**agree["when"], "task": "t1"}, "run": ["test -e src/t2.py"]}
    land = {"checks": "all", "fixer": FIXER, "max": 1, "on": {"conflict": "fail", "red": "fail"}}
    rules = [plan_rule(titles("A", "B")), agree, other, *meet_first(crew, "t1", "t2"), passing()]
    done = crew.go(flow(land=land, steps=[IMPLEMENT, REVIEW]), rules)
    assert done.code == 0, done.out
    (refused,) = crew.events(LandingRefused)
    assert refused.why == "red"
    assert sorted(landed(crew)) == ["t1", "t2"]
    assert crew.landed >= {"src/t1.py", "src/t2.py", "src/agreed.py"}
    fix = f"execute/{refused.task}/land.fix#1"
    first = "t1" if refused.task == "t2" else "t2"
    assert f"+++ b/src/{first}.py" in crew.prompt(fix)
    assert f"+++ b/src/{refused.task}.py" in crew.prompt(fix)
    # What the fix changed is reviewed, and nothing else again.
    again = crew.prompt(f"execute/{refused.task}/spec+2#1")
    assert "agreed.py" in again
    assert f"+++ b/src/{first}.py" not in again


def test_the_tip_is_green_at_every_landing(tmp_path: Path) -> None:
    crew = together(tmp_path, BOTH)
    rules = [plan_rule(titles("A", "B", "C")), *meet_first(crew, "t1", "t2"), own("t3")]
    done = crew.go(flow(failure="continue"), rules)
    assert done.code == 14, done.out
    assert len(landed(crew)) == 2
    assert "t3" in landed(crew)
    assert not {"src/t1.py", "src/t2.py"} <= crew.landed
    states = {task.id: task.state for task in crew.view.tasks}
    assert sorted(states.values()) == ["complete", "complete", "failed"]


def test_a_textual_conflict_goes_back_with_both_sides_and_is_joined_on_the_new_tip(tmp_path: Path) -> None:
    crew = together(tmp_path, "true\n")
    meet = crew.tmp / "meet"
    sides = [rule(f"t{n}", {"src/app.py": f"x = {n}0\n"}, run=[meeting(meet, f"t{n}", "t1", "t2")]) for n in (1, 2)]
    mend = rule("t2", {"src/app.py": "x = 30\n"}, when={"purpose": "land-fix"}, run=["grep -q '<<<<<<<' src/app.py"])
    # The marks are looked for before the files are written: `run` comes after `files`, so a copy is kept.
    mend["run"] = ["git show HEAD:src/app.py | grep -q '<<<<<<<'"]
    mends = [mend, {**mend, "when": {**mend["when"], "task": "t1"}}]
    land = {"checks": "all", "fixer": FIXER, "max": 1, "on": {"conflict": "fail", "red": "fail"}}
    done = crew.go(flow(land=land), [plan_rule(titles("A", "B")), *mends, *sides, passing()])
    assert done.code == 0, done.out
    (refused,) = crew.events(LandingRefused)
    assert (refused.why, refused.files) == ("conflict", ["src/app.py"])
    assert crew.show("src/app.py") == "x = 30"
    prompt = crew.prompt(f"execute/{refused.task}/land.fix#1")
    assert "x = 10" in prompt
    assert "x = 20" in prompt


def test_conflict_marks_that_nobody_resolved_never_land(tmp_path: Path) -> None:
    crew = together(tmp_path, "true\n")
    meet = crew.tmp / "meet"
    sides = [rule(f"t{n}", {"src/app.py": f"x = {n}0\n"}, run=[meeting(meet, f"t{n}", "t1", "t2")]) for n in (1, 2)]
    idle = {"when": {"role": "implementer", "purpose": "land-fix"}, "say": "looks fine"}
    land = {"checks": "all", "fixer": FIXER, "max": 1, "on": {"conflict": "fail", "red": "fail"}}
    done = crew.go(flow(land=land, failure="continue"), [plan_rule(titles("A", "B")), idle, *sides, passing()])
    assert done.code == 14, done.out
    assert len(landed(crew)) == 1
    told = "- src/app.py: both sides changed the same lines; conflict marks are left in it"
    assert told in crew.events(LandingRefused)[-1].detail
    assert "<<<<" not in crew.show("src/app.py")


def test_tasks_that_wait_together_are_checked_once(tmp_path: Path) -> None:
    crew = together(tmp_path, "true\n")
    rules = [plan_rule(titles("A", "B", "C", "D")), *(own(f"t{n}") for n in (1, 2, 3, 4))]
    assert crew.go(flow(order="waves"), rules).code == 0
    assert len([event for event in crew.events(CommandFinished) if "/land" in event.key]) == 1
    assert [event.checks for event in crew.events(TaskLanded)] == ["passed"] * 4


def test_a_red_chain_is_halved_and_only_the_culprit_is_refused(tmp_path: Path) -> None:
    crew = together(tmp_path, "! [ -e src/t3.py ]\n")
    rules = [plan_rule(titles("A", "B", "C", "D")), *(own(f"t{n}") for n in (1, 2, 3, 4))]
    assert crew.go(flow(order="waves", failure="continue"), rules).code == 14
    assert sorted(landed(crew)) == ["t1", "t2", "t4"]
    assert [event.task for event in crew.events(LandingRefused)] == ["t3"]


def test_a_conflict_with_a_task_that_is_then_refused_keeps_no_task_from_landing(tmp_path: Path) -> None:
    crew = together(tmp_path, "! grep -q 10 src/app.py\n")
    sides = [rule(f"t{n}", {"src/app.py": f"x = {n}0\n"}) for n in (1, 2)]
    done = crew.go(flow(order="waves", failure="continue"), [plan_rule(titles("A", "B")), *sides])
    assert done.code == 14, done.out
    assert [(event.task, event.why) for event in crew.events(LandingRefused)] == [("t1", "red")]
    assert landed(crew) == ["t2"]
    assert crew.show("src/app.py") == "x = 20"


def test_after_a_red_chain_came_to_its_end_the_next_tasks_land_together_again(tmp_path: Path) -> None:
    crew = together(tmp_path, "! [ -e src/t3.py ]\n")
    second = [{"title": title, "depends_on": ["A"]} for title in ("E", "F")]
    rules = [plan_rule([*titles("A", "B", "C", "D"), *second]), *(own(f"t{n}") for n in range(1, 7))]
    assert crew.go(flow(order="waves", failure="continue"), rules).code == 14
    assert sorted(landed(crew)) == ["t1", "t2", "t4", "t5", "t6"]
    checks = [event.key for event in crew.events(CommandFinished) if "/land" in event.key]
    assert len([key for key in checks if key.startswith(("execute/t5", "execute/t6"))]) == 1


# -- when one fails


def crash(task: str, **more: Any) -> Rule:
    return {"when": {"role": "implementer", "task": task}, "exit": 9, "stderr": "it broke", **more}


@pytest.mark.req("S2-52", "S3-60")
def test_without_a_failed_task_its_dependents_are_named_and_the_others_go_on(crew: Crewed) -> None:
    tasks: list[dict[str, Any]] = [
        {"title": "A"},
        {"title": "B", "depends_on": ["A"]},
        {"title": "C", "depends_on": ["B"]},
        {"title": "D"},
    ]
    done = crew.go(flow(failure="continue"), [plan_rule(tasks), crash("t1"), own("t4")])
    assert done.code == 14, done.out
    states = {task.id: (task.state, task.reason) for task in crew.view.tasks}
    assert [states[f"t{n}"][0] for n in (1, 2, 3, 4)] == ["failed", "skipped", "skipped", "complete"]
    assert "t1 (A)" in states["t2"][1]
    assert "t2 (B)" in states["t3"][1]
    assert began(crew).count("t2") == 0
    assert any("the run continues without it" in text for text in crew.warnings)


@pytest.mark.req("S2-51", "S3-60")
def test_retry_tries_once_more_with_the_error_and_then_goes_on_without_it(crew: Crewed) -> None:
    rules = [plan_rule(titles("A", "B")), crash("t1"), own("t2")]
    assert crew.go(flow(failure="retry"), rules).code == 14
    assert [key for key in crew.keys if "/implement" in key and "t1" in key] == [
        "execute/t1/implement",
        "execute/t1+2/implement",
    ]
    assert "it broke" in crew.prompt("execute/t1+2/implement")
    assert {task.id: task.state for task in crew.view.tasks} == {"t1": "failed", "t2": "complete"}


@pytest.mark.req("S2-40")
def test_in_a_wave_the_retry_comes_after_all_have_settled(crew: Crewed) -> None:
    rules = [plan_rule(titles("A", "B")), crash("t1", times=1), own("t1"), own("t2", sleep=0.3)]
    assert crew.go(flow(failure="retry", order="waves"), rules).code == 0
    ended = [event.key for event in crew.events(DispatchFinished)]
    started = [event.key for event in crew.events(DispatchStarted)]
    assert started[-1] == "execute/t1+2/implement"
    assert ended.index("execute/t2/implement") < ended.index("execute/t1+2/implement")
    assert landed(crew) == ["t1", "t2"]


@pytest.mark.req("S2-53")
def test_stop_lets_the_others_end_and_a_retry_takes_up_the_failed_one_alone(crew: Crewed) -> None:
    meet = crew.tmp / "meet"
    dies = crash("t1", times=1, run=[meeting(meet, "t1", "t2")])
    goes_on = own("t2", run=[meeting(meet, "t2", "t1"), crew.until("task.changed", "t1", "failed")])
    rules = [plan_rule([{"title": "A"}, {"title": "B"}, {"title": "C"}]), dies, goes_on, own("t1"), own("t3")]
    done = crew.go(flow(slots=2), rules)
    assert done.code == 12, done.out
    assert landed(crew) == ["t2"]
    assert "t3" not in began(crew)
    assert crew("retry").code == 0
    assert sorted(began(crew)) == ["t1", "t1", "t2", "t3"]
    assert sorted(landed(crew)) == ["t1", "t2", "t3"]


def test_who_lands_lets_others_work(tmp_path: Path) -> None:
    """While the checks of a landing run, its slot is another task's."""
    meet = tmp_path / "meet"
    crew = Crewed(tmp_path, CHECKS, {"check.sh": f"[ ! -e src/t1.py ] || {{ {meeting(meet, 'check', 't3')}; }}\n"})
    pair = [own("t2", run=[meeting(meet, "t2", "t3")]), own("t3", run=[meeting(meet, "t3", "check")])]
    assert crew.go(flow(slots=2), [plan_rule(titles("A", "B", "C")), own("t1"), *pair]).code == 0
    assert sorted(landed(crew)) == ["t1", "t2", "t3"]


def test_a_slot_is_kept_a_moment_for_who_waits_for_the_task_that_lands(
    crew: Crewed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "SOON_S", 600.0)
    plan = [{"title": "A"}, {"title": "B"}, {"title": "C"}, {"title": "D", "depends_on": ["A"]}]
    plan += [{"title": "E", "depends_on": ["D"]}]
    busy = own("t2", run=[meeting(crew.tmp / "meet", "t2", "t4")])
    after = own("t4", run=[meeting(crew.tmp / "meet", "t4", "t2")])
    assert crew.go(flow(slots=2), [plan_rule(plan), own("t1"), busy, own("t3"), after, own("t5")]).code == 0
    assert began(crew).index("t4") < began(crew).index("t3")


def test_who_is_sent_back_gets_a_slot_before_anything_new(tmp_path: Path) -> None:
    meet = tmp_path / "meet"
    crew = Crewed(tmp_path, CHECKS, {"check.sh": "! [ -e src/t1.py ] || [ -e src/fixed.py ]\n"})
    fix = rule("t1", {"src/fixed.py": ""}, when={"purpose": "land-fix"}, run=[f"touch {meet / 'fix'}"])
    waits = [own("t2", run=[crew.until("landing.refused", "t1")]), own("t3", run=[meeting(meet, "t3", "fix")])]
    land = {"checks": "all", "fixer": FIXER, "max": 1, "on": {"conflict": "fail", "red": "fail"}}
    rules = [plan_rule(titles("A", "B", "C", "D")), fix, own("t1"), *waits, own("t4")]
    assert crew.go(flow(slots=2, land=land), rules).code == 0
    started = [event.key for event in crew.events(DispatchStarted)]
    assert started.index("execute/t1/land.fix#1") < started.index("execute/t4/implement")
    assert sorted(landed(crew)) == ["t1", "t2", "t3", "t4"]


# -- rests and questions


@pytest.mark.long
@pytest.mark.req("S0-63")
def test_a_checkpoint_lets_what_runs_end_and_starts_nothing_new(crew: Crewed) -> None:
    meet = crew.tmp / "meet"
    pair = [own(f"t{n}", run=[meeting(meet, f"t{n}", "t1", "t2")]) for n in (1, 2)]
    rules = [plan_rule(titles("A", "B", "C", "D", "E")), *pair, *(own(f"t{n}") for n in (3, 4, 5))]
    assert crew.go(flow(slots=2, pause="checkpoint"), rules).code == 11
    assert sorted(landed(crew)) == ["t1", "t2"]
    assert crew("resume").code == 11
    assert sorted(landed(crew)) == ["t1", "t2", "t3", "t4"]
    assert crew("resume").code == 0
    assert sorted(began(crew)) == ["t1", "t2", "t3", "t4", "t5"]


@pytest.mark.long
@pytest.mark.req("S0-64")
def test_a_batch_with_two_slots_ends_with_what_is_at_work_and_is_counted_anew_on_each_resume(crew: Crewed) -> None:
    def with_next(n: int) -> Rule:
        """Works beside its neighbour, so that two are at work when the third of a batch has landed."""
        pair = (f"t{n}", f"t{n + 1 if n % 2 else n - 1}")
        return own(f"t{n}", run=[meeting(crew.tmp / "meet", *pair)])

    rules = [plan_rule(titles(*"ABCDEFGHI")), *(with_next(n) for n in range(1, 9)), own("t9")]
    assert crew.go(flow(slots=2, pause="batch", pause_every=3), rules).code == 11
    assert sorted(landed(crew)) == ["t1", "t2", "t3", "t4"]
    assert crew("resume").code == 11
    assert sorted(landed(crew)) == [f"t{n}" for n in range(1, 9)]
    assert crew("resume").code == 0
    assert sorted(began(crew)) == sorted(landed(crew)) == [f"t{n}" for n in range(1, 10)]


def test_a_question_of_one_task_does_not_keep_the_others_from_working(crew: Crewed) -> None:
    asking = {**IMPLEMENT, "on": {"failed": "ask stuck"}}
    rules = [plan_rule(titles("A", "B", "C", "D")), crash("t1", times=1), crash("t2", times=1)]
    rules += [own(f"t{n}") for n in (1, 2, 3, 4)]
    done = crew.go(flow("continue", "skip", steps=[asking], slots=3), rules)
    assert done.code == 10
    assert sorted(event.key for event in crew.events(QuestionAsked)) == [
        "execute/t1/implement!stuck",
        "execute/t2/implement!stuck",
    ]
    assert sorted(landed(crew)) == ["t3", "t4"]
    assert crew("answer", "execute/t2/implement!stuck", "skip", "--no-resume").code == 0
    assert crew("answer", "execute/t1/implement!stuck", "continue").code == 14
    assert {task.id: task.state for task in crew.view.tasks} == {
        "t1": "complete",
        "t2": "skipped",
        "t3": "complete",
        "t4": "complete",
    }


def test_abort_in_one_task_ends_the_others_at_once(crew: Crewed) -> None:
    asking = {**IMPLEMENT, "on": {"failed": "ask stuck"}}
    hanging = {"when": {"role": "implementer", "task": "t2"}, "hang": True}
    rules = [plan_rule(titles("A", "B")), crash("t1"), hanging]
    done = crew.go(flow("skip", "abort", steps=[asking], slots=2), rules, "--answer", "stuck=abort")
    assert done.code == 13, done.out
    assert crew.view.state == "aborted"


# -- back inside a task


@pytest.mark.long
def test_a_step_that_is_entered_again_is_done_again_and_counted(crew: Crewed) -> None:
    """As S2's tests and feedback: the count is where both come."""
    test = {**REVIEW, "id": "test", "on": {**REVIEW["on"], "blocking": "feedback"}}
    feedback = {
        "id": "feedback",
        "kind": "produce",
        "via": "route",
        "calls": [{"role": "implementer", "in": ["task", "test.findings"]}],
        "on": {"ok": {"to": "test", "max": 2, "then": "fail"}, "failed": "fail"},
    }
    complaints = failing("spec-reviewer", "the zero case is missing")
    rules = [plan_rule(titles("A")), complaints, own("t1")]
    done = crew.go(flow(steps=[IMPLEMENT, test, feedback], failure="continue"), rules)
    assert done.code == 12, done.out
    assert [key for key in crew.keys if "/t1/" in key] == [
        *("execute/t1/implement", "execute/t1/test#1", "execute/t1/feedback", "execute/t1/test+2#1"),
        *("execute/t1/feedback+2", "execute/t1/test+3#1", "execute/t1/feedback+3"),
    ]
    assert "the zero case is missing" in crew.prompt("execute/t1/feedback")
    assert crew.view.tasks[0].state == "failed"


@pytest.mark.long
def test_again_repeats_the_step_and_fix_lets_its_fixer_go_first(crew: Crewed) -> None:
    review = {**REVIEW, "fixer": FIXER, "on": {**REVIEW["on"], "blocking": "ask stuck"}}
    bad = [failing("spec-reviewer", f"wrong {n}", times=1) for n in (1, 2)]
    rules = [plan_rule(titles("A")), *bad, own("t1"), passing()]
    assert crew.go(flow("again", "fix", steps=[IMPLEMENT, review]), rules).code == 10
    assert crew("answer", "again").code == 10
    assert crew("answer", "fix").code == 0
    assert [key for key in crew.keys if "/spec" in key] == [
        *("execute/t1/spec#1", "execute/t1/spec+2#1", "execute/t1/spec.wish+3", "execute/t1/spec+3#1")
    ]
    assert "wrong 2" in crew.prompt("execute/t1/spec.wish+3")
    assert landed(crew) == ["t1"]


def test_a_counted_route_of_the_landing_leads_back_to_a_step(tmp_path: Path) -> None:
    crew = together(tmp_path, "[ $(cat src/t1.py 2>/dev/null | wc -l) != 1 ]\n")
    land = {"checks": "all", "max": 0, "on": {"conflict": "fail", "red": {"to": "implement", "max": 1, "then": "fail"}}}
    longer = rule("t1", {"src/t1.py": "y = 1\nz = 2\n"}, when={"attempt": 1})
    short = rule("t1", {"src/t1.py": "y = 1\n"}, times=1)
    done = crew.go(flow(land=land), [plan_rule(titles("A")), short, longer])
    assert done.code == 0, done.out
    assert [key for key in crew.keys if "/t1/" in key] == ["execute/t1/implement", "execute/t1/implement+2"]
    assert landed(crew) == ["t1"]


@pytest.mark.req("S4-95")
def test_what_a_person_accepts_lands_without_checks_and_says_so(tmp_path: Path) -> None:
    crew = together(tmp_path, "! [ -e src/t1.py ]\n")
    land = {"checks": "all", "max": 0, "on": {"conflict": "fail", "red": "ask stuck"}}
    assert crew.go(flow("skip", "accept", land=land), [plan_rule(titles("A")), own("t1")]).code == 10
    assert crew("answer", "accept").code == 0
    assert [event.checks for event in crew.events(TaskLanded)] == ["accepted"]
    assert crew.view.tasks[0].state == "complete"
    changed = [event for event in crew.events(TaskChanged) if event.state == "complete"]
    assert "accepted with known issues" in changed[0].reason


# -- one review for all


META = """
  - id: meta
    kind: review
    of: changes
    scope: run
    reviewers: [{role: quality-reviewer}]
    mode: single-pass
    completes: execute
    on: {pass: next, noted: next, inconclusive: stop}
"""


@pytest.mark.sweep(2)
@pytest.mark.req("S4-54", "S4-56", "S4-60", "S4-62")
@pytest.mark.parametrize(("strategy", "states"), [("each", ["complete"]), ("once", ["implemented", "complete"])])
def test_tasks_that_nobody_judged_one_by_one_are_completed_by_the_review_of_the_whole(
    crew: Crewed, strategy: str, states: list[str]
) -> None:
    each = {**REVIEW, "when": {"strategy": "each"}}
    text = flow(steps=[IMPLEMENT, each]).replace("  - {id: end,", META.lstrip("\n") + "  - {id: end,")
    options = "settings:\n  strategy: {options: {each: one by one, once: at the end}, default: each}\nartifacts:"
    rules = [plan_rule(titles("A", "B")), own("t1"), own("t2"), passing()]
    done = crew.go(text.replace("artifacts:", options, 1), rules, "--set", f"strategy={strategy}")
    assert done.code == 0, done.out + done.err
    for id in ("t1", "t2"):
        assert [state for state in crew.states(id) if state in ("implemented", "complete")] == states
    phases = [r.event for r in crew.records if type(r.event).__name__ in ("TaskChanged", "ReviewFinished")]
    last = [type(event).__name__ for event in phases][-2:]
    assert last == (["TaskChanged", "TaskChanged"] if strategy == "once" else last)


# -- a pause, and a plan that is edited while several are under way


def pausing_pair(crew: Crewed, **more: Any) -> list[Rule]:
    """Two tasks that work at the same time and end when the pause that the first asks for is on record."""
    meet = crew.tmp / "meet"
    pause = f"cd {crew.root} && {sys.executable} -m windlass pause"
    one = own("t1", run=[meeting(meet, "t1", "t2"), pause, meeting(meet, "t1-paused", "t2-waits")])
    return [one, own("t2", run=[meeting(meet, "t2", "t1"), meeting(meet, "t2-waits", "t1-paused")], **more)]


def test_nothing_starts_after_the_command_that_pauses_has_ended(crew: Crewed, monkeypatch: pytest.MonkeyPatch) -> None:
    # The driver does not see the request by itself while the tasks are at work.
    monkeypatch.setattr("windlass.engine.requests.POLL_S", 300.0)
    rules = [plan_rule(titles("A", "B", "C")), *pausing_pair(crew), rule("t3", {"src/t3.py": "z = 2\n"}), passing()]
    assert crew.go(flow(steps=[IMPLEMENT], slots=2), rules).code == 11
    assert sorted(began(crew)) == ["t1", "t2"]


@pytest.mark.long
def test_a_plan_edited_while_two_tasks_are_half_way_costs_only_what_the_edit_touches(crew: Crewed) -> None:
    later = [rule(id, {f"src/{id}.py": "z = 2\n"}) for id in ("t2", "t4")]
    plan = titles("A", "B", "C")
    rules = [plan_rule(plan), *pausing_pair(crew, times=1), *later, passing()]
    assert crew.go(flow(steps=[IMPLEMENT, REVIEW], slots=2), rules).code == 11
    assert sorted(began(crew)) == ["t1", "t2"]
    edited = plan_rule([{"title": "D"}, {"title": "A"}, {"title": "B", "description": "Do B otherwise."}])
    write(crew.folder / "files", {"docs/plan.md": edited["files"]["{plan_path}"]})
    assert crew("resume").code == 10
    asked = crew.events(QuestionAsked)[-1]
    assert "execute/t2/implement" in asked.detail
    assert "execute/t1" not in asked.detail
    assert crew("answer", "adopt").code == 0
    assert sorted(began(crew)) == ["t1", "t2", "t2", "t4"]
    assert sorted(landed(crew)) == ["t1", "t2", "t4"]
    assert [task.title for task in crew.view.tasks] == ["D", "A", "B"]
