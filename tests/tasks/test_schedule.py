"""The schedule's core: properties of random graphs, and how close its makespan comes to the bound."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.kinds.task_graph import chains, layers
from windlass.kinds.tasks import Order
from windlass.model import Task
from windlass.tasks.context import COMPLETE, ESCAPED, FAILED, LANDED, SKIPPED, Ending
from windlass.tasks.schedule import (
    ACTIVE,
    BEGUN,
    Claims,
    GiveSlot,
    LandWave,
    RetryTasks,
    SchedulePolicy,
    SkipTask,
    StartTask,
    TaskAction,
    TaskState,
    TaskStates,
    TaskStatus,
    next_actions,
    stop_reason,
)

ORDERS: tuple[Order, ...] = ("list", "deps", "waves")


def task(id: str, *needs: str, files: Sequence[str] = ()) -> Task:
    return Task(id, id.upper(), depends_on=needs, files=tuple(files))


@st.composite
def graphs(draw: st.DrawFn) -> list[Task]:
    """Any plan: a task may depend on any before it in a hidden order, the list itself is shuffled."""
    count = draw(st.integers(1, 14))
    ids = [f"t{n}" for n in range(count)]
    files = st.lists(st.sampled_from(["a", "a/b", "a/c", "d", "d/*.py", "e"]), max_size=2)
    made = []
    for n, id in enumerate(ids):
        needs = draw(st.lists(st.sampled_from(ids[:n]), unique=True, max_size=3)) if n else []
        made.append(task(id, *needs, files=draw(files)))
    return draw(st.permutations(made))


def end(states: TaskStates, id: str, state: str = COMPLETE) -> None:
    states.set(id, TaskState(TaskStatus.ENDED, Ending(state)))


def start(states: TaskStates, policy: SchedulePolicy) -> list[str]:
    """Perform the starts that are due; nothing else may be."""
    found = next_actions(states, policy)
    assert all(isinstance(action, StartTask) for action in found)
    ids = [action.id for action in found if isinstance(action, StartTask)]
    for id in ids:
        states.set(id, TaskState(TaskStatus.WORKING))
    return ids


@st.composite
def runs(draw: st.DrawFn) -> tuple[TaskStates, SchedulePolicy, list[tuple[int, int]]]:
    """A plan and a policy; then, for each moment, which task at work changes and how."""
    tasks, order = draw(graphs()), draw(st.sampled_from(ORDERS))
    policy = SchedulePolicy(order, draw(st.integers(1, 5)), draw(st.sampled_from(["stop", "continue", "retry"])))
    changes = draw(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=60, max_size=60))
    return TaskStates(tasks, order), policy, changes


def in_state(states: TaskStates, *wanted: TaskStatus) -> list[str]:
    return [id for id, state in states.items() if state.status in wanted]


def ended(states: TaskStates, *, landed: bool) -> set[str]:
    return {id for id, state in states.items() if state.ending and (state.ending.state in LANDED) is landed}


def expected(states: TaskStates, policy: SchedulePolicy) -> list[TaskAction]:
    """What comes next, by looking at every task: the rules as they are written down."""
    tasks, landed, lost = list(states.tasks.values()), ended(states, landed=True), ended(states, landed=False)
    waiting = [states.tasks[id] for id in in_state(states, TaskStatus.WAITING)]
    doomed = [SkipTask(one.id, tuple(need for need in one.depends_on if need in lost)) for one in waiting]
    if any(skip.causes for skip in doomed):
        return [skip for skip in doomed if skip.causes]
    working, held = in_state(states, TaskStatus.WORKING), in_state(states, TaskStatus.HELD)
    back = in_state(states, TaskStatus.RETURNING)[: max(0, policy.slots - len(working))]
    free = policy.slots - len(working) - len(back) - len(held)
    actions: list[TaskAction] = [*map(GiveSlot, back), *map(StartTask, expected_starts(states, policy, free))]
    if actions or in_state(states, *ACTIVE):
        return actions
    retrying, settled = in_state(states, TaskStatus.RETRYING), in_state(states, TaskStatus.SETTLED)
    if retrying:
        return [RetryTasks(tuple(retrying))]
    assert landed | lost | {*settled, *held} | {one.id for one in waiting} == {one.id for one in tasks}
    return [LandWave(tuple(settled))] if settled and not held else []


def expected_starts(states: TaskStates, policy: SchedulePolicy, free: int) -> list[str]:
    tasks, landed = list(states.tasks.values()), ended(states, landed=True)
    layer, chain = layers(tasks), chains(tasks)
    now = min((layer[id] for id, state in states.items() if state.ending is None), default=0)
    if states.closed:
        failed = [id for id, state in states.items() if state.ending and state.ending.state == FAILED]
        finishes = policy.failure == "stop" and any(layer[id] >= now for id in failed)
        if policy.order != "waves" or not finishes or in_state(states, TaskStatus.HELD):
            return []
    ready = [one for one in tasks if states[one.id].status is TaskStatus.WAITING and set(one.depends_on) <= landed]
    ready = [one for one in ready if policy.order != "waves" or layer[one.id] == now]
    if policy.order == "deps":
        ready.sort(key=lambda one: -chain[one.id])
    claimed, started = [states.tasks[id] for id in in_state(states, *BEGUN)], list[str]()
    for one in ready:
        if len(started) < free and not any(Claims(one.files).overlap(other.files) is not None for other in claimed):
            started.append(one.id)
            claimed.append(one)
    return started


def perform(states: TaskStates, action: TaskAction) -> None:
    match action:
        case StartTask(id=id) | GiveSlot(id=id):
            states.set(id, TaskState(TaskStatus.WORKING))
        case SkipTask(id=id):
            end(states, id, SKIPPED)
        case RetryTasks(ids=ids) | LandWave(ids=ids):
            for id in ids:
                states.set(id, TaskState(TaskStatus.WORKING))


def change(states: TaskStates, policy: SchedulePolicy, pick: int, how: int) -> None:
    """One task at work comes to another state, as the performer would report it."""
    active = in_state(states, *ACTIVE)
    id = active[pick % len(active)]
    if states[id].status is TaskStatus.RETURNING:
        return
    wave = policy.order == "waves"
    waits = [TaskStatus.SETTLED, TaskStatus.RETRYING] if wave else [TaskStatus.LANDING]
    if how < 30 and states[id].status is TaskStatus.WORKING:
        states.set(id, TaskState(waits[how % len(waits)]))
    elif how < 45 and states[id].status is TaskStatus.LANDING:
        states.set(id, TaskState(TaskStatus.RETURNING))
    elif how < 50:
        states.set(id, TaskState(TaskStatus.HELD, error=RuntimeError(id)))
    else:
        state = [COMPLETE, COMPLETE, COMPLETE, FAILED, SKIPPED][how % 5] if how < 97 else ESCAPED
        end(states, id, state)
        states.closed = states.closed or state == ESCAPED or (state == FAILED and policy.failure == "stop")


@given(runs())
def test_the_next_actions_are_those_of_the_written_rules_whatever_happens_to_the_tasks(
    run: tuple[TaskStates, SchedulePolicy, list[tuple[int, int]]],
) -> None:
    states, policy, changes = run
    for pick, how in changes:
        wanted = expected(states, policy)
        found = next_actions(states, policy)
        assert found == wanted
        # Asked again it says the same: it changes nothing.
        assert next_actions(states, policy) == wanted
        for action in found:
            perform(states, action)
        if not found and not states.count(*ACTIVE):
            break
        if states.count(*ACTIVE):
            change(states, policy, pick, how)


@given(runs())
def test_whatever_ends_in_whatever_order_every_task_ends_and_no_rule_is_broken(
    run: tuple[TaskStates, SchedulePolicy, list[tuple[int, int]]],
) -> None:
    states, policy, ends = run
    layer = layers(list(states.tasks.values()))
    for pick, how in ends:
        while found := next_actions(states, policy):
            for action in found:
                perform(states, action)
        working = states.ids(TaskStatus.WORKING)
        assert len(working) <= policy.slots
        for id in working:
            assert set(states.tasks[id].depends_on) <= ended(states, landed=True)
            if policy.order == "waves":
                assert all(states[other].ending for other in states if layer[other] < layer[id])
        if not working:
            break
        end(states, working[pick % len(working)], COMPLETE if how % 5 else FAILED)
    assert len(states.endings) == len(states)
    assert list(states) == [one.id for one in states.tasks.values()]


def test_the_list_stops_for_a_failure_only_if_the_policy_says_so_or_nothing_landed() -> None:
    states = TaskStates([task("a"), task("b")])
    states.set("a", TaskState(TaskStatus.ENDED, Ending(FAILED, "it broke")))
    assert stop_reason(states, SchedulePolicy(failure="stop")) == "A: it broke"
    assert stop_reason(states, SchedulePolicy(failure="continue")) is None
    end(states, "b", SKIPPED)
    assert stop_reason(states, SchedulePolicy(failure="continue")) == "A: it broke"


@given(graphs())
def test_layers_and_chains_count_the_longest_way(tasks: list[Task]) -> None:
    layer, chain = layers(tasks), chains(tasks)
    for one in tasks:
        assert layer[one.id] == 1 + max((layer[need] for need in one.depends_on), default=0)
        after = [other for other in tasks if one.id in other.depends_on]
        assert chain[one.id] == 1 + max((chain[other.id] for other in after), default=0)
    states = TaskStates(tasks, "waves")
    assert states.wave == 1
    for one in tasks:
        end(states, one.id)
    assert states.wave == 0


def test_a_plan_of_one_long_chain_is_no_problem() -> None:
    tasks = [task("t0"), *(task(f"t{n}", f"t{n - 1}") for n in range(1, 3000))]
    assert layers(tasks)["t2999"] == chains(tasks)["t0"] == 3000


def test_what_has_begun_goes_on_before_anything_new() -> None:
    tasks = [task("a"), task("b"), task("c")]
    assert next_actions(TaskStates(tasks, "list", {"c"}), SchedulePolicy(slots=3)) == [
        StartTask("c"),
        StartTask("a"),
        StartTask("b"),
    ]


@pytest.mark.parametrize(("shape", "order"), [("free", "list"), ("star", "deps"), ("one file", "waves")])
def test_of_many_tasks_each_is_looked_at_once_or_twice(order: Order, shape: str) -> None:
    """Looking at every task at every step would be four million looks. Counted, not timed."""
    count = 2_000
    needs = ["t0"] if shape == "star" else []
    file = "same" if shape == "one file" else "{}.py"
    tasks = [task(f"t{n}", *(needs if n else []), files=[file.format(n)]) for n in range(count)]
    states, policy, looks = TaskStates(tasks, order), SchedulePolicy(order, 4), 0

    class Counted(Claims):
        def overlap(self, files: Iterable[str]) -> tuple[str, ...] | None:
            nonlocal looks
            looks += 1
            return super().overlap(files)

    with mock.patch("windlass.tasks.schedule.Claims", Counted):
        working = start(states, policy)
        for _ in range(count):
            end(states, working.pop(0))
            working += start(states, policy)
    assert working == []
    # who waits for a file that another one has is looked at once more when that one has ended
    assert looks <= 2 * count


@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        ("src/a.py", "src/a.py", True),
        ("./src/a.py", "src/a.py", True),
        ("src", "src/a.py", True),
        ("src/", "src/a.py", True),
        ("src/*.py", "src/a.py", True),
        ("*", "anything", True),
        ("src/a.py", "src/ab.py", False),
        ("src/a", "src/ab/c.py", False),
        ("docs/*.md", "src/a.py", False),
    ],
)
def test_declared_files_overlap_by_path_folder_and_pattern(one: str, other: str, shared: bool) -> None:
    assert (Claims([one]).overlap([other]) is not None) is (Claims([other]).overlap([one]) is not None) is shared


# -- makespan


@st.composite
def timed(draw: st.DrawFn) -> tuple[list[Task], dict[str, float], int]:
    tasks = [task(one.id, *one.depends_on) for one in draw(graphs())]
    durations = {one.id: draw(st.integers(2, 10)) / 10 for one in tasks}
    return tasks, durations, draw(st.integers(1, 6))


def makespan(tasks: Sequence[Task], durations: dict[str, float], slots: int, order: Order) -> float:
    now, states = 0.0, TaskStates(tasks, order)
    ends: list[tuple[float, str]] = []
    for _ in tasks:
        for new in start(states, SchedulePolicy(order, slots)):
            heapq.heappush(ends, (now + durations[new], new))
        now, id = heapq.heappop(ends)
        end(states, id)
    return now


def bound(tasks: Sequence[Task], durations: dict[str, float], slots: int) -> float:
    """No schedule is shorter than its longest chain, or than the work shared by all slots."""
    ends: dict[str, float] = {}
    for one in sorted(tasks, key=lambda one: layers(tasks)[one.id]):
        ends[one.id] = durations[one.id] + max((ends[need] for need in one.depends_on), default=0.0)
    return max(*ends.values(), sum(durations.values()) / slots)


@given(timed())
def test_no_order_is_ever_longer_than_graham_s_bound_and_never_shorter_than_the_least(
    run: tuple[list[Task], dict[str, float], int],
) -> None:
    tasks, durations, slots = run
    least = bound([*tasks, task("none")], {**durations, "none": 0.0}, slots)
    for order in ("list", "deps"):
        found = makespan(tasks, durations, slots, order)
        assert least - 1e-9 <= found <= (2 - 1 / slots) * least + 1e-9
