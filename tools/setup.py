"""Makes a virtual environment from a lock file.

Standard library only, and readable by any Python 3, so that an old one can be told what it lacks.

usage: setup.py FOLDER LOCK
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UV_LOCK = ROOT / "requirements-uv.lock"
OLDEST = (3, 11)


def main(arguments):  # type: (list[str]) -> int
    problem = missing()
    if problem:
        print("setup: " + problem, file=sys.stderr)
        return 1
    folder, lock = (ROOT / name for name in arguments)
    folder.mkdir(exist_ok=True)
    with open(str(folder / ".setup-lock"), "w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        make(folder, lock)
    return 0


def missing():  # type: () -> str
    if sys.version_info < OLDEST:
        found = ".".join(str(part) for part in sys.version_info[:3])
        return f"Windlass needs Python 3.11 or newer, {sys.executable} is {found}. Try: make PYTHON=python3.12"
    try:
        import ensurepip  # noqa: F401
        import venv  # noqa: F401
    except ImportError:
        return "this Python has no venv module. On Debian and Ubuntu: apt install python3-venv"
    return ""


def make(folder, lock):  # type: (Path, Path) -> None
    stamp, wanted = folder / ".stamp", fingerprint(lock)
    if not stamp.is_file() or stamp.read_text() != wanted:
        stamp.unlink(missing_ok=True)
        fresh_venv(folder)
        python = str(folder / "bin" / "python")
        install(python, folder, lock)
        run([python, "-m", "compileall", "-q", str(ROOT / "src")])
    stamp.write_text(wanted)


def fingerprint(lock):  # type: (Path) -> str
    parts = [path.read_bytes() for path in (lock, UV_LOCK, ROOT / "pyproject.toml", Path(__file__))]
    parts += [sys.version.encode(), str(ROOT).encode()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def fresh_venv(folder):  # type: (Path) -> None
    for entry in folder.iterdir():
        if entry.name == ".setup-lock":
            continue
        shutil.rmtree(str(entry)) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    run([sys.executable, "-m", "venv", str(folder)])


def install(python, folder, lock):  # type: (str, Path, Path) -> None
    """With uv, which is fast; with pip where uv cannot be had. The lock's hashes are demanded either way."""
    hashed = ["--require-hashes", "-r", str(lock)]
    project = ["--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    try:
        run([*pip, "--require-hashes", "-r", str(UV_LOCK)])
        uv = [python, "-m", "uv", "pip", "install", "--quiet", "--python", python]
        run([*uv, "--compile-bytecode", *hashed], env=uv_environment(folder))
        run([*uv, *project], env=uv_environment(folder))
    except subprocess.CalledProcessError:
        print("setup: uv did not work here, trying pip", file=sys.stderr)
        run([*pip, *hashed])
        run([*pip, *project])


def uv_environment(folder):  # type: (Path) -> dict[str, str]
    """uv does not read pip's settings: those that name a mirror are handed on, and it trusts whom the system trusts."""
    env = {"UV_SYSTEM_CERTS": "1", **os.environ}
    pairs = (("PIP_INDEX_URL", "UV_DEFAULT_INDEX"), ("PIP_EXTRA_INDEX_URL", "UV_INDEX"), ("PIP_CERT", "SSL_CERT_FILE"))
    for theirs, ours in pairs:
        if theirs in env:
            env.setdefault(ours, env[theirs])
    home = env.get("HOME", "")
    if "UV_CACHE_DIR" not in env and not (home and os.access(home, os.W_OK)):
        env["UV_CACHE_DIR"] = str(folder / ".uv-cache")
    return env


def run(command, env=None):  # type: (list[str], dict[str, str] | None) -> None
    subprocess.run(command, check=True, env=env, cwd=str(ROOT))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
