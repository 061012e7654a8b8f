from __future__ import annotations

from pathlib import Path

from windlass.agents.process.login_copy import copy_logins, remove_logins


def test_what_is_not_there_is_not_carried(tmp_path: Path) -> None:
    assert copy_logins(tmp_path / "room", {"home/auth.json": str(tmp_path / "none")}) == []


def test_a_copy_is_for_its_owner_alone_and_goes_away(tmp_path: Path) -> None:
    (tmp_path / "auth.json").write_text("secret")
    carried = copy_logins(tmp_path / "room", {"home/auth.json": str(tmp_path / "auth.json")})
    copy = tmp_path / "room" / "home" / "auth.json"
    assert (copy.read_text(), copy.stat().st_mode & 0o777) == ("secret", 0o600)
    remove_logins(carried)
    assert [path for path in (tmp_path / "room").rglob("*") if path.is_file()] == []
    assert (tmp_path / "auth.json").read_text() == "secret"


def test_a_login_that_somebody_else_renewed_is_not_overwritten(tmp_path: Path) -> None:
    source = tmp_path / "auth.json"
    source.write_text("old")
    carried = copy_logins(tmp_path / "room", {"auth.json": str(source)})
    (tmp_path / "room" / "auth.json").write_text("mine")
    source.write_text("theirs")
    remove_logins(carried)
    assert source.read_text() == "theirs"


def test_a_login_that_the_cli_emptied_or_took_away_is_kept(tmp_path: Path) -> None:
    source = tmp_path / "auth.json"
    source.write_text("old")
    for end in (lambda copy: copy.write_text(""), lambda copy: copy.unlink()):
        carried = copy_logins(tmp_path / "room", {"auth.json": str(source)})
        end(tmp_path / "room" / "auth.json")
        remove_logins(carried)
        assert source.read_text() == "old"


def test_a_login_behind_a_link_is_renewed_behind_it(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "auth.json").symlink_to(tmp_path / "real.json")
    carried = copy_logins(tmp_path / "room", {"auth.json": str(tmp_path / "auth.json")})
    (tmp_path / "room" / "auth.json").write_text("new")
    remove_logins(carried)
    assert (tmp_path / "auth.json").is_symlink()
    assert (tmp_path / "real.json").read_text() == "new"


def test_a_folder_of_sessions_is_linked_and_stays(tmp_path: Path) -> None:
    (tmp_path / "before" / "sessions").mkdir(parents=True)
    for _ in range(2):
        remove_logins(copy_logins(tmp_path / "room", {"home/sessions": str(tmp_path / "before" / "sessions")}))
    (tmp_path / "room" / "home" / "sessions" / "new").write_text("x")
    assert (tmp_path / "before" / "sessions" / "new").exists()
