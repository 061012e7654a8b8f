"""All settings, with their defaults. `load` reads the files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Struct, field

from windlass.config.values import (
    Addresses,
    AtLeastOne,
    CommandName,
    Commands,
    Count,
    Duration,
    Durations,
    FilesCommand,
    FlowSettings,
    Globs,
    Money,
    Options,
    Paths,
    Variables,
)
from windlass.conversion import Rest


class SettingsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of every table: frozen, and without unknown keys."""


class BudgetSettings(SettingsTable, frozen=True, kw_only=True):
    warn_usd: Money = 5.0
    """Windlass warns once when the cost of a run passes it."""
    stop_usd: Money = 20.0
    """No dispatch starts if its cost could pass it."""
    dispatch_usd: Money = 5.0
    """Reserved for a dispatch until the run has known costs. It is an estimate: a dispatch may cost more while the run
    has money left."""
    unknown_usd: Money = 0.5
    """Assumed for a dispatch without a reported cost, and replaced when the cost becomes known. A dispatch without an
    answer from its model costs nothing."""
    dispatch_tokens: Count = 5_000_000
    """The most tokens of one dispatch of a model without a known price; 0: no limit."""
    run_tokens: Count = 20_000_000
    """The most tokens of all such dispatches of a run; 0: no limit."""


class AgentSettings(SettingsTable, frozen=True, kw_only=True):
    """`default`, and one table of options per agent: `[agents.claude]`."""

    default: str = ""
    """The agent of roles that name none; empty: the first installed one of claude, codex, pi, gemini, opencode."""
    tables: Annotated[dict[str, Options], Rest()] = {}
    """A table of options for the agent of that name: `argv`, `script`, and options of the agent."""

    def options(self, name: str) -> Mapping[str, str | tuple[str, ...]]:
        """The options for the adapter: texts, and lists such as argv."""
        return dict(self.tables.get(name, {}))

    def configured_names(self) -> tuple[str, ...]:
        return tuple(self.tables)

    def keys(self, environ: Mapping[str, str]) -> list[str]:
        """The secrets that these tables contain or point to."""
        tables = self.tables.values()
        named = [str(table.get("api_key_env", "")) for table in tables]
        return [str(table.get("api_key", "")) for table in tables] + [environ.get(name, "") for name in named]


class RoleSettings(SettingsTable, frozen=True, kw_only=True):
    """Replaces values of the role file. Empty or None keeps the value of the file."""

    agent: str = ""
    """The agent that plays the role; `none` switches an optional role off."""
    model: str = ""
    """Passed to the agent unchanged."""
    effort: str = ""
    """How much the model thinks, in the words of the agent."""
    wall: Duration | None = None
    """Seconds."""
    turns: AtLeastOne | None = None
    """The most turns of one dispatch."""
    usd: Money | None = None
    """The most dollars for one dispatch of this role; None: the rest of the run's budget."""
    instructions: Paths | None = None
    """Instruction files of the repository for this role. They replace those of the role file."""


class CommandSet(SettingsTable, frozen=True, kw_only=True):
    commands: Commands = ()
    """Argument lists, run in order until one fails, without a shell."""
    timeout: Duration = 600.0
    """Seconds that each command may take."""


class WorkspaceSettings(SettingsTable, frozen=True, kw_only=True):
    setup: Commands = ()
    """Run in each slot before its first use, and again when a lock file changes."""
    setup_timeout: Duration = 900.0
    """Seconds that each set-up command may take."""
    copied: Globs = field(default=(), name="copy")
    """Untracked files of the checkout that a slot needs, as `.env`."""
    env: Variables = ()
    """More environment variables for agents, set-up and checks, besides the usual ones."""
    lock_files: Globs = (
        "Cargo.lock",
        "Gemfile.lock",
        "bun.lock",
        "composer.lock",
        "go.sum",
        "package-lock.json",
        "pnpm-lock.yaml",
        "poetry.lock",
        "requirements.lock",
        "requirements.txt",
        "uv.lock",
        "yarn.lock",
    )
    instructions: Paths = ()
    """Instruction files of the repository for all agents, as `AGENTS.md`."""
    slots: AtLeastOne | None = None
    """The number of tasks that run at the same time; None: the flow decides."""


