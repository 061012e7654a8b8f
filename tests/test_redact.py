"""Secrets do not enter the record: no known value and nothing that has the form of a key."""

from __future__ import annotations

import json
import re
import stat
import string
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from front import Front, basics, builder, failing, passing
from windlass.agents.base import AgentResult, Done, Retrying, Said, SessionSeen, Spent, ToolFinished, ToolStarted
from windlass.agents.redacting import redacted_event, redacted_result
from windlass.events import encode
from windlass.model import ErrorClass
from windlass.redact import REDACTED, Redactor, is_secret, redactor, secrets_in

KEYS = [
    "sk-ant-api03-" + "aB3" * 12,
    "sk-proj-" + "x9Y" * 8,
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "11ABCDEFG0" * 3,
    "glpat-" + "aB3xYz12" * 3,
    "xoxb-" + "123456789012-abcdef",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + "SyA1b2C3d4" * 4,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.SflKxwRJSMeKKF2QT4",
    "Bearer abcdef0123456789abcdef",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----",
]
HARMLESS = [
    "task-runner-configuration-1234567890",
    "sk-learn-style-estimators-are-fine",
    "the Bearer authentication-middleware is new",
    "https://example.org/path:with/a@sign",
    "AKIAshort and ghp_short and hf_hub",
    "commit 5b3c1d2e4f5a6b7c8d9e0f1a2b3c4d5e6f708192 on windlass/add-rate-limiting",
    "KEY = os.environ['API_KEY']  # never print the token",
]
SECRET = st.text(string.ascii_letters + string.digits + "+/=_.$^*()[]\\|-", min_size=8, max_size=40).filter(is_secret)
TEXT = st.text(st.characters(codec="utf-8"), max_size=60)
TREE = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("around", ["{}", "key={}", 'token: "{}",', "a\n{}\nb"])
def test_what_has_the_form_of_a_key_goes(key: str, around: str) -> None:
    said = redactor().text(around.format(key))
    assert REDACTED in said
    assert key.removeprefix("Bearer ") not in said


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_a_little_like_one_stays(text: str) -> None:
    assert redactor().text(text) == text


def test_a_password_in_an_address_goes_and_its_host_stays() -> None:
    assert redactor().text("postgres://app:hunter2@db:5432/x") == f"postgres:{REDACTED}db:5432/x"


@given(st.lists(SECRET, min_size=1, max_size=5), st.lists(TEXT, min_size=6, max_size=6), st.randoms())
def test_no_known_value_is_left_wherever_it_stands(secrets: list[str], texts: list[str], random: Any) -> None:
    """One secret may overlap with what stands around it: of each that was there a part is gone."""
    pieces = [piece for text in texts for piece in (text, f" {random.choice(secrets)} ")]
    said = redactor(secrets).text("".join(pieces))
    assert REDACTED in said
    assert [secret for secret in secrets if secret in said.replace(REDACTED, "\x00")] == []


@given(st.lists(SECRET, max_size=3), TEXT)
def test_redacting_again_changes_nothing(secrets: list[str], text: str) -> None:
    once = redactor(secrets).text(text + "".join(secrets))
    # a value that is a part of the mark itself is the one thing that cannot be told from it
    if not any(secret in once for secret in secrets):
        assert redactor(secrets).text(once) == once


@given(TREE, SECRET)
def test_a_value_keeps_its_shape_and_stays_json(value: Any, secret: str) -> None:
    found = redactor([secret]).json([value, secret, {"x": f"({secret})"}])
    assert json.loads(json.dumps(found))[1:] == [REDACTED, {"x": f"({REDACTED})"}]
    assert redactor([secret]).json({"a": [1, None, True, 0.5]}) == {"a": [1, None, True, 0.5]}


@given(TEXT)
def test_a_text_without_secrets_is_not_touched(text: str) -> None:
    assert redactor(["0123456789abcdef"]).text(text) == text


@pytest.mark.parametrize("name", ["MY_API_KEY", "GITHUB_TOKEN", "db_password", "CLIENT_SECRET", "BASIC_AUTH", "GH_PAT"])
def test_a_variable_with_a_telling_name_holds_a_secret(name: str) -> None:
    assert secrets_in({name: "correct-horse"}) == ["correct-horse"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/usr/bin:/bin"),
        ("PWD", "/home/ada/project"),
        ("GIT_AUTHOR_NAME", "Ada Lovelace"),
        ("XKB_KEYBOARD", "us-international"),
        ("SSH_AUTH_SOCK", "/run/user/1000/keyring/ssh"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/home/ada/key.json"),
        ("TOKEN_URL", "https://auth.example.org/token"),
        ("DB_PASSWORD", "postgres"),
        ("API_KEY", "short"),
        ("API_KEY", ""),
    ],
)
def test_other_variables_do_not(name: str, value: str) -> None:
    assert secrets_in({name: value}) == []


