from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitrepo import write
from windlass.errors import UserError
from windlass.git import slot as files
from windlass.git.slot import check_path, copy_into, lock_hash, read_file, safe_path, write_artifacts


@pytest.mark.parametrize("path", ["/etc/passwd", "..", "a/../../b", ".git/config", "sub/.GIT/x", "", ".", "a\0b"])
def test_paths_that_leave_the_workspace_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(UserError, match="leaves the workspace"):
        safe_path(tmp_path, path)


@pytest.mark.parametrize("path", ["a", "a/b.txt", "...", "..a/b", ".gitignore", "a b/ü"])
def test_plain_relative_paths_are_accepted(tmp_path: Path, path: str) -> None:
    assert safe_path(tmp_path, path) == tmp_path / path


def test_a_link_that_leads_out_of_the_workspace_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "slot"
    write(tmp_path, {"secret": "s", "slot/.git/config": "c", "slot/real/x": "1"})
    (root / "out").symlink_to(tmp_path)
    (root / "leaf").symlink_to(tmp_path / "secret")
    (root / "meta").symlink_to(root / ".git")
    (root / "in").symlink_to(root / "real")
    for path in ("out/secret", "leaf", "meta/config", "out/new"):
        with pytest.raises(UserError, match="leads out"):
            read_file(root, path)
        with pytest.raises(UserError, match="leads out"):
            write_artifacts(root, {path: "x"})
    assert read_file(root, "in/x") == "1"
    assert (tmp_path / "secret").read_text() == "s"


@given(st.lists(st.sampled_from(["a", "b", "..", ".", "", ".git", "/", "c.txt"]), max_size=6))
def test_an_accepted_path_never_leaves_its_root(parts: list[str]) -> None:
    try:
        pure = check_path("/".join(parts))
    except UserError:
        return
    assert os.path.normpath(f"/root/{pure}").startswith("/root/")
    assert ".git" not in pure.parts


def test_when_one_artifact_path_is_bad_none_is_written(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        write_artifacts(tmp_path, {"good": "1", "../bad": "2"})
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_read_back_exactly(tmp_path: Path) -> None:
    text = "line\r\nnext\n\ttab ü \u2028"
    write_artifacts(tmp_path, {"docs/a.md": text})
    assert read_file(tmp_path, "docs/a.md") == text
    assert read_file(tmp_path, "docs/none.md") is None
    assert read_file(tmp_path, "docs") is None


def test_bytes_that_are_no_text_do_not_stop_reading(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"ok\xff")
    assert read_file(tmp_path, "x") == "ok\ufffd"


def test_a_pipe_is_no_file_to_wait_on(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert read_file(tmp_path, "pipe") is None


def test_a_file_too_big_to_be_a_document_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_READ", 3)
    (tmp_path / "x").write_text("1234")
    with pytest.raises(UserError, match="4 bytes"):
        read_file(tmp_path, "x")


def test_links_are_not_copied_into_a_slot(tmp_path: Path) -> None:
    source, root = tmp_path / "user", tmp_path / "slot"
    write(source, {".env": "1", "sub/.env": "2", ".git/x.env": "3"})
    write(tmp_path, {"outside": "s"})
    (source / "link.env").symlink_to(tmp_path / "outside")
    root.mkdir()
    assert copy_into(root, source, ["**/*.env", "**/.env"]) == [".env", "sub/.env"]
    assert (root / "sub" / ".env").read_text() == "2"
    with pytest.raises(UserError):
        copy_into(root, source, ["../*"])


def test_the_lock_hash_changes_with_content_appearance_and_removal(tmp_path: Path) -> None:
    names = ["uv.lock", "package-lock.json"]
    seen = [lock_hash(tmp_path, names)]
    write(tmp_path, {"uv.lock": "1"})
    seen.append(lock_hash(tmp_path, names))
    write(tmp_path, {"uv.lock": "2"})
    seen.append(lock_hash(tmp_path, names))
    assert len(set(seen)) == 3
    (tmp_path / "uv.lock").unlink()
    assert lock_hash(tmp_path, list(reversed(names))) == seen[0]
