"""What the machine runs out of, what a program may write, and who may read a run's record."""

from __future__ import annotations

import errno
import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bench import REQUEST, Bench, make_bench
from windlass.agents.output_redaction import TRANSCRIPT
from windlass.app import compose
from windlass.errors import Exit, StoppedError, StoreError, exhausted, exhausted_in
from windlass.interfaces.exit import run as command_line
from windlass.store.sqlite.errors import store_error
from windlass.store.sqlite.files import require_undamaged
from windlass.store.sqlite.store import SqliteStore

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
LOUD = """\
import os, sys
line = b"x" * 199 + b"\\n"
for _ in range(200 * 1024 * 1024 // (len(line) * 512)):
    os.write(1, line * 512)
"""


@contextmanager
def small_disk(place: Path, size: str = "12m") -> Iterator[Path]:
    """A file system of its own. Skips where none can be mounted, as in a container."""
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {done.stderr.decode().strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Until nothing is left."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * (1 << 16))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    return ballast


# -- one place for all of them


@pytest.mark.parametrize("number", ["ENOSPC", "EDQUOT", "EROFS", "EMFILE", "ENFILE", "ENOMEM", "EIO"])
def test_what_the_machine_lacks_stops_with_exit_12_the_path_and_a_way_out(
    number: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**more: object) -> None:
        raise OSError(getattr(errno, number), "raw words", "/some/path")

    monkeypatch.setattr("windlass.interfaces.cli.cli.main", fail)
    assert command_line(["status"], compose()) == Exit.STOPPED
    said = capsys.readouterr().err
    assert "/some/path" in said
    assert "hint:" in said
    assert "bug" not in said


def test_other_errors_of_the_system_are_still_bugs() -> None:
    assert exhausted(OSError(errno.ENOENT, "not there", "x")) is None
    assert exhausted(ValueError("no")) is None
    assert exhausted_in("fatal: not a git repository") is None


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("error: unable to write file: No space left on device", "no space is left"),
        ("fatal: cannot open: Read-only file system", "read-only"),
        ("fatal: Too many open files", "too many files are open in this process"),
        ("error: Disk quota exceeded", "quota"),
    ],
)
def test_git_s_own_words_for_it_are_understood(said: str, expected: str) -> None:
    found = exhausted_in(said, "/repo")
    assert found is not None
    assert expected in found.message
    assert "/repo" in found.message


# -- a full disk, a read-only one, too many open files


@needs_root
def test_a_full_disk_stops_the_run_with_exit_12_and_space_lets_it_go_on(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "230m") as disk:
        bench = make_bench(disk)
        assert bench.run().code == 10, "it waits for the plan's approval"
        ballast = fill(disk)
        said = bench.windlass("answer", "approve")
        assert said.code == 12, str(said)
        assert "space" in said.err, str(said)
        assert "bug" not in said.err
        ballast.unlink()
        assert bench.windlass("resume").code == 10
        said = bench.windlass("answer", "approve")
        assert (said.code, bench.run_state) == (10, "waiting"), f"it goes on to its next question: {said}"


@pytest.mark.long
@needs_root
def test_a_disk_that_fills_up_under_a_check_is_not_red(tmp_path: Path) -> None:
    """Nobody is paid to mend in the code what the disk lacks."""
    with small_disk(tmp_path / "disk", "230m") as disk:
        config = '[checks]\ncommands = [["sh", "-c", "cat /dev/zero > fill; exit 1"]]\n'
        bench = make_bench(disk, config=config)
        said = bench.run("--yes", "--yes", "approve")
        assert said.code == 12, str(said)
        assert "space" in said.err, str(said)
        assert not [line for line in bench.dispatches() if line["role"] == "implementer"], "nothing was dispatched"


@pytest.mark.long
@needs_root
def test_a_read_only_file_system_stops_with_exit_12(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "230m") as disk:
        bench = make_bench(disk)
        assert bench.run().code == 10
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for command in (("answer", "approve"), ("resume",), ("run", "More", "--new", "--script", str(bench.script))):
            said = bench.windlass(*command)
            assert said.code == 12, f"{command}: {said}"
            assert "read-only" in said.err, f"{command}: {said}"
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
        said = bench.windlass("answer", "approve")
        assert (said.code, bench.run_state) == (10, "waiting"), f"it goes on to its next question: {said}"


