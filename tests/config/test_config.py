from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.config.lines import json_lines, line_of, toml_lines
from windlass.config.load import load_config
from windlass.config.problems import ConfigError
from windlass.config.schema import Config, RoleSettings
from windlass.config.values import parse_command, parse_duration


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "repo" / ".windlass").mkdir(parents=True)
    return tmp_path / "repo"


@pytest.fixture
def user(tmp_path: Path) -> Path:
    (tmp_path / "user").mkdir()
    return tmp_path / "user"


def problems(repo: Path, *, toml: str = "", superteam: str = "", overrides: dict[str, Any] | None = None) -> list[str]:
    (repo / ".windlass/config.toml").write_text(toml)
    if superteam:
        (repo / ".superteam.json").write_text(superteam)
    with pytest.raises(ConfigError) as caught:
        load_config(repo, repo / "nobody", overrides or {})
    return [str(problem) for problem in caught.value.problems]


def test_without_any_file_the_defaults_are_in_force(repo: Path, user: Path) -> None:
    assert load_config(repo, user, {}) == Config()


@pytest.mark.req("S0-91")
def test_spending_is_bounded_by_default(repo: Path, user: Path) -> None:
    budget = load_config(repo, user, {}).budget
    assert (budget.warn_usd, budget.stop_usd, budget.dispatch_usd, budget.unknown_usd) == (5.0, 20.0, 5.0, 0.5)


@pytest.mark.req("S0-91")
def test_superteam_json_gives_the_budgets(repo: Path, user: Path) -> None:
    (repo / ".superteam.json").write_text('{"costs": {"warnAtUsd": 1, "hardLimitUsd": 2.5}, "other": {"x": 1}}')
    budget = load_config(repo, user, {}).budget
    assert (budget.warn_usd, budget.stop_usd) == (1.0, 2.5)


@pytest.mark.req("S1-96")
def test_superteam_json_overrides_model_and_thinking_of_a_role(repo: Path, user: Path) -> None:
    (repo / ".windlass/config.toml").write_text('[roles.scout]\nmodel = "small"\nagent = "codex"\neffort = "low"\n')
    (repo / ".superteam.json").write_text('{"agents": {"scout": {"model": "big", "thinking": "high"}}}')
    assert load_config(repo, user, {}).role("scout") == RoleSettings(agent="codex", model="big", effort="high")


def test_command_line_beats_superteam_beats_repository_beats_user(repo: Path, user: Path) -> None:
    (user / "config.toml").write_text("[budget]\nwarn_usd = 1\nstop_usd = 1\ndispatch_usd = 1\nunknown_usd = 1\n")
    (repo / ".windlass/config.toml").write_text("[budget]\nwarn_usd = 2\nstop_usd = 2\ndispatch_usd = 2\n")
    (repo / ".superteam.json").write_text('{"costs": {"warnAtUsd": 3, "hardLimitUsd": 3}}')
    budget = load_config(repo, user, {"budget": {"stop_usd": 4.0}}).budget
    assert (budget.stop_usd, budget.warn_usd, budget.dispatch_usd, budget.unknown_usd) == (4.0, 3.0, 2.0, 1.0)


def test_a_list_replaces_the_list_below_it(repo: Path, user: Path) -> None:
    (user / "config.toml").write_text('[checks]\ncommands = ["a", "b"]\ntimeout = "1m"\n')
    (repo / ".windlass/config.toml").write_text('[checks]\ncommands = ["c -d", ["e", "f g"]]\n')
    checks = load_config(repo, user, {}).checks
    assert (checks.commands, checks.timeout) == ((("c", "-d"), ("e", "f g")), 60.0)


def test_agents_have_options_of_their_own(repo: Path, user: Path) -> None:
    (repo / ".windlass/config.toml").write_text(
        '[agents]\ndefault = "mine"\n[agents.mine]\nargv = ["run me", "-x"]\nlimit = 3\nloud = true\n'
    )
    agents = load_config(repo, user, {}).agents
    assert agents.default == "mine"
    assert agents.configured_names() == ("mine",)
    assert agents.options("mine") == {"argv": ("run me", "-x"), "limit": "3", "loud": "true"}
    assert agents.options("other") == {}


