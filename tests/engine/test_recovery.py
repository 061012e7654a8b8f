"""What a driver that died left behind: processes ended, work kept, attempts closed, slots not used again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from gitrepo import make_engine, reachable, sh, write
from stores import CLAIM, intent, stored
from windlass.dispatch.late_costs import LateCosts
from windlass.dispatch.recovery import Recovery, recover
from windlass.errors import GitUnansweredError, StoppedError
from windlass.git.engine_repo import EngineRepo
from windlass.git.slots import Slots
from windlass.store.port import Store

KEY = "execute/t1/implement"


def _left(tmp_path: Path) -> tuple[EngineRepo, Slots, str]:
    """A slot in which an agent committed and left a file, when its driver died."""
    engine = make_engine(tmp_path)
    slots = Slots(engine)
    slot = slots.take("r1", KEY, engine.refs.tip("r1"))
    write(slot.path, {"src/new.py": "y = 1\n"})
    sh(slot.path, "add", "-A")
    sh(slot.path, "commit", "-qm", "work")
    made = sh(slot.path, "rev-parse", "HEAD")
    write(slot.path, {"src/unsaved.py": "z = 1\n"})
    return engine, slots, made


def _recover(store: Store, slots: Slots, folder: Path, *, resumes: bool = False) -> Recovery:
    accounts = LateCosts(store, CLAIM, folder / "run", None)
    return recover(
        *(store, "r1", slots, folder / "run"),
        host="here",
        boot="boot",
        resumes=lambda agent: resumes,
        close=accounts.interrupt,
    )


def test_an_attempt_without_an_end_is_closed_its_work_kept_and_its_slot_retired(tmp_path: Path) -> None:
    engine, slots, made = _left(tmp_path)
    with stored(tmp_path) as store:
        store.attempts.begin(CLAIM, intent(KEY, slot="1"))
        assert _recover(store, slots, tmp_path).lost == 1
        assert [(row.state, row.error) for row in store.attempts.all("r1")] == [("interrupted", "driver_lost")]
        assert _recover(store, slots, tmp_path).lost == 0
    assert reachable(engine.path, made) or reachable(engine.user.root, made)
    assert slots.leases_of("r1") == []
    assert slots.take("r2", "another", engine.user.head).n != 1


def test_a_slot_without_an_open_attempt_is_free_again(tmp_path: Path) -> None:
    engine, slots, made = _left(tmp_path)
    with stored(tmp_path) as store:
        assert _recover(store, slots, tmp_path).lost == 0
    assert reachable(engine.path, made) or reachable(engine.user.root, made)
    assert slots.take("r2", "another", engine.user.head).n == 1


@pytest.mark.parametrize("resumes", [True, False])
def test_a_slot_stays_as_it_is_only_for_an_agent_that_can_go_on_with_its_session(resumes: bool, tmp_path: Path) -> None:
    _, slots, _ = _left(tmp_path)
    with stored(tmp_path) as store:
        store.attempts.begin(CLAIM, intent(KEY, slot="1"))
        store.attempts.note_session(CLAIM, KEY, 1, "s-1")
        found = _recover(store, slots, tmp_path, resumes=resumes)
        assert [row.state for row in store.attempts.all("r1")] == ["interrupted"]
    assert {key: left.session for key, left in found.left.items()} == ({KEY: "s-1"} if resumes else {})
    assert [lease.n for lease in slots.leases_of("r1")] == ([1] if resumes else [])
    assert (slots.slot(1).path / "src" / "unsaved.py").exists()


# Ends the Nth call by a signal. It has taken its locks by then: those on HEAD stay, as a killed git leaves them.
#: Two gits may start at the same moment, and each needs a number of its own.
GIT = """#!/bin/sh
n=1
until mkdir {folder}/call$n 2>/dev/null; do n=$((n+1)); done
if [ $n = {number} ]; then
  touch {lock}
  kill -9 $$
fi
exec {git} "$@"
"""


@pytest.mark.req("S2-02")
@pytest.mark.parametrize("number", range(1, 9))
def test_work_stays_with_its_slot_until_a_driver_whose_gits_live_has_kept_it(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, slots, made = _left(tmp_path)
    sh(slots.slot(1).path, "checkout", "-q", "-b", "work")
    folder = tmp_path / "dying"
    folder.mkdir()
    program = folder / "git"
    lock = slots.slot(1).git_dir / "HEAD.lock"
    program.write_text(GIT.format(folder=folder, number=number, git=shutil.which("git"), lock=lock))
    program.chmod(0o755)
    with stored(tmp_path) as store:
        store.attempts.begin(CLAIM, intent(KEY, slot="1"))
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        with pytest.raises(GitUnansweredError, match="signal 9"):
            _recover(store, slots, tmp_path)
        assert [lease.n for lease in slots.leases_of("r1")] == [1], "it was given up with work in it"
        monkeypatch.undo()
        assert _recover(store, slots, tmp_path).lost == 1
    assert reachable(engine.path, made) or reachable(engine.user.root, made)


def test_what_was_begun_on_another_host_is_not_taken_over(tmp_path: Path) -> None:
    _, slots, _ = _left(tmp_path)
    with stored(tmp_path) as store:
        store.attempts.begin(CLAIM, intent(KEY, host="elsewhere", slot="1"))
        with pytest.raises(StoppedError, match="'elsewhere'"):
            _recover(store, slots, tmp_path)
        assert [row.state for row in store.attempts.all("r1")] == ["running"]
