"""Who lands together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from windlass.tasks.lander import Batches


def waiting(*waived: bool) -> list[Any]:
    return [SimpleNamespace(request=SimpleNamespace(waived=one)) for one in waived]


@given(st.lists(st.booleans(), min_size=1), st.integers(0, 3))
def test_what_a_person_accepted_unchecked_never_lands_with_others(waived: list[bool], reds: int) -> None:
    batches = Batches()
    for _ in range(reds):
        batches.note_failure(len(waived))
    batch = batches.next(waiting(*waived))
    assert len(batch) == 1 or not any(one.request.waived for one in batch)


def test_a_red_batch_is_halved_and_after_two_one_lands_at_a_time() -> None:
    batches, all_of_them = Batches(), waiting(*[False] * 8)
    sizes = [len(batches.next(all_of_them))]
    for _ in range(2):
        batches.note_failure(sizes[-1])
        sizes.append(len(batches.next(all_of_them)))
    assert sizes == [8, 4, 1]