class TestSettings(SettingsTable, frozen=True, kw_only=True):
    globs: Globs = ()
    """Which files are tests; empty: the usual names of the common languages."""
    run_files: FilesCommand | None = None
    """The command that runs some test files: an argv with {files} for the files, or {folders} for their folders, and
    {junit} for the path of its report. The report of `go test -json` is its output. Without the command, there is no
    TDD proof. Without a report, the proof uses only exit codes."""
    timeout: Duration = 600.0
    """Seconds that one run of the command may take."""
    modules: Globs = ()
    """Which of the test files have tests; the others are helpers. Empty: the usual names of the common languages."""
    harness: Globs = ()
    """More files that decide how tests run, besides the usual ones. A task may change them only if the plan names
    them."""
    absent: Literal["accept", "ask", "refuse"] = "accept"
    """The verdict on a new test that was red only because it could not load the missing code."""
    weak: Literal["accept", "ask", "refuse"] = "ask"
    """The verdict when it is not clear whether the new tests depend on the change."""


class RetrySettings(SettingsTable, frozen=True, kw_only=True):
    """How often Windlass repeats a failed attempt before the failure is the result."""

    crashed: Count = 1
    """The agent ended without a result."""
    timed_out: Count = 1
    """The agent took longer than its wall time."""
    refused: Count = 0
    """The agent refused the task."""
    context_overflow: Count = 0
    """The task did not fit into the agent's context."""
    pauses: Durations = (5.0, 10.0, 20.0, 30.0, 30.0, 30.0, 60.0, 120.0, 300.0, 600.0)
    """Seconds before each repetition, if an agent's service is busy and names no time. The last one repeats."""
    longest_wait: Duration = 21_600.0
    """Seconds that a run waits for a service. Then it stops with the reason, and `windlass resume` continues it."""


class LimitSettings(SettingsTable, frozen=True, kw_only=True):
    output_mb: AtLeastOne = 64
    """The most megabytes that an agent, a check or a set-up command may write to its standard output, and to its
    standard error. Windlass ends a process that writes more, and cuts the file."""
    frozen: Duration = 300.0
    """Seconds that a dispatch may show no sign of life: no event, no processor time, no changed file. Then Windlass
    ends it and continues as after a timeout."""


class NotifySettings(SettingsTable, frozen=True, kw_only=True):
    urls: Addresses = ()
    """The addresses for messages when a run waits, fails or ends, in the form of apprise: `ntfy://ntfy.sh/topic`. They
    contain secrets: keep them in your own config.toml, not in the repository's."""


class Config(SettingsTable, frozen=True, kw_only=True):
    flow: str = "plan"
    """The flow of `windlass run` without --flow."""
    budget: BudgetSettings = BudgetSettings()
    agents: AgentSettings = AgentSettings()
    roles: dict[str, RoleSettings] = {}
    settings: FlowSettings = {}
    """Settings of flows. Windlass does not ask for these. A table counts as names with dots: `stages.TEST.enabled`."""
    checks: CommandSet = CommandSet()
    commands: dict[CommandName, CommandSet] = {}
    workspace: WorkspaceSettings = WorkspaceSettings()
    tests: TestSettings = TestSettings()
    retries: RetrySettings = RetrySettings()
    limits: LimitSettings = LimitSettings()
    notify: NotifySettings = NotifySettings()

    def role(self, name: str) -> RoleSettings:
        return self.roles.get(name, RoleSettings())


class SuperteamCosts(SettingsTable, frozen=True, kw_only=True):
    warnAtUsd: Money | None = None  # noqa: N815  the file's own spelling
    hardLimitUsd: Money | None = None  # noqa: N815


class SuperteamAgent(SettingsTable, frozen=True, kw_only=True):
    model: str = ""
    thinking: str = ""


class Superteam(SettingsTable, frozen=True, kw_only=True, forbid_unknown_fields=False):
    costs: SuperteamCosts = SuperteamCosts()
    agents: dict[str, SuperteamAgent] = {}
