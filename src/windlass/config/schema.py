"""Every setting there is, with its default. Reading files is not done here."""

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
    Globs,
    Money,
    Options,
    Paths,
    Variables,
    Word,
)
from windlass.conversion import Rest


class SettingsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every table: frozen, unknown keys refused."""


class BudgetSettings(SettingsTable, frozen=True, kw_only=True):
    warn_usd: Money = 5.0
    """Passing it is said once."""
    stop_usd: Money = 20.0
    """No dispatch starts that could lead beyond it."""
    dispatch_usd: Money = 5.0
    """Reserved for a dispatch while nothing is known of what the run's dispatches cost. It is an estimate: a dispatch
    may cost more while the run has money left."""
    unknown_usd: Money = 0.5
    """Assumed for a dispatch whose agent reports no cost, and given back when its cost becomes known. One that got no
    answer from its model costs nothing."""
    dispatch_tokens: Count = 5_000_000
    """The most tokens of one dispatch whose model has no known price; 0: no limit."""
    run_tokens: Count = 20_000_000
    """The most tokens of all such dispatches of a run; 0: no limit."""


class AgentSettings(SettingsTable, frozen=True, kw_only=True):
    """`default`, and one table of options per agent: `[agents.claude]`."""

    default: str = ""
    """The agent of roles that name none; empty: the first of claude, codex, pi, gemini, opencode that is installed."""
    tables: Annotated[dict[str, Options], Rest()] = {}
    """A table of options for the agent of that name: `argv`, `script`, and its own."""

    def options(self, name: str) -> Mapping[str, str | tuple[str, ...]]:
        """What the adapter is made with: texts, and lists such as argv."""
        return dict(self.tables.get(name, {}))

    def configured(self) -> tuple[str, ...]:
        return tuple(self.tables)

    def keys(self, environ: Mapping[str, str]) -> list[str]:
        """The secrets that these tables hold or point to."""
        tables = self.tables.values()
        named = [str(table.get("api_key_env", "")) for table in tables]
        return [str(table.get("api_key", "")) for table in tables] + [environ.get(name, "") for name in named]


class RoleSettings(SettingsTable, frozen=True, kw_only=True):
    """What replaces the role file's own values; empty or None leaves them."""

    agent: str = ""
    """The agent that plays the role; `none` switches an optional role off."""
    model: str = ""
    """Passed to the agent as it is."""
    effort: str = ""
    """How hard the model shall think, in the agent's own words."""
    wall: Duration | None = None
    """Seconds."""
    turns: AtLeastOne | None = None
    """The most turns of one dispatch."""
    usd: Money | None = None
    """The most dollars that one dispatch of this role may cost; None: what is left of the run."""
    instructions: Paths | None = None
    """Files of the repository that it is told to follow, in place of those its file names."""


class CommandSet(SettingsTable, frozen=True, kw_only=True):
    commands: Commands = ()
    """Argument lists, run in order up to the first that fails; there is no shell."""
    timeout: Duration = 600.0
    """Seconds that each command may take."""


class WorkspaceSettings(SettingsTable, frozen=True, kw_only=True):
    setup: Commands = ()
    """Run in each slot before its first use, and again when a lock file changed."""
    setup_timeout: Duration = 900.0
    """Seconds that each set-up command may take."""
    copied: Globs = field(default=(), name="copy")
    """Files of the checkout that git does not hold and a slot needs, as `.env`."""
    env: Variables = ()
    """Variables that agents, set-up and checks may see besides the usual ones."""
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
    """Files of the repository that every agent is told to follow, as `AGENTS.md`."""
    slots: AtLeastOne | None = None
    """Tasks at work at the same time; None: what the flow says."""


class TestSettings(SettingsTable, frozen=True, kw_only=True):
    globs: Globs = ()
    """Which files are tests; empty: the usual names of the common languages."""
    run_files: FilesCommand | None = None
    """Runs some test files: an argv with {files} for them, or {folders} for their folders, and {junit} for the report
    it writes. The report of `go test -json` is its output. Without the command
    the order of test and code is not proved, without a report by exit codes alone."""
    timeout: Duration = 600.0
    """Seconds that one run of it may take."""
    modules: Globs = ()
    """Which of the test files hold tests, the others help them; empty: the usual names of the common languages."""
    harness: Globs = ()
    """Files besides the usual ones that decide how tests are run: only a plan that names them may change them."""
    absent: Literal["accept", "ask", "refuse"] = "accept"
    """What a test is worth that was red only because what it loads was not there."""
    weak: Literal["accept", "ask", "refuse"] = "ask"
    """What a proof is worth when it cannot be shown that the new tests ask something of the code."""


class RetrySettings(SettingsTable, frozen=True, kw_only=True):
    """How often a failed try is repeated before its failure is the result."""

    crashed: Count = 1
    """The agent ended without a result."""
    timed_out: Count = 1
    """It took longer than its wall time."""
    refused: Count = 0
    """It declined to do it."""
    context_overflow: Count = 0
    """The task did not fit its context."""
    pauses: Durations = (5.0, 10.0, 20.0, 30.0, 30.0, 30.0, 60.0, 120.0, 300.0, 600.0)
    """Seconds before each repetition when an agent's service is busy and names no time; the last one repeats."""
    longest_wait: Duration = 21_600.0
    """So long a run waits for a service that cannot be used before it rests with the reason; `windlass resume` goes
    on."""


class LimitSettings(SettingsTable, frozen=True, kw_only=True):
    output_mb: AtLeastOne = 64
    """The most that an agent, a check or a set-up command may write to its standard output, and to its standard error.
    Whoever writes more is ended, and the file is cut there."""
    frozen: Duration = 300.0
    """So long a dispatch may show no sign of life: no event, no processor time, no file touched. Then it is ended, and
    goes on as after a timeout."""


class NotifySettings(SettingsTable, frozen=True, kw_only=True):
    urls: Addresses = ()
    """Where messages go when a run waits, fails or ends, as apprise writes them: `ntfy://ntfy.sh/topic`. They hold
    secrets: keep them in your own config.toml, not in the repository's."""


class Config(SettingsTable, frozen=True, kw_only=True):
    flow: str = "plan"
    """The flow of `windlass run` without --flow."""
    budget: BudgetSettings = BudgetSettings()
    agents: AgentSettings = AgentSettings()
    roles: dict[str, RoleSettings] = {}
    settings: dict[str, Word] = {}
    """Settings of flows, given up front: these are not asked."""
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
