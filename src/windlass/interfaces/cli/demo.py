"""windlass demo: a whole run on a sample repository, with scripted agents."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from pathlib import Path

import click

from windlass.answers import AnswerPolicy
from windlass.errors import UserError
from windlass.interfaces.cli.common import session
from windlass.interfaces.cli.drive import continue_run
from windlass.runs.demo import REAL, SCENES, make_sample, real_agent, scripted, scripted_model
from windlass.runs.start import Start


@click.command(short_help="Watch a whole run on a sample repository.")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Create the sample repository there.",
)
@click.option("--flow", type=click.Choice(list(SCENES)), default="plan", help="The flow to show.")
@click.option("--no-run", "only_sample", is_flag=True, help="Create the sample repository, but start no run.")
@click.option("--ask", is_flag=True, help="Answer the questions yourself.")
@click.option(
    "--agent", type=click.Choice(["scripted", *REAL]), default="scripted", help="The agent CLI for every role."
)
@click.option(
    "--bin", "binary", default="", metavar="PATH", help="The path of that CLI; by default it is looked up on PATH."
)
def demo(into: Path | None, flow: str, only_sample: bool, ask: bool, agent: str, binary: str) -> int:
    """Create a sample repository and drive a run on it, from request to landed code.

    The agents are scripted, so the demo needs no network, no API key and no money. Everything else is real: the
    repository, the slots, the tests, the reviews that send work back, the landings. With --agent the agent is a real
    CLI too; only its model is scripted, by a server on this machine.

    \b
      windlass demo
      windlass demo --into ~/sample --ask
      windlass demo --flow brainstorm --ask
      windlass demo --flow staged
      windlass demo --agent claude
    """
    scene = SCENES[flow]
    if only_sample:
        folder = _empty_folder(into)
        make_sample(folder, scene=scene)
        click.echo(f"A sample repository in {folder}. Its agents are scripted for this request:\n")
        click.echo(f"  cd {shlex.quote(str(folder))}\n  windlass run --flow {flow} {shlex.quote(scene.request)}")
        return 0
    if agent == "scripted":
        note = "the agents' words are scripted, everything else is real"
        return _demo(_empty_folder(into), ask, flow, scripted(scene), note)
    found = shutil.which(binary or agent)
    if not found:
        raise UserError(
            f"there is no program '{binary or agent}'", hint=f"install {agent}, or give its path: --bin PATH"
        )
    with scripted_model(scene) as model:
        settings = real_agent(agent, str(Path(found).absolute()), model.url_for("{job}"))
        note = f"'{agent}' is real, the model it talks to is scripted"
        return _demo(_empty_folder(into), ask, flow, settings, note)


def _demo(folder: Path, ask: bool, flow: str, agents: str, what_is_real: str) -> int:
    click.echo(f"A sample repository in {folder}; {what_is_real}.\n")
    scene = SCENES[flow]
    make_sample(folder, agents, scene)
    here = session().apps.in_folder(folder)
    policy = AnswerPolicy() if ask else AnswerPolicy(answers=scene.answers)
    run = here.start(Start(scene.request, flow, policy=policy))
    code = continue_run(here, run)
    branch = here.service.view(run).published
    last = ("windlass land", "merge the result into your branch") if code == 0 else ("windlass", "continue the run")
    commands = [
        ("windlass status", "the run's progress"),
        ("windlass show", "tasks, reviews, findings, cost"),
        ("windlass log", "what happened, line by line"),
        ("windlass runs", "all runs of the repository"),
        last,
    ]
    lines = [
        "\nThe sample repository is yours to look around in. Its checkout was not touched.",
        f"  cd {shlex.quote(str(folder))}",
        *([f"  git diff main..{branch}"] if branch else []),
        *(f"  {command:<18}{about}" for command, about in commands),
    ]
    click.echo("\n".join(lines))
    return code


def _empty_folder(into: Path | None) -> Path:
    if into is None:
        return Path(tempfile.mkdtemp(prefix="windlass-demo-")).resolve()
    if into.exists() and any(into.iterdir()):
        raise UserError(f"'{into}' is not empty", hint="name a new folder, or leave --into out for a temporary one")
    into.mkdir(parents=True, exist_ok=True)
    return into.resolve()


COMMANDS = {"demo": demo}
