"""Proposes a first configuration from the repository's files, as a commented file."""

from __future__ import annotations

import json
import re
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from windlass.config.values import parse_command
from windlass.errors import UserError

PYTEST_FILES = ("pytest.ini", "conftest.py", "tests/conftest.py", "tox.ini", "setup.cfg", "pyproject.toml")
NODE_TOOLS = {
    "pnpm-lock.yaml": ("pnpm install --frozen-lockfile", "pnpm test"),
    "yarn.lock": ("yarn install --frozen-lockfile", "yarn test"),
    "bun.lock": ("bun install --frozen-lockfile", "bun run test"),
    "package-lock.json": ("npm ci", "npm test"),
}
#: the first one that exists: a project with several usually repeats the same text in each
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
NO_TEST = "no test specified"


#: the runner in a package's test script -> a command that runs some files and writes a report
NODE_RUNNERS = {
    "vitest": ["npx", "vitest", "run", "--reporter=junit", "--outputFile={junit}", "{files}"],
    "jest": [
        "env",
        "JEST_JUNIT_OUTPUT_FILE={junit}",
        "npx",
        "jest",
        "--reporters=jest-junit",
        "--runTestsByPath",
        "{files}",
    ],
    "node --test": ["node", "--test", "--test-reporter=junit", "--test-reporter-destination={junit}", "{files}"],
}


#: -count=1 ignores cached results
GO_TEST = ("go", "test", "-json", "-count=1", "{folders}")


class ConfigProposal(Struct, frozen=True):
    checks: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    """A slot is a clean checkout, so dependencies must be installed there."""
    agent: str = ""
    agents: tuple[str, ...] = ()
    """All agents that can work here; the first one is proposed."""
    instructions: tuple[str, ...] = ()
    run_files: tuple[str, ...] = ()
    """A command that runs some test files and writes a report, for TDD proofs."""


def with_checks(proposal: ConfigProposal, checks: tuple[str, ...]) -> ConfigProposal:
    for check in checks:
        try:
            parse_command(check)
        except ValueError as error:
            raise UserError(str(error), hint="like: pytest -q; ruff check") from None
    return replace(proposal, checks=checks)


def propose(root: Path, agents: tuple[str, ...] = ()) -> ConfigProposal:
    """Propose the project's own `test` target, or else the usual command of each language."""
    found = [commands for commands in (_python(root), _node(root)) if commands]
    found += [((), ("cargo test",))] if (root / "Cargo.toml").is_file() else []
    found += [((), ("go test ./...",))] if (root / "go.mod").is_file() else []
    setup = tuple(command for commands, _ in found for command in commands)
    checks = tuple(command for _, commands in found for command in commands)
    makefiles = [_text(root / name) for name in ("GNUmakefile", "makefile", "Makefile")]
    has_target = any(re.search(r"^test\s*:(?!=)", text, re.MULTILINE) for text in makefiles)
    tested = ("make test",) if has_target else checks
    instructions = tuple(name for name in INSTRUCTIONS if (root / name).is_file())[:1]
    return ConfigProposal(tested, setup, agents[0] if agents else "", agents, instructions, _run_files(root, checks))


def _run_files(root: Path, checks: tuple[str, ...]) -> tuple[str, ...]:
    """A command can run the files of only one language. If the repository has two, propose none."""
    pytest = [command.split() for command in checks if command.endswith("pytest -q")]
    found = [(*words, "--junitxml={junit}", "{files}") for words in pytest]
    script = _test_script(root)
    found += [tuple(argv) for name, argv in NODE_RUNNERS.items() if name in script]
    found += [GO_TEST] if (root / "go.mod").is_file() else []
    return found[0] if len(found) == 1 else ()


def _test_script(root: Path) -> str:
    try:
        return str(json.loads(_text(root / "package.json") or "{}").get("scripts", {}).get("test", ""))
    except (ValueError, AttributeError):
        return ""


Commands = tuple[tuple[str, ...], tuple[str, ...]]
"""Set-up commands and checks."""


def _python(root: Path) -> Commands | None:
    texts = [_text(root / name) for name in PYTEST_FILES]
    named = any("pytest" in text for text in texts) or bool(texts[0] or texts[1] or texts[2])
    if not named and not any(root.glob("tests/test_*.py")) and not any(root.glob("test_*.py")):
        return None
    if (root / "uv.lock").is_file():
        return ("uv sync",), ("uv run pytest -q",)
    return (), ("python -m pytest -q",)


def _node(root: Path) -> Commands | None:
    script = _test_script(root)
    if not script or NO_TEST in script:
        return None
    install, test = next(
        (both for lock, both in NODE_TOOLS.items() if (root / lock).is_file()), ("npm install", "npm test")
    )
    return (install,), (test,)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def render(proposal: ConfigProposal) -> str:
    """Render the file. Settings without a proposal are comments."""
    return TEMPLATE.format(
        checks=_setting("commands", proposal.checks, ["pytest -q"]),
        run_files=_setting("run_files", proposal.run_files, EXAMPLE),
        setup=_setting("setup", proposal.setup, ["npm ci"]),
        instructions=_setting("instructions", proposal.instructions, ["AGENTS.md"]),
        agent=f'default = "{proposal.agent}"' if proposal.agent else '# default = "NAME"',
        found=f" Found here: {', '.join(proposal.agents)}." if proposal.agents else "",
    )


EXAMPLE = ["python", "-m", "pytest", "--junitxml={junit}", "{files}"]


def _setting(name: str, commands: tuple[str, ...], example: list[str]) -> str:
    # A JSON list of plain texts is also a TOML one.
    return f"{name} = {json.dumps(list(commands))}" if commands else f"# {name} = {json.dumps(example)}"


TEMPLATE = """\
# The configuration of Windlass for this repository. Commit this file, so that all runs use it.
# Every setting is optional; `windlass doctor` shows the values in use.

# The flow that `windlass run` uses without --flow; `windlass flow list` lists the flows.
# flow = "plan"

[checks]
# Commands that must pass before code lands. No shell is used. Without checks, landings are 'unchecked'.
# `windlass check` runs them.
{checks}
# timeout = "10m"

[tests]
# A command that runs some test files, as a list of words. {{files}} stands for the files, {{folders}} for their
# folders, {{junit}} for the JUnit report that it writes. Flows that require TDD use it to prove that a task's tests
# fail without its code. Without this command, TDD is 'unchecked'.
{run_files}

[workspace]
# Agents and checks work in slots: clean checkouts outside this folder. Set-up runs once in each slot, and again
# when a lock file changes.
{setup}
# Files that are not in git but that a slot needs:
# copy = [".env"]
# Additional environment variables for agents and checks:
# env = ["DATABASE_URL"]
# Files of this repository that every agent must follow. Agents get no other instruction files:
{instructions}

[agents]
# The agent for roles that name none; `windlass agents` lists the installed ones.{found}
{agent}

# Settings of one agent. It uses your own login, so you need none of them:
# [agents.claude]
# model = "NAME"
# bin = "/path/to/claude"

# A role can use its own agent or model:
# [roles.implementer]
# agent = "NAME"
# model = "NAME"
# effort = "high"

[budget]
# US dollars per run.
# warn_usd = 5.0
# stop_usd = 20.0
"""
