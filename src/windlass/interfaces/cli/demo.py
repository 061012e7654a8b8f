"""windlass demo: a whole run on a sample repository, with agents whose words are written down beforehand."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import click
from msgspec import Struct

import windlass
from windlass import git
from windlass.agents.plain_yaml import read, values
from windlass.app import build
from windlass.driving import Policy
from windlass.errors import UserError
from windlass.interfaces.cli.drive import go_on
from windlass.starting import Start


class Scene(Struct, frozen=True):
    """What is played: a request, the words of the agents, and the answers of a person who is not there."""

    request: str
    script: Path
    answers: Mapping[str, str]


DATA = Path(windlass.__file__).parent / "demo"
SETTLED = {"approve": "approve", "review_mode": "iterative", "execution_mode": "auto"}
CHOSEN = {"question-1": "1", "question-2": "1", "question-3": "1", "question-4": "12 hours", "approach": "middleware"}
SCENES = {
    "plan": Scene("Add rate limiting with token bucket algorithm", DATA / "script.yaml", SETTLED),
    "brainstorm": Scene(
        "Add user authentication",
        DATA / "brainstorm.yaml",
        SETTLED | CHOSEN | {f"section-{n}": "yes" for n in range(1, 5)} | {"final": "accept"},
    ),
}
REQUEST, SCRIPT = SCENES["plan"].request, SCENES["plan"].script
AUTHOR = ("-c", "user.name=Sample Author", "-c", "user.email=author@windlass.invalid")
REAL = ("claude", "codex", "pi", "gemini", "opencode")


def scripted(scene: Scene) -> str:
    return f"""# Agents whose words are written down in that file: no network, no key, no cost.
[agents]
default = "scripted"

[agents.scripted]
script = {json.dumps(str(scene.script))}"""


@click.command(short_help="A whole run on a sample repository.")
@click.option("--into", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Make the sample there.")
@click.option("--flow", type=click.Choice(list(SCENES)), default="plan", help="Which flow is shown.")
@click.option("--no-run", "only_sample", is_flag=True, help="Make the sample, start nothing.")
@click.option("--ask", is_flag=True, help="Answer the questions yourself.")
@click.option("--agent", type=click.Choice(["scripted", *REAL]), default="scripted", help="A CLI to play every role.")
@click.option("--bin", "binary", default="", metavar="PATH", help="Where that CLI is; else the one on the PATH.")
def demo(into: Path | None, flow: str, only_sample: bool, ask: bool, agent: str, binary: str) -> int:
    """Make a sample repository and drive a run on it, from request to landed code.

    The agents are scripted, so it needs no network, no key and no money. Everything else is real: the repository, the
    slots, the tests, the reviews that send work back, the landings. With --agent the agent is a real CLI too, and only
    the model it talks to is scripted, by a server on this machine.

    \b
      windlass demo
      windlass demo --into ~/sample --ask
      windlass demo --flow brainstorm --ask
      windlass demo --agent claude
    """
    scene = SCENES[flow]
    if only_sample:
        return _only_sample(_empty_folder(into), flow, scene)
    if agent == "scripted":
        told = "the agents' words are scripted, everything else is real"
        return _demo(_empty_folder(into), ask, flow, scripted(scene), told)
    found = _found(agent, binary)
    from windlass.testing.scripted_model import ScriptedModel

    with ScriptedModel.from_file(scene.script) as model:
        settings = _real(agent, found, model.url_for("{job}"))
        told = f"'{agent}' is real, the model it talks to is scripted"
        return _demo(_empty_folder(into), ask, flow, settings, told)


def _only_sample(folder: Path, flow: str, scene: Scene) -> int:
    make_sample(folder, scripted(scene))
    command = f"windlass run --flow {flow} {shlex.quote(scene.request)}"
    click.echo(f"A sample repository in {folder}. Its agents are scripted for this request:\n")
    click.echo(f"  cd {shlex.quote(str(folder))}\n  {command}")
    return 0


def _demo(folder: Path, ask: bool, flow: str, agents: str, what_is_real: str) -> int:
    click.echo(f"A sample repository in {folder}; {what_is_real}.\n")
    make_sample(folder, agents)
    here = build(folder)
    policy = Policy() if ask else Policy(answers=SCENES[flow].answers)
    run = here.start(Start(SCENES[flow].request, flow, policy=policy))
    code = go_on(here, run)
    click.echo(_what_to_try(folder, here.service.view(run).published, finished=code == 0))
    return code


def _found(agent: str, binary: str) -> str:
    found = shutil.which(binary or agent)
    if not found:
        raise UserError(
            f"there is no program '{binary or agent}'", hint=f"install {agent}, or say where it is: --bin PATH"
        )
    return str(Path(found).absolute())


def _real(agent: str, binary: str, url: str) -> str:
    return f"""# A real CLI. The model behind it was a server of `windlass demo`, gone when the demo ended.
[agents]
default = "{agent}"

[agents.{agent}]
bin = {json.dumps(binary)}
base_url = {json.dumps(url)}
api_key = "none needed\""""


def make_sample(folder: Path, agents: str = "") -> None:
    """A repository with one commit; its checks are its own tests."""
    for path, text in _sample_files().items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_filled(text, agents or scripted(SCENES["plan"])), encoding="utf-8")
    git.require_git()
    git.run(["init", "--quiet", "--initial-branch=main"], folder)
    git.run(["add", "--all"], folder)
    git.run([*AUTHOR, "commit", "--quiet", "--message", "A small URL shortener"], folder)


def _sample_files() -> dict[str, str]:
    listed = values(read((DATA / "sample.yaml").read_text(encoding="utf-8")))
    assert isinstance(listed, dict)
    return {path: str(text or "") for path, text in listed.items()}


def _filled(text: str, agents: str) -> str:
    check = _check()
    files = [*check, "--junitxml={junit}", "{files}"] if "pytest" in check else [*check, "{files}"]
    return text.replace("{check}", json.dumps(check)).replace("{proof}", json.dumps(files)).replace("{agents}", agents)


def _check() -> list[str]:
    """The sample's tests run with either; which one this machine has is decided once and committed."""
    if find_spec("pytest"):
        # Plugins of other packages are not the sample's, and cost a second of every start.
        alone = ["env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"]
        return [*alone, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return [sys.executable, "-m", "unittest", "-q"]


def _empty_folder(into: Path | None) -> Path:
    if into is None:
        return Path(tempfile.mkdtemp(prefix="windlass-demo-")).resolve()
    if into.exists() and any(into.iterdir()):
        raise UserError(f"'{into}' is not empty", hint="name a new folder, or leave --into out for a temporary one")
    into.mkdir(parents=True, exist_ok=True)
    return into.resolve()


def _what_to_try(folder: Path, branch: str, *, finished: bool) -> str:
    last = ("windlass land", "take the result into your checkout") if finished else ("windlass", "go on with the run")
    commands = [
        ("windlass status", "where the run stands"),
        ("windlass show", "tasks, reviews, findings, cost"),
        ("windlass log", "what happened, line by line"),
        ("windlass runs", "all runs of the repository"),
        last,
    ]
    return "\n".join(
        [
            "\nThe sample repository is yours to look around in. Its checkout was not touched.",
            f"  cd {shlex.quote(str(folder))}",
            *([f"  git diff main..{branch}"] if branch else []),
            *(f"  {command:<18}{about}" for command, about in commands),
        ]
    )


COMMANDS = {"demo": demo}
