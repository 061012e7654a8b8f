"""Commands about the set-up: doctor, init, agents."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec import to_builtins
from msgspec.structs import replace

from windlass.errors import Exit, UserError, WindlassError, require_text
from windlass.interfaces.cli.common import app, echo_json, is_interactive, json_option, page
from windlass.runs.agents_info import AgentInfo, candidates
from windlass.runs.agents_info import agents as list_agents
from windlass.runs.doctor import DoctorFinding, Level, blind, examine, on_machine
from windlass.runs.init import ConfigProposal, propose, render, with_checks
from windlass.text import plural

CONFIG = Path(".windlass") / "config.toml"


@click.command(short_help="Check whether a run can start here.")
@click.option("--try", "trying", is_flag=True, help="Ask each agent in use for one word. This costs a little.")
@click.option("--repair", "repairing", is_flag=True, help="Repair or rebuild the engine's repository.")
@json_option
def doctor(trying: bool, repairing: bool, as_json: bool) -> int:
    """Check git, the repository, settings, agents, disk space and leftovers. Exit 1 if you must fix something.

    It also lists what Windlass cannot check.

    \b
      windlass doctor
      windlass doctor --json
      windlass doctor --try
      windlass doctor --repair
    """
    found = [*(_repair() if repairing else ()), *_examine(), *(_try_agents() if trying else ())]
    wrong = sum(finding.level is Level.FIX for finding in found)
    if as_json:
        echo_json({"ok": not wrong, "findings": [to_builtins(finding) for finding in found]})
    else:
        out = page()
        for finding in found:
            out.line(f"[{finding.level}] {finding.topic}: {finding.text}", hang=4)
            if finding.hint:
                out.line(f"hint: {finding.hint}", indent=4)
        out.line()
        out.line(f"{plural(wrong, 'problem')} to fix before a run can start" if wrong else "A run can start here.")
        click.echo(out.text(), nl=False)
    return Exit.USER if wrong else Exit.OK


@click.command(short_help="Write a first .windlass/config.toml.")
@click.option("--yes", is_flag=True, help="Accept the proposal without questions.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@json_option
def init(yes: bool, force: bool, as_json: bool) -> None:
    """Write a commented .windlass/config.toml, with checks proposed from the repository's files.

    \b
      windlass init
      windlass init --yes
    """
    project = app().project
    path = project.host.place.root / CONFIG
    if path.exists() and not force:
        raise UserError(f"'{path}' already exists", hint="edit it, or replace it: windlass init --force")
    proposal = propose(project.host.place.root, candidates(project))
    if is_interactive() and not yes and not as_json:
        proposal = _ask(proposal)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(proposal), encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write '{path}': {error.strerror}", hint="check the permissions of its folder"
        ) from None
    if as_json:
        facts = {"checks": list(proposal.checks), "agent": proposal.agent, "agents": list(proposal.agents)}
        return echo_json({"written": str(path), **facts})
    others = ", ".join(name for name in proposal.agents if name != proposal.agent)
    also = f" (also here: {others})" if others else ""
    click.echo(f"written: {path}")
    click.echo(f"checks: {'; '.join(proposal.checks) or 'none found; add some'}", err=True)
    click.echo(f"agent: {proposal.agent or 'none found; see windlass agents'}{also}", err=True)
    return click.echo("next: windlass check, windlass doctor, then commit the file", err=True)


@click.command(short_help="List agents and the roles that use them.")
@json_option
def agents(as_json: bool) -> None:
    """List the agents Windlass knows: which are installed or configured here, what they can do, which roles use them.

    \b
      windlass agents
      windlass agents --json
    """
    found = list_agents(app().project)
    if as_json:
        return echo_json([{**to_builtins(one), "usable": one.usable} for one in found])
    out = page()
    for one in found:
        out.line(f"{one.name}  {f'{one.path} {one.version}'.strip() if one.usable else 'not usable'}", hang=4)
        about = [one.problem] if one.problem else [one.warning, f"can: {_abilities(one)}"]
        for text in (*about, f"login: {one.login}" if one.login else ""):
            if text:
                out.line(text, indent=4, hang=0)
        out.line(f"roles: {', '.join(one.roles) or 'none'}", indent=4)
    return click.echo(out.text(), nl=False)


# -- helpers


def _examine() -> list[DoctorFinding]:
    try:
        project = app().project
    except UserError as error:
        return [*on_machine(), DoctorFinding(Level.FIX, "repository", error.message, error.hint), *blind()]
    return examine(project)


def _repair() -> list[DoctorFinding]:
    from windlass.runs.doctor import repair

    try:
        return list(repair(app().project))
    except WindlassError as error:
        return [DoctorFinding(Level.FIX, "repair", error.message, error.hint)]


def _try_agents() -> list[DoctorFinding]:
    from windlass.runs.doctor_try import try_agents

    try:
        return list(try_agents(app().project))
    except UserError as error:
        return [DoctorFinding(Level.FIX, "try", error.message, error.hint)]


def _ask(proposal: ConfigProposal) -> ConfigProposal:
    """At most two questions. The file shows every other setting as a comment."""
    if len(proposal.agents) > 1:
        choice = click.Choice(proposal.agents)
        proposal = replace(proposal, agent=click.prompt("Agent to use", type=choice, default=proposal.agent))
    proposed = "; ".join(proposal.checks) or "none"
    answer = str(click.prompt("Commands that must pass before code lands ('none' for none)", default=proposed))
    checks = tuple(
        part.strip() for part in require_text(answer, "what you typed").split(";") if part.strip() not in ("", "none")
    )
    return with_checks(proposal, checks)


def _abilities(one: AgentInfo) -> str:
    can = one.capabilities
    words = {
        "continue a session": can.resume,
        "structured answers": can.structured,
        "read-only mode": can.read_only,
        "effort": can.effort,
        "sandbox": can.sandbox,
        "best effort only": can.best_effort,
    }
    return ", ".join([*(word for word, has in words.items() if has), f"cost: {can.cost}"])


COMMANDS = {"doctor": doctor, "init": init, "agents": agents}
