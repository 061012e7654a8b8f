"""The schedule's core: properties of random graphs, and how close its makespan comes to the bound."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.model import Task
from windlass.phases.scheduling import Board, Order, chains, doomed, layers, overlap, ranked, to_start, wave_of

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


@given(runs())
def test_whatever_ends_in_whatever_order_every_task_ends_and_no_rule_is_broken(
    run: tuple[list[Task], Order, int, list[tuple[int, bool]]],
) -> None:
    tasks, order, slots, ends = run
    by_id, layer = {one.id: one for one in tasks}, layers(tasks)
    working: list[str] = []
    landed: set[str] = set()
    lost: set[str] = set()
    for pick, good in ends:
        while found := doomed(tasks, Board(frozenset(working), frozenset(), frozenset(landed), frozenset(lost))):
            assert all(set(causes) <= lost for causes in found.values())
            lost |= set(found)
        board = Board(frozenset(working), frozenset(), frozenset(landed), frozenset(lost))
        for new in to_start(tasks, order, slots, board):
            assert set(new.depends_on) <= landed
            assert not any(overlap(new.files, by_id[other].files) for other in working)
            if order == "waves":
                assert all(other.id in landed | lost for other in tasks if layer[other.id] < layer[new.id])
            working.append(new.id)
        assert len(working) <= slots
        if not working:
            break
        # Nothing that could have started was left lying.
        after = Board(frozenset(working), frozenset(), frozenset(landed), frozenset(lost))
        assert to_start(tasks, order, slots, after) == []
        id = working.pop(pick % len(working))
        (landed if good else lost).add(id)
    assert working or landed | lost == set(by_id)


@given(graphs())
def test_layers_and_chains_count_the_longest_way(tasks: list[Task]) -> None:
    layer, chain = layers(tasks), chains(tasks)
    for one in tasks:
        assert layer[one.id] == 1 + max((layer[need] for need in one.depends_on), default=0)
        after = [other for other in tasks if one.id in other.depends_on]
        assert chain[one.id] == 1 + max((chain[other.id] for other in after), default=0)
    assert wave_of(tasks, Board()) == 1
    assert wave_of(tasks, Board(landed=frozenset(layer))) == 0


def test_a_plan_of_one_long_chain_is_no_problem() -> None:
    tasks = [task("t0"), *(task(f"t{n}", f"t{n - 1}") for n in range(1, 3000))]
    assert layers(tasks)["t2999"] == chains(tasks)["t0"] == 3000


def test_what_has_begun_goes_on_before_anything_new() -> None:
    tasks = [task("a"), task("b"), task("c")]
    assert [one.id for one in ranked(tasks, "list", Board(begun=frozenset({"c"})))] == ["c", "a", "b"]


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
    assert overlap([one], [other]) is overlap([other], [one]) is shared


# -- makespan


@st.composite
def timed(draw: st.DrawFn) -> tuple[list[Task], dict[str, float], int]:
    tasks = [task(one.id, *one.depends_on) for one in draw(graphs())]
    durations = {one.id: draw(st.integers(2, 10)) / 10 for one in tasks}
    return tasks, durations, draw(st.integers(1, 6))


def makespan(tasks: Sequence[Task], durations: dict[str, float], slots: int, order: Order) -> float:
    now, landed = 0.0, set[str]()
    ends: list[tuple[float, str]] = []
    while len(landed) < len(tasks):
        board = Board(frozenset(id for _, id in ends), landed=frozenset(landed))
        for new in to_start(tasks, order, slots, board):
            heapq.heappush(ends, (now + durations[new.id], new.id))
        now, id = heapq.heappop(ends)
        landed.add(id)
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