def test_settings_of_flows_are_words(repo: Path, user: Path) -> None:
    (repo / ".windlass/config.toml").write_text('[settings]\nreview_mode = "iterative"\nbatch_size = 3\nquick = true\n')
    assert load_config(repo, user, {"settings": {"batch_size": "5"}}).settings == {
        "review_mode": "iterative",
        "batch_size": "5",
        "quick": "true",
    }


def test_config_is_frozen() -> None:
    with pytest.raises(AttributeError, match="immutable"):
        Config().flow = "other"  # type: ignore[misc]


REFUSED = {
    "unknown key": ("flwo = 'x'", ":1: flwo: unknown key 'flwo'; did you mean 'flow'?"),
    "unknown table": ("\n[budgte]\nx = 1", ":2: budgte: unknown key 'budgte'; did you mean 'budget'?"),
    "unknown key in a table": (
        "[budget]\n\nstop_us = 1",
        ":3: budget.stop_us: unknown key 'stop_us'; did you mean 'stop_usd'?",
    ),
    "unknown key of a role": (
        "[roles.scout]\nmodle = 'x'",
        ":2: roles.scout.modle: unknown key 'modle'; did you mean 'model'?",
    ),
    "unknown key of agents": (
        "[agents]\ndefalt = 'x'",
        ":2: agents.defalt: unknown key 'defalt'; did you mean 'default'?",
    ),
    "key with an alias": (
        "[workspace]\ncopi = ['.env']",
        ":2: workspace.copi: unknown key 'copi'; did you mean 'copy'?",
    ),
    "negative": ("[budget]\nstop_usd = -1.5", ":2: budget.stop_usd: must not be negative, it is -1.5"),
    "not a number": ("[budget]\nstop_usd = '5'", ":2: budget.stop_usd: must be a number"),
    "truth is no number": ("[budget]\nstop_usd = true", ":2: budget.stop_usd: must be a number"),
    "infinite": ("[budget]\nstop_usd = inf", ":2: budget.stop_usd: must be a finite number"),
    "not a table": ("budget = 5", ":1: budget: must be a table"),
    "not a list": ("[checks]\ncommands = 'pytest'", ":2: checks.commands: must be a list"),
    "no slot": ("[workspace]\nslots = 0", ":2: workspace.slots: must be at least 1"),
    "shell operator": (
        "[checks]\ncommands = [\n  'a && b',\n]",
        ":2: checks.commands.0: '&&' needs a shell, but Windlass uses none; write one entry for each command",
    ),
    "outside": (
        "[workspace]\ncopy = ['../.env']",
        ":2: workspace.copy.0: '../.env' must be a path inside the repository",
    ),
    "path of the wrong type": ("[workspace]\ncopy = [1]", ":2: workspace.copy.0: must be a text in quotes"),
    "taken name": (
        "[commands.checks]\ncommands = ['x']",
        ":1: commands.checks: 'checks' cannot name a command; 'checks' and 'acceptance' are taken",
    ),
    "TOML": ("a = 1\nb = \n", ":2: not valid TOML: Invalid value (at line 2, column 5)"),
    "TOML at its end": ("a = 1\nb = [\n", ":2: not valid TOML: Invalid value (at end of document)"),
    "byte order mark": ("\ufeffa = 1", ":1: starts with a byte order mark; save it as UTF-8 without one"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_setting_is_named_with_file_line_and_key(repo: Path, case: str) -> None:
    toml, message = REFUSED[case]
    assert problems(repo, toml=toml) == [f".windlass/config.toml{message}"]


REFUSED_JSON = {
    "comment": ('{\n  // limits\n  "costs": {}\n}', ":2: JSON has no comments; remove this one"),
    "byte order mark": ("\ufeff{}", ":1: starts with a byte order mark; save it as UTF-8 without one"),
    "not an object": ("[1]", ":1: must be one object: {...}"),
    "twice": ('{"costs": {}, "costs": {}}', ":1: the key 'costs' appears twice"),
    "no number": ('{"costs": {"warnAtUsd": NaN}}', ":1: 'NaN' is not a valid number in JSON"),
    "negative": ('{"costs": {\n"hardLimitUsd": -1}}', ":2: costs.hardLimitUsd: must not be negative, it is -1"),
    "near": (
        '{"costs": {\n"hardLimtUsd": 1}}',
        ":2: costs.hardLimtUsd: unknown key 'hardLimtUsd'; did you mean 'hardLimitUsd'?",
    ),
    "syntax": ('{"costs": }', ":1: not valid JSON: Expecting value (column 11)"),
}


@pytest.mark.parametrize("case", REFUSED_JSON)
def test_a_bad_superteam_file_is_refused_not_ignored(repo: Path, case: str) -> None:
    text, message = REFUSED_JSON[case]
    assert problems(repo, superteam=text) == [f".superteam.json{message}"]


def test_all_problems_of_all_places_come_at_once(repo: Path) -> None:
    found = problems(
        repo,
        toml="[budget]\nwarn_usd = -1\nstop_usd = 'x'\n",
        superteam='{"costs": {"warnAtUsd": -2}}',
        overrides={"flow": 3},
    )
    assert found == [
        ".windlass/config.toml:2: budget.warn_usd: must not be negative, it is -1",
        ".windlass/config.toml:3: budget.stop_usd: must be a number",
        ".superteam.json:1: costs.warnAtUsd: must not be negative, it is -2",
        "command line: flow: must be a text in quotes",
    ]


def test_text_that_is_not_utf8_is_refused_with_its_line(repo: Path) -> None:
    (repo / ".windlass/config.toml").write_bytes(b"# fine\nflow = '\xff'\n")
    with pytest.raises(ConfigError, match=r"config\.toml:2: is not UTF-8 text"):
        load_config(repo, repo / "nobody", {})


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from(["ms", "s", "m", "h"])), min_size=1, max_size=4))
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    factor = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}
    text = "".join(f"{number}{unit}" for number, unit in parts)
    assert parse_duration(text) == pytest.approx(sum(number * factor[unit] for number, unit in parts))


