from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from windlass.errors import UserError
from windlass.views.files import MEMORY, Projector, WriteResult

NAME = ".superteam-workflow.json"


def test_a_file_is_written_rewritten_and_left_alone_when_it_already_says_so(tmp_path: Path) -> None:
    projector, path = Projector(tmp_path), tmp_path / NAME
    assert projector.write(NAME, "one") == WriteResult(path, changed=True)
    assert projector.write(NAME, "one") == WriteResult(path, changed=False)
    assert projector.write(NAME, "two") == WriteResult(path, changed=True)
    assert path.read_text() == "two"
    assert sorted(os.listdir(tmp_path)) == [MEMORY, NAME]


def test_a_file_that_somebody_edited_is_kept_aside_and_reported_each_time(tmp_path: Path) -> None:
    path = tmp_path / NAME
    Projector(tmp_path).write(NAME, "ours")
    for n in (1, 2):
        path.write_text(f"theirs {n}")
        kept = tmp_path / f"{NAME}.edited-{n}"
        assert Projector(tmp_path).write(NAME, f"ours {n}") == WriteResult(path, changed=True, backup=kept)
        assert (path.read_text(), kept.read_text()) == (f"ours {n}", f"theirs {n}")


def test_a_missing_file_is_written_again(tmp_path: Path) -> None:
    projector = Projector(tmp_path)
    path = projector.write(NAME, "one").path
    path.unlink()
    assert projector.write(NAME, "one") == WriteResult(path, changed=True)
    assert path.read_text() == "one"


def test_a_file_that_was_there_before_us_is_kept(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("user's own")
    written = Projector(tmp_path).write(NAME, "ours")
    assert written.backup is not None
    assert written.backup.read_text() == "user's own"


@pytest.mark.parametrize("memory", ["not json", "[]", '{"a": 1}'])
def test_without_a_readable_memory_nothing_is_taken_for_ours(tmp_path: Path, memory: str) -> None:
    projector = Projector(tmp_path)
    projector.write(NAME, "one")
    (tmp_path / MEMORY).write_text(memory)
    kept = projector.write(NAME, "two").backup
    assert kept is not None
    assert kept.read_text() == "one"


@pytest.mark.req("S0-78")
@pytest.mark.parametrize("replacement", [1, 2])
def test_a_crash_before_any_rename_leaves_the_old_text_and_no_false_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replacement: int
) -> None:
    projector, path = Projector(tmp_path), tmp_path / NAME
    projector.write(NAME, "old")
    real, calls = os.replace, iter(range(1, 10))

    def dies(source: Path, target: Path) -> None:
        if next(calls) == replacement:
            raise KeyboardInterrupt
        real(source, target)

    with monkeypatch.context() as crash:
        crash.setattr(os, "replace", dies)
        with pytest.raises(KeyboardInterrupt):
            projector.write(NAME, "new")
    assert path.read_text() == "old"
    assert Projector(tmp_path).write(NAME, "newer") == WriteResult(path, changed=True)
    assert path.read_text() == "newer"


@pytest.mark.req("S0-73")
def test_a_removed_file_is_gone_and_an_edited_one_is_kept(tmp_path: Path) -> None:
    projector, path = Projector(tmp_path), tmp_path / NAME
    projector.write(NAME, "one")
    assert projector.remove(NAME) == WriteResult(path, changed=True)
    assert not path.exists()
    assert json.loads((tmp_path / MEMORY).read_text()) == {}
    assert projector.remove(NAME) == WriteResult(path, changed=False)
    path.write_text("theirs")
    kept = projector.remove(NAME).backup
    assert kept is not None
    assert (path.exists(), kept.read_text()) == (False, "theirs")


def test_folders_below_are_made(tmp_path: Path) -> None:
    path = Projector(tmp_path).write("docs/plans/x-progress.md", "# x\n").path
    assert path.read_text() == "# x\n"


@pytest.mark.parametrize("name", ["", "/etc/x", "../x", "a/../../x", MEMORY])
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError):
        Projector(tmp_path).write(name, "x")


def test_a_linked_folder_that_leads_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "docs").symlink_to(tmp_path)
    with pytest.raises(UserError):
        Projector(tmp_path / "in").write("docs/x.md", "x")


@pytest.mark.parametrize("name", [NAME, f"{NAME}.tmp"])
def test_a_planted_link_is_never_written_through(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / name).symlink_to(victim)
    Projector(folder).write(NAME, "ours")
    assert (victim.read_text(), (folder / NAME).read_text()) == ("precious", "ours")
    assert not (folder / NAME).is_symlink()


@pytest.mark.parametrize("name", [NAME, f"{NAME}.tmp"])
def test_a_folder_in_the_way_is_kept_aside(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "work").write_text("kept")
    Projector(tmp_path).write(NAME, "ours")
    assert (tmp_path / NAME).read_text() == "ours"
    assert (tmp_path / f"{name}.edited-1" / "work").read_text() == "kept"


def test_text_that_is_not_valid_unicode_is_ours_all_the_same(tmp_path: Path) -> None:
    projector = Projector(tmp_path)
    projector.write(NAME, "a\ud800")
    assert projector.write(NAME, "b").backup is None
