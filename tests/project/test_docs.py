"""Documentation that cannot go stale: its commands are executed, its files are loaded, its links are followed."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import reference
from windlass.agents.cli.script import parse_script
from windlass.agents.contracts import registry as contracts
from windlass.agents.contracts.fences import last_block
from windlass.agents.roles import BUILT_IN, load_roles, parse_role
from windlass.config.load import load_config
from windlass.flow.load import parse_flow
from windlass.runs.demo import make_sample

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "docs/README.md")] + sorted(
    (ROOT / "docs" / "guides").glob("*.md")
)
FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<language>[a-z-]*)(?: (?P<file>\S+))?\n(?P<text>.*?)^(?P=fence)$", re.MULTILINE | re.DOTALL
)
RESTING = (0, 10, 11)
"""A command may end with a question or a pause; an error is no surprise only where the page writes `||`."""


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    file: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(page, line, found["language"], found["file"] or "", found["text"])


BLOCKS = [block for page in PAGES for block in blocks(page)]


def of(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


# -- console blocks


@dataclass
class Shell:
    """A person's shell in the sample repository, where the scripted agent plays every role."""

    folder: Path
    env: dict[str, str]

    @classmethod
    def open(cls, base: Path) -> Shell:
        home, bin, folder = base / "home", base / "bin", base / "sample"
        for made in (home, bin, folder):
            made.mkdir()
        (bin / "windlass").write_text(f'#!/bin/sh\nexec {sys.executable} -m windlass "$@"\n')
        (bin / "windlass").chmod(0o755)
        make_sample(folder)
        path = f"{bin}:{os.environ['PATH']}"
        env = {"PATH": path, "HOME": str(home), "TMPDIR": str(base), "LANG": "C.UTF-8", "COLUMNS": "80"}
        return cls(folder, env)

    def run(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.returncode, done.stdout + done.stderr


def commands(block: Block) -> list[tuple[str, list[str]]]:
    listed: list[tuple[str, list[str]]] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            listed.append((line[2:], []))
        else:
            assert listed, f"{block}: a console block begins with a command"
            listed[-1][1].append(line)
    return listed


def missing(wanted: list[str], output: str) -> str:
    """The first line of the page that the output does not have, in order; `...` stands for anything."""
    lines = iter(output.splitlines())
    for line in wanted:
        if line.strip() in ("", "..."):
            continue
        pattern = re.compile(".*".join(re.escape(part) for part in line.strip().split("...")))
        if not any(pattern.fullmatch(given.strip()) for given in lines):
            return line
    return ""


@pytest.mark.long
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(b.page == page for b in of("console"))],
    ids=lambda page: page.stem,
)
def test_the_commands_of_a_page_do_what_it_shows(page: Path, tmp_path: Path) -> None:
    shell = Shell.open(tmp_path)
    for block in blocks(page):
        if block.file:
            file = shell.folder / block.file
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
        if block.language != "console":
            continue
        for command, wanted in commands(block):
            code, output = shell.run(command)
            assert code in RESTING, f"{block}: `{command}` ended with {code}\n{output}"
            lost = missing(wanted, output)
            assert not lost, f"{block}: `{command}` does not show\n  {lost}\nbut\n{output}"


def test_a_line_that_is_not_shown_is_noticed() -> None:
    assert missing(["one", "...", "th...e"], "one\ntwo\nthree\n") == ""
    assert missing(["two", "one"], "one\ntwo\n") == "one"


# -- blocks that are files


def check_yaml(block: Block) -> None:
    if block.text.startswith("flow:"):
        roles = load_roles([BUILT_IN])
        parse_flow(block.text, str(block), roles=set(roles), contracts=set(contracts.CONTRACTS))
    else:
        parse_script(block.text, Path(str(block)))


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_a_yaml_block_is_a_flow_or_a_script_that_loads(block: Block) -> None:
    check_yaml(block)


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_a_toml_block_is_a_configuration_that_loads(block: Block, tmp_path: Path) -> None:
    (tmp_path / ".windlass").mkdir()
    (tmp_path / ".windlass" / "config.toml").write_text(block.text)
    load_config(tmp_path, tmp_path / "none", {})


@pytest.mark.parametrize("block", of("markdown"), ids=str)
def test_a_markdown_block_is_a_role_a_plan_or_an_answer_that_is_accepted(block: Block) -> None:
    if block.text.startswith("---\n"):
        parse_role(block.text, Path(block.file))
    elif last_block(block.text, ("superteam-tasks",)) is not None:
        assert contracts.parse_plan(block.text).problem == ""
    elif '"resolved"' in block.text:
        assert contracts.parse("resolution", block.text).value["resolved"] != []  # type: ignore[index, call-overload]
    else:
        assert contracts.parse("review", block.text).problem == ""


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_a_block_of_python_can_be_parsed(block: Block) -> None:
    ast.parse(block.text)


def test_every_block_is_of_a_language_that_is_checked() -> None:
    """`sh` is for what a test cannot do: install, make, wait for a person."""
    known = {"console", "markdown", "python", "sh", "toml", "yaml"}
    assert [f"{block}: {block.language}" for block in BLOCKS if block.language not in known] == []


# -- links and generated pages


def links(page: Path) -> Iterator[tuple[str, str]]:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" not in path:
            yield path, anchor


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", [*PAGES, ROOT / "docs/reference/README.md"], ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(f"{path}#{anchor}")
    assert dead == []


@pytest.mark.parametrize("name", sorted(reference.PAGES))
def test_the_reference_says_what_the_code_says(name: str) -> None:
    stored = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert stored == reference.PAGES[name](), "stale: run `python tools/reference.py`"


def test_nothing_else_is_in_the_reference() -> None:
    assert {path.name for path in (ROOT / "docs" / "reference").iterdir()} == set(reference.PAGES)