def test_of_two_secrets_that_begin_alike_the_longer_one_goes_whole() -> None:
    assert redactor(["abcdefgh", "abcdefghijkl"]).text("abcdefghijkl") == REDACTED


@pytest.mark.parametrize(
    "text",
    [
        "sk-" * 300_000,
        "sk-" + "a" * 900_000,
        "eyJ" * 300_000,
        "Bearer " * 130_000,
        "//a" * 300_000,
        "-----BEGIN PRIVATE KEY-----" * 33_000,
        "ghp_" * 220_000,
    ],
)
def test_hostile_text_takes_no_longer_than_any_other(text: str) -> None:
    began = time.perf_counter()
    redactor([f"{n:020}" for n in range(20)]).text(text)
    assert time.perf_counter() - began < 3


# -- what an agent says


def test_every_text_of_an_event_and_of_a_result_is_redacted() -> None:
    secret, mine = "correct-horse", redactor(["correct-horse"])
    assert redacted_event(ToolStarted("bash", f"running echo {secret}", "1"), mine) == ToolStarted(
        "bash", f"running echo {REDACTED}", "1"
    )
    assert redacted_event(ToolFinished("bash", False, secret), mine) == ToolFinished("bash", False, REDACTED)
    assert redacted_event(Said(secret), mine) == Said(REDACTED)
    failed = ErrorClass.OVERLOADED
    assert redacted_event(Retrying(failed, f"no: {secret}"), mine) == Retrying(failed, f"no: {REDACTED}")
    done = redacted_event(Done(secret, {"a": [secret]}, None, secret), mine)
    assert done == Done(REDACTED, {"a": [REDACTED]}, None, REDACTED)
    result = redacted_result(AgentResult(secret, [secret], reason=secret, session=secret), mine)
    assert result == AgentResult(REDACTED, [REDACTED], reason=REDACTED, session=secret)


@pytest.mark.parametrize("event", [SessionSeen("abc"), Spent(AgentResult().usage)])
def test_what_holds_no_text_is_the_same_event(event: Any) -> None:
    assert redacted_event(event, Redactor(re.compile(".*"))) is event


# -- in a run

PRINTED = "ghp_" + "a1B2" * 9
HELD = "hunter2-and-more"


@pytest.fixture
def leaky(tmp_path: Path) -> Front:
    """An agent that prints what it found: in a tool, in its words, in a finding, in the plan, in a check."""
    front = Front(tmp_path, '[checks]\ncommands = [["sh", "-c", "echo $MY_TOKEN"]]\n[workspace]\nenv = ["MY_TOKEN"]\n')
    front.env["MY_TOKEN"] = HELD
    rules = basics(f"Rotate {PRINTED}")
    rules[2] = builder(say=f"The token is {HELD}, the other {PRINTED}.", events=1)
    review = failing("spec-reviewer", f"prints {HELD} to the log", severity="low")
    done = front.start([rules[0], rules[1], rules[2], {**review, "times": 1}, passing()], "--yes", "--yes", "approve")
    assert done.code == 0, done.out + done.err
    assert HELD not in done.out + done.err
    assert PRINTED not in done.out + done.err
    return front


def test_a_secret_that_an_agent_prints_stays_out_of_events_replies_reports_and_the_branch(leaky: Front) -> None:
    kept = "\n".join(encode(recorded.event) for recorded in leaky.records)
    kept += "\n".join(json.dumps(row.result) for row in leaky.service.store.steps(leaky.run))
    kept += leaky("show").out + leaky("log").out + leaky("status", "--json").out
    kept += "\n".join(leaky.show(path) for path in leaky.landed if path.endswith(".md"))
    assert REDACTED in kept
    assert (HELD in kept, PRINTED in kept) == (False, False)


def test_the_transcript_stays_as_it_was_for_its_owner_alone(leaky: Front) -> None:
    raw = [path for path in (leaky.folder / "attempts").rglob("*") if path.is_file()]
    assert any(HELD in path.read_text(errors="replace") for path in raw)
    told = [path for path in raw if path.name in ("stdin", "stdout", "stderr", "prompt.md", "events.jsonl")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in told} == {0o600}
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in told} == {0o700}