@pytest.mark.long
def test_too_few_open_files_stop_with_exit_12(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    code = (
        "import resource, sys\n"
        "from windlass.app import compose\n"
        "from windlass.interfaces.exit import run\n"
        "import windlass.runs.drive, windlass.runs.start, windlass.driver.loop\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))\n"
        "sys.exit(run(sys.argv[2:], compose()))\n"
    )
    seen = set()
    for most in (9, 12, 16):
        argv = [sys.executable, "-c", code, str(most), "run", REQUEST, "--new", "--script", str(bench.script), "--yes"]
        done = subprocess.run(argv, cwd=bench.root, env=bench.environ(), capture_output=True, text=True, check=False)
        seen.add(done.returncode)
        assert done.returncode in (10, 12), done.stderr
        assert done.returncode == 10 or "too many files are open" in done.stderr, done.stderr
    assert 12 in seen


# -- a damaged database


def waiting(folder: Path) -> Bench:
    bench = make_bench(folder)
    assert bench.run().code == 10
    return bench


@pytest.mark.sweep(5)
@pytest.mark.parametrize("size", [0, 1, 100, 4096, 20_000])
def test_a_database_that_was_cut_off_is_damage_and_is_kept(tmp_path: Path, size: int) -> None:
    bench = waiting(tmp_path)
    database = bench.home / "windlass.db"
    whole = database.stat().st_size
    assert size < whole
    os.truncate(database, size)
    for command in (("status",), ("runs",), ("resume",), ("run", "More", "--script", str(bench.script))):
        said = bench.windlass(*command)
        assert said.code == 1, f"{command}: {said}"
        assert str(database) in said.err, f"{command}: {said}"
        assert "does not change it" in said.err, f"{command}: {said}"
        assert database.stat().st_size == size


@pytest.mark.long
def test_zeros_in_place_of_a_database_are_damage(tmp_path: Path) -> None:
    bench = waiting(tmp_path)
    database = bench.home / "windlass.db"
    database.write_bytes(b"\0" * database.stat().st_size)
    said = bench.windlass("status")
    assert (said.code, "does not change it" in said.err) == (1, True), str(said)


def test_a_damaged_page_is_found_when_a_driver_opens_the_database_after_a_crash(tmp_path: Path) -> None:
    bench = waiting(tmp_path)
    database = bench.home / "windlass.db"
    with closing(sqlite3.connect(database)) as db:
        db.execute("CREATE TABLE filler (x TEXT)")
        db.executemany("INSERT INTO filler VALUES (?)", [("y" * 500,)] * 2000)
        db.commit()
        page = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'filler'").fetchone()[0]
        size = db.execute("PRAGMA page_size").fetchone()[0]
    raw = bytearray(database.read_bytes())
    raw[(page - 1) * size : page * size] = b"\xff" * size
    database.write_bytes(raw)
    assert bench.windlass("status").code == 0, "nobody who only reads waits for the check"
    # what a killed process leaves: a log that nobody took over
    held = sqlite3.connect(database, isolation_level=None)
    held.execute("UPDATE run SET hint = hint")
    said = bench.windlass("answer", "approve")
    held.close()
    assert said.code == 1, str(said)
    assert "damaged" in said.err
    assert "does not change it" in said.err


def test_the_look_for_damage_ends_in_time(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "large.db")) as db:
        db.execute("CREATE TABLE filler (x TEXT)")
        db.executemany("INSERT INTO filler VALUES (?)", [("y" * 500,)] * 20_000)
        db.commit()
        require_undamaged(db, tmp_path / "large.db", limit_s=0.0)
        assert db.execute("SELECT count(*) FROM filler").fetchone() == (20_000,)


