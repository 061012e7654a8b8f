"""A first configuration: what the repository itself suggests, as a commented file."""

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
#: the first that is there: where a project has several, they say the same
INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "GEMINI.md")
NO_TEST = "no test specified"


#: what the test script of a package calls, and how that runs some files and writes a report
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


#: -count=1: the results of an earlier run do not count
GO_TEST = ("go", "test", "-json", "-count=1", "{folders}")


class ConfigProposal(Struct, frozen=True):
    checks: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    """A slot is a clean checkout: what is not committed must be made there."""
    agent: str = ""
    agents: tuple[str, ...] = ()
    """All that could do the work here; the first is proposed."""
    instructions: tuple[str, ...] = ()
    run_files: tuple[str, ...] = ()
    """Runs some test files with a report, so that TDD can be proved."""


def with_checks(proposal: ConfigProposal, checks: tuple[str, ...]) -> ConfigProposal:
    for check in checks:
        try:
            parse_command(check)
        except ValueError as error:
            raise UserError(str(error), hint="like: pytest -q; ruff check") from None
    return replace(proposal, checks=checks)


def propose(root: Path, agents: tuple[str, ...] = ()) -> ConfigProposal:
    """A `test` target of the project's own says best how it is tested; else what each language has."""
    parts = [part for part in (_python(root), _node(root), _cargo(root), _go(root)) if part]
    setup = tuple(command for commands, _ in parts for command in commands)
    checks = tuple(command for _, commands in parts for command in commands)
    tested = ("make test",) if _has_test_target(root) else checks
    told = tuple(name for name in INSTRUCTIONS if (root / name).is_file())[:1]
    return ConfigProposal(tested, setup, agents[0] if agents else "", agents, told, _run_files(root, checks))


def _run_files(root: Path, checks: tuple[str, ...]) -> tuple[str, ...]:
    """A command that runs files of one language cannot run those of another: with two, none is proposed."""
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


Part = tuple[tuple[str, ...], tuple[str, ...]]
"""Set-up and checks."""


def _python(root: Path) -> Part | None:
    texts = [_text(root / name) for name in PYTEST_FILES]
    named = any("pytest" in text for text in texts) or bool(texts[0] or texts[1] or texts[2])
    if not named and not any(root.glob("tests/test_*.py")) and not any(root.glob("test_*.py")):
        return None
    if (root / "uv.lock").is_file():
        return ("uv sync",), ("uv run pytest -q",)
    return (), ("python -m pytest -q",)


def _node(root: Path) -> Part | None:
    script = _test_script(root)
    if not script or NO_TEST in script:
        return None
    install, test = next(
        (both for lock, both in NODE_TOOLS.items() if (root / lock).is_file()), ("npm install", "npm test")
    )
    return (install,), (test,)


def _cargo(root: Path) -> Part | None:
    return ((), ("cargo test",)) if (root / "Cargo.toml").is_file() else None


def _go(root: Path) -> Part | None:
    return ((), ("go test ./...",)) if (root / "go.mod").is_file() else None


def _has_test_target(root: Path) -> bool:
    names = ("GNUmakefile", "makefile", "Makefile")
    return any(re.search(r"^test\s*:(?!=)", _text(root / name), re.MULTILINE) for name in names)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def render(proposal: ConfigProposal) -> str:
    """The file; what is only possible stands in it as a comment."""
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
# Windlass in this repository. Commit it: everybody's runs use it.
# Everything here can be left out; `windlass doctor` says what is in force.

# The flow of `windlass run` without --flow; `windlass flow list` names them.
# flow = "plan"

[checks]
# Run on the code that is about to land, each as a list of words, without a shell. Without any, what lands is
# called 'unchecked'. `windlass check` tries them.
{checks}
# timeout = "10m"

[tests]
# Runs some test files: the words of one command, {{files}} for them, or {{folders}} for their folders, and {{junit}}
# for the JUnit report it writes. With it, flows that require TDD prove that a task's tests fail without its code;
# without it that is 'unchecked'.
{run_files}

[workspace]
# Agents and checks work in slots: clean checkouts outside this folder. Set-up runs once in each, and again when a
# lock file changed.
{setup}
# Files that git does not hold and a slot needs:
# copy = [".env"]
# Environment variables that agents and checks may see besides the usual ones:
# env = ["DATABASE_URL"]
# Files of this repository that every agent is told to follow. Only what stands here reaches them:
{instructions}

[agents]
# Who works when a role names nobody; `windlass agents` lists what is installed.{found}
{agent}

# An agent's own settings; its login is yours and needs none of them:
# [agents.claude]
# model = "NAME"
# bin = "/path/to/claude"

# A role can have an agent or a model of its own:
# [roles.implementer]
# agent = "NAME"
# model = "NAME"
# effort = "high"

[budget]
# US dollars per run.
# warn_usd = 5.0
# stop_usd = 20.0
"""
