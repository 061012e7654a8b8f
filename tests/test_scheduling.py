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
from windlass.tasks.schedule import Claims, Schedule

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


@st.composite
def runs(draw: st.DrawFn) -> tuple[list[Task], Order, int, list[tuple[int, bool]]]:
    """A plan, an order, slots, and who ends next (by its place among those at work) and whether it landed."""
    tasks = draw(graphs())
    ends = draw(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 4).map(bool)), min_size=20, max_size=20))
    return tasks, draw(st.sampled_from(ORDERS)), draw(st.integers(1, 5)), ends


def expected(
    tasks: list[Task], order: Order, free: int, working: list[str], landed: set[str], lost: set[str]
) -> list[str]:
    """What starts, by looking at every task: the rules as they are written down."""
    by_id, layer, chain = {one.id: one for one in tasks}, layers(tasks), chains(tasks)
    waiting = [one for one in tasks if one.id not in {*working, *landed, *lost}]
    now = min((layer[one.id] for one in tasks if one.id not in landed | lost), default=0)
    ready = [one for one in waiting if set(one.depends_on) <= landed and (order != "waves" or layer[one.id] == now)]
    if order == "deps":
        ready.sort(key=lambda one: -chain[one.id])
    claimed, started = [by_id[id] for id in working], list[str]()
    for one in ready:
        if len(started) < free and not any(Claims(one.files).overlap(other.files) is not None for other in claimed):
            started.append(one.id)
            claimed.append(one)
    return started


@given(runs())
def test_whatever_ends_in_whatever_order_every_task_ends_and_no_rule_is_broken(
    run: tuple[list[Task], Order, int, list[tuple[int, bool]]],
) -> None:
    tasks, order, slots, ends = run
    by_id, layer, schedule = {one.id: one for one in tasks}, layers(tasks), Schedule(tasks, order)
    working: list[str] = []
    landed: set[str] = set()
    lost: set[str] = set()
    for pick, good in ends:
        while found := schedule.take_doomed():
            assert all(causes and set(causes) <= lost for causes in found.values())
            lost |= set(found)
            for id in found:
                schedule.lose(id)
        assert not [one.id for one in tasks if one.id not in lost and lost & set(one.depends_on)]
        assert schedule.wave == min((layer[one.id] for one in tasks if one.id not in landed | lost), default=0)
        free = slots - len(working)
        wanted = expected(tasks, order, free, working, landed, lost)
        began = schedule.start(free, working)
        assert [new.id for new in began] == wanted
        for new in began:
            assert set(new.depends_on) <= landed
            assert not any(Claims(new.files).overlap(by_id[other].files) is not None for other in working)
            if order == "waves":
                assert all(other.id in landed | lost for other in tasks if layer[other.id] < layer[new.id])
            working.append(new.id)
        assert len(working) <= slots
        if not working:
            break
        # Nothing that could have started was left lying.
        assert schedule.start(slots - len(working), working) == []
        id = working.pop(pick % len(working))
        (landed if good else lost).add(id)
        (schedule.land if good else schedule.lose)(id)
    assert working or landed | lost == set(by_id)


@given(graphs())
def test_layers_and_chains_count_the_longest_way(tasks: list[Task]) -> None:
    layer, chain = layers(tasks), chains(tasks)
    for one in tasks:
        assert layer[one.id] == 1 + max((layer[need] for need in one.depends_on), default=0)
        after = [other for other in tasks if one.id in other.depends_on]
        assert chain[one.id] == 1 + max((chain[other.id] for other in after), default=0)
    schedule = Schedule(tasks, "waves")
    assert schedule.wave == 1
    for one in tasks:
        schedule.land(one.id)
    assert schedule.wave == 0


def test_a_plan_of_one_long_chain_is_no_problem() -> None:
    tasks = [task("t0"), *(task(f"t{n}", f"t{n - 1}") for n in range(1, 3000))]
    assert layers(tasks)["t2999"] == chains(tasks)["t0"] == 3000


def test_what_has_begun_goes_on_before_anything_new() -> None:
    tasks = [task("a"), task("b"), task("c")]
    assert [one.id for one in Schedule(tasks, "list", {"c"}).start(3)] == ["c", "a", "b"]


@pytest.mark.parametrize(("shape", "order"), [("free", "list"), ("star", "deps"), ("one file", "waves")])
def test_of_many_tasks_each_is_looked_at_once_or_twice(order: Order, shape: str) -> None:
    """Looking at every task at every step would be four million looks. Counted, not timed."""
    count = 2_000
    needs = ["t0"] if shape == "star" else []
    file = "same" if shape == "one file" else "{}.py"
    tasks = [task(f"t{n}", *(needs if n else []), files=[file.format(n)]) for n in range(count)]
    schedule, looks = Schedule(tasks, order), 0

    class Counted(Claims):
        def overlap(self, files: Iterable[str]) -> tuple[str, ...] | None:
            nonlocal looks
            looks += 1
            return super().overlap(files)

    with mock.patch("windlass.tasks.schedule.Claims", Counted):
        working = [one.id for one in schedule.start(4)]
        for _ in range(count):
            schedule.land(working.pop(0))
            working += [one.id for one in schedule.start(4 - len(working), working)]
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
    now, schedule = 0.0, Schedule(tasks, order)
    ends: list[tuple[float, str]] = []
    for _ in tasks:
        for new in schedule.start(slots - len(ends), [id for _, id in ends]):
            heapq.heappush(ends, (now + durations[new.id], new.id))
        now, id = heapq.heappop(ends)
        schedule.land(id)
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