def test_a_killed_start_leaves_no_half_made_database(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    said = bench.killed_at(
        "windlass.store.sqlite.files:migrate", "before", 1, "run", REQUEST, "--script", str(bench.script)
    )
    assert said.code == -signal.SIGKILL
    assert not (bench.home / "windlass.db").exists()
    assert bench.windlass("status").code == 0
    assert bench.run().code == 10


def test_sqlite_s_words_for_a_full_disk_and_a_lock_stop_the_run() -> None:
    for text in ("database or disk is full", "database is locked"):
        assert isinstance(store_error(sqlite3.OperationalError(text), Path("/x/w.db")), StoppedError)
    assert isinstance(store_error(sqlite3.DatabaseError("malformed"), Path("/x/w.db")), StoreError)


# -- who may read it


@pytest.mark.sweep(2)
@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_the_record_of_a_run_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    bench = make_bench(tmp_path)
    before = os.umask(umask)
    try:
        assert bench.run("--yes", "--yes", "approve").code == 0
        held = sqlite3.connect(bench.home / "windlass.db")
        held.execute("SELECT * FROM run").fetchall()
    finally:
        os.umask(before)
    written_by_agents = bench.run_folder / "scripted"
    places = [path for path in (bench.home, *bench.home.rglob("*")) if written_by_agents not in (path, path.parent)]
    opened = {path for path in places if stat.S_IMODE(path.stat().st_mode) & 0o077}
    held.close()
    assert opened == set()
    assert {path.name for path in places} >= {
        "windlass.db",
        "windlass.db-wal",
        "windlass.db-shm",
        "report.md",
        "stdout",
    }


def test_a_database_that_an_older_version_left_open_to_others_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    SqliteStore.open(path, lambda: 1.0, create=True).close()
    path.chmod(0o644)
    SqliteStore.open(path, lambda: 1.0).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# -- how much a program may write


# Started by a small process of its own: the kernel counts what a process had before its exec, and pytest is large.
MEASURE = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdout=2)
_, status, usage = os.wait4(child.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)
"""


def measured(bench: Bench, *args: str) -> tuple[int, float, str]:
    """Exit code, the driver's peak of memory in MB, and what it said."""
    argv = [sys.executable, "-c", MEASURE, sys.executable, "-m", "windlass", *args]
    with (bench.folder / "said").open("w+b") as out:
        env, null = bench.environ(), subprocess.DEVNULL
        done = subprocess.run(argv, cwd=bench.root, env=env, stdin=null, stdout=subprocess.PIPE, stderr=out, check=True)
        out.seek(0)
        code, peak = done.stdout.split()
        return int(code), int(peak) / 1024, out.read().decode("utf-8", "replace")


def loud_bench(folder: Path, config: str) -> Bench:
    """The scout is a program that writes 200 MB of lines."""
    loud = folder / "loud.py"
    loud.write_text(LOUD)
    argv = json.dumps([sys.executable, str(loud)])
    return make_bench(folder, config=f'[roles.scout]\nagent = "command"\n[agents.command]\nargv = {argv}\n{config}')


@pytest.mark.long
def test_an_agent_that_writes_200_mb_is_ended_and_the_driver_stays_small(tmp_path: Path) -> None:
    bench = loud_bench(tmp_path, "[limits]\noutput_mb = 16\n")
    code, peak, said = measured(
        bench, "run", REQUEST, "--script", str(bench.script), "--role", "scout=command", "--yes"
    )
    (row,) = bench.rows("SELECT error, reason, n FROM attempt WHERE role = 'scout'")
    assert (row["error"], row["n"]) == ("too_much_output", 1), said
    assert "16 MB" in row["reason"]
    assert "limits.output_mb" in row["reason"]
    (stdout,) = (path for path in (bench.run_folder / "attempts").rglob("stdout") if path.stat().st_size > 1 << 20)
    assert stdout.stat().st_size == 16 << 20
    assert stdout.with_name("events.jsonl").stat().st_size <= (16 << 20) + 4096
    assert peak < 150, f"{peak:.0f} MB"
    assert code in (10, 12, 0), said


@pytest.mark.long
def test_a_check_that_writes_too_much_is_red_and_says_so(tmp_path: Path) -> None:
    loud = tmp_path / "loud.py"
    loud.write_text(LOUD)
    config = f"[checks]\ncommands = [{json.dumps([sys.executable, str(loud)])}]\n[limits]\noutput_mb = 8\n"
    bench = make_bench(tmp_path, config=config)
    code, peak, said = measured(bench, "check")
    assert code == 12, said
    assert "it wrote more than 8 MB (limits.output_mb)" in said
    assert peak < 150, f"{peak:.0f} MB"


# -- transcripts of runs that are done


@pytest.mark.long
def test_gc_frees_the_transcripts_of_runs_that_are_done_and_says_how_much(tmp_path: Path) -> None:
    bench = make_bench(tmp_path)
    assert bench.run("--yes", "--yes", "approve").code == 0
    attempts, report = bench.run_folder / "attempts", bench.run_folder / "report.md"
    assert [path for path in attempts.rglob("*") if path.name in TRANSCRIPT]
    assert "would remove transcripts of run" in bench.windlass("gc", "--dry-run").out
    assert "transcripts" not in bench.windlass("gc", "--keep-transcripts").out
    assert attempts.is_dir()
    said = bench.windlass("gc")
    assert f"removed transcripts of run {bench.id}, " in said.out
    assert " MB" in said.out
    assert not attempts.exists()
    assert report.is_file()
    for command in ("status", "show", "log"):
        assert bench.windlass(command).code == 0
    assert "transcripts" not in bench.windlass("gc").out


@pytest.mark.long
def test_gc_leaves_the_transcripts_of_a_run_that_goes_on(tmp_path: Path) -> None:
    bench = waiting(tmp_path)
    bench.windlass("gc")
    assert (bench.run_folder / "attempts").is_dir()
