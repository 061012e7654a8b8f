from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gitrepo import commit, make_repo, sh, write
from windlass.git import user_repo
from windlass.git import user_repo as watch
from windlass.git.plumbing.refs import Refs
from windlass.git.user_checkout import FOLLOW, CheckoutMove, advance
from windlass.git.user_repo import FRESH_S, UserRepo, UserSignature, UserWatch


@pytest.fixture
def user(tmp_path: Path) -> UserRepo:
    return user_repo.discover(make_repo(tmp_path / "user", {"a.txt": "1\n"}))


class Looks:
    """Counts the looks, and holds the first one up until told to go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on, self.count = threading.Event(), threading.Event(), 0
        self._real = watch.user_signature
        monkeypatch.setattr(watch, "user_signature", self._look)

    def _look(self, user: UserRepo, ours: tuple[str, ...], *refs: Refs) -> UserSignature:
        self.count += 1
        if self.count == 1:
            self.begun.set()
            assert self.go_on.wait(300)
        return self._real(user, ours, *refs)


def test_all_who_ask_during_a_look_share_the_next_one(user: UserRepo, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, one = Looks(monkeypatch), UserWatch(user)
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(one.now, ())
        assert looks.begun.wait(300)
        later = [pool.submit(one._look, (), newer_than=one._begun, since=float("inf")) for _ in range(8)]
        write(user.root, {"new.txt": "1"})
        looks.go_on.set()
        found = [future.result(60) for future in later]
    assert first.result() is not found[0]
    assert all("new.txt" in signature.files for signature in found)
    assert looks.count == 2


def test_a_look_never_serves_who_asks_after_it_began(user: UserRepo) -> None:
    one = UserWatch(user, clock=lambda: 0.0)
    before = one.now(())
    write(user.root, {"a.txt": "changed\n"})
    assert before.differences(one.now(())) == ("a.txt",)


def test_before_a_dispatch_a_fresh_look_is_good_enough_and_a_change_since_is_noticed_after_it(user: UserRepo) -> None:
    now = [0.0]
    one = UserWatch(user, clock=lambda: now[0])
    first = one.now(())
    write(user.root, {"a.txt": "changed\n"})
    assert one.lately(()) is first
    assert first.differences(one.now(())) == ("a.txt",)
    now[0] += FRESH_S * 2
    assert one.lately(()).files.keys() == {"a.txt"}
    assert one.lately(("mine",)) is not one.lately(())


def test_a_branch_that_another_run_moved_is_nobodys_trespass(user: UserRepo) -> None:
    one = UserWatch(user, clock=lambda: 0.0)
    sh(user.root, "branch", "theirs")
    before = one.now(("windlass/mine",))
    new = sh(user.root, "commit-tree", "-p", "HEAD", "-m", "x", "HEAD^{tree}")
    sh(user.root, "update-ref", "-m", "windlass: 3f2a", "refs/heads/windlass/other", new)
    assert before.differences(one.now(("windlass/mine",))) == ()
    sh(user.root, "update-ref", "-m", "windlass: 3f2a", "refs/heads/windlass/other", "HEAD")
    assert before.differences(one.now(("windlass/mine",))) == ()
    sh(user.root, "update-ref", "refs/heads/theirs", new)
    assert before.differences(one.now(("windlass/mine",))) == ("refs/heads/theirs",)


def test_a_checkout_that_a_landing_moved_is_nobodys_trespass(user: UserRepo) -> None:
    one = UserWatch(user, clock=lambda: 0.0)
    sh(user.root, "checkout", "-q", "-b", "work")
    after = commit(user.root, {"new.txt": "1\n"})
    sh(user.root, "checkout", "-q", "main")
    before = one.now(())
    advance(user_repo.discover(user.root), CheckoutMove(FOLLOW, "3f2a", "main", user.head, after))
    assert before.differences(one.now(())) == ()
    sh(user.root, "update-ref", "-d", "refs/heads/work")
    assert before.differences(one.now(())) == ("refs/heads/work",)


def test_a_branch_whose_name_only_begins_like_ours_is_looked_at(user: UserRepo) -> None:
    one = UserWatch(user, clock=lambda: 0.0)
    before = one.now(("work",))
    for name in ("work", "work-2", "work-mine"):
        sh(user.root, "branch", name)
    assert before.differences(one.now(("work",))) == ("refs/heads/work-mine",)