@given(st.text(alphabet="0123456789.smhd +-e", max_size=12) | st.integers() | st.none())
def test_whatever_is_not_a_duration_is_refused_with_words(text: object) -> None:
    try:
        assert 0 <= parse_duration(text) <= 366 * 86400
    except ValueError as error:
        assert "is not a duration" in str(error)


@pytest.mark.parametrize("text", ["", "30", "5 m", "-5m", "m", "1e3s", "1h 30m", "9" * 400 + "d"])
def test_a_duration_needs_a_number_and_a_unit(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "'", "a | b", "a; b", "a > b", "CI=1 pytest"])
def test_a_command_that_needs_a_shell_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"needs a shell|is not a command|cannot be split"):
        parse_command(text)


KEYS = st.text(alphabet="ab_-", min_size=1, max_size=4) | st.text(alphabet="a #.=[]{'\n\"é", min_size=1, max_size=4)
VALUES = st.sampled_from(
    ["1", "'#'", '"a\\"]"', '"""\nx = 1\n"""', "'''\n[y]\n'''", "[\n 1,\n # x = 2\n {a = 1},\n]", "{z = 1}"]
)


@given(st.dictionaries(KEYS, st.dictionaries(KEYS, VALUES, max_size=4), max_size=4))
def test_every_toml_key_is_found_on_its_line(tables: dict[str, dict[str, str]]) -> None:
    text, wanted = "# first\n", {}
    for name, table in tables.items():
        wanted[(name,)] = text.count("\n") + 1
        text += f"[{json.dumps(name)}] # [x]\n"
        for key, value in table.items():
            wanted[(name, key)] = text.count("\n") + 1
            text += f"{json.dumps(key)} = {value} # = 3\n\n"
    assert toml_lines(text) == wanted


def test_dotted_toml_keys_and_bare_ones_are_found() -> None:
    assert toml_lines("a.b = 1\n[t.u]\nc-d = 2\r\n[[list]]\nx=1") == {
        ("a",): 1,
        ("a", "b"): 1,
        ("t", "u"): 2,
        ("t", "u", "c-d"): 3,
        ("list",): 4,
        ("list", "x"): 5,
    }


def test_json_keys_are_found_on_their_lines_and_lists_have_one_line() -> None:
    lines = json_lines('{"a": {\n"b": ["x", {\n"c": 1}], "d": "y"\n},\n"e\\"": {}}')
    assert lines[("a",)] == 1
    assert lines[("a", "b")] == 2
    assert lines[("a", "d")] == 3
    assert lines[('e"',)] == 5
    assert line_of(lines, ("a", "b", "0")) == 2
    assert line_of(lines, ("nothing",)) == 1
