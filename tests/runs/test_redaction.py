"""Secrets do not enter the record: no known value and nothing that has the form of a key."""

from __future__ import annotations

import json
import stat
import string
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from front import Front, basics, builder, failing, passing
from windlass import redaction as redact
from windlass.agents.base import AgentResult, Done, Retrying, Said, SessionSeen, Spent, ToolFinished, ToolStarted
from windlass.agents.output_redaction import TRANSCRIPT, redact_transcript, redacted_event, redacted_result
from windlass.events import encode
from windlass.model import ErrorClass
from windlass.redaction import REDACTED, is_secret, redactor, secrets_below, secrets_in

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
    "sk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "sk_test_" + "4eC39HqLyjWD",
    "rk_live_" + "4eC39HqLyjWDarjtT1zdp7dc",
    "whsec_" + "a1B2c3D4" * 4,
    "ghs_" + "a1B2" * 9,
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXkt\n-----END OPENSSH PRIVATE KEY-----",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOYBF\n-----END PGP PRIVATE KEY BLOCK-----",
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
    "sk_live_mode and rk_test_x and whsec_name",
    "Authorization: Basic auth is not used",
    'headers = {"X-Api-Key": settings.api_key}',
    "aws_secret_access_key = os.environ.get('AWS_SECRET')",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
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


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Authorization: Basic YWxhZGRpbjpvcGVu", f"Authorization: Basic {REDACTED}"),
        ('"x-api-key": "0123abcd4567efgh89"', f'"x-api-key": "{REDACTED}"'),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", f"aws_secret_access_key = {REDACTED}"),
        ('"SecretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"', f'"SecretAccessKey": "{REDACTED}"'),
    ],
)
def test_a_value_that_its_name_gives_away_goes_and_the_name_stays(text: str, left: str) -> None:
    assert redactor().text(text) == left


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
    began = time.process_time()
    redactor([f"{n:020}" for n in range(20)]).text(text)
    # Of the processor, so a busy machine changes nothing. Backtracking would take minutes.
    assert time.process_time() - began < 20


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
    assert redacted_event(event, redactor(["correct-horse"])) is event


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
    kept += "\n".join(json.dumps(row.result) for row in leaky.service.store.steps.all(leaky.run))
    kept += leaky("show").out + leaky("log").out + leaky("status", "--json").out
    kept += "\n".join(leaky.show(path) for path in leaky.landed if path.endswith(".md"))
    assert REDACTED in kept
    assert (HELD in kept, PRINTED in kept) == (False, False)


def test_the_transcript_of_an_ended_attempt_holds_no_secret_and_is_for_its_owner_alone(leaky: Front) -> None:
    raw = [path for path in (leaky.folder / "attempts").rglob("*") if path.name in TRANSCRIPT]
    told = "\n".join(path.read_text(errors="replace") for path in raw)
    assert REDACTED in told
    assert (HELD in told, PRINTED in told) == (False, False)
    assert {stat.S_IMODE(path.stat().st_mode) for path in raw} == {0o600}
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in raw} == {0o700}


def test_a_large_transcript_is_redacted_block_by_block_and_one_without_secrets_is_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.agents.output_redaction.BLOCK", 100)
    lines = [f"line {n} of a long text" + (f" with {PRINTED}" if n % 7 == 0 else "") for n in range(200)]
    (tmp_path / "stdout").write_bytes("\n".join(lines).encode() + b"\xff\xfe no newline at the end")
    (tmp_path / "stderr").write_text("nothing\n" * 100)
    before = (tmp_path / "stderr").stat().st_mtime_ns
    redact_transcript(tmp_path, redactor())
    expected = "\n".join(lines).replace(PRINTED, REDACTED).encode() + b"\xff\xfe no newline at the end"
    assert (tmp_path / "stdout").read_bytes() == expected
    assert (tmp_path / "stderr").stat().st_mtime_ns == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stderr", "stdout"]


# -- files of settings

ENV = """\
# comment: not-a-setting-at-all
APP_NAME=my-app
DEBUG=true
PORT=8080
HOST=db.internal.example.org
MODE=development
DATABASE_URL=postgres://app:s3cr3t-pass-word@db:5432/app
DB_PASS='hunter2 and more'
export INTERNAL_CODE="blue-42-zebra-lemon"
QUOTED="with \\"quote and ümlaut"
PLACEHOLDER=replace-me-please-1
SENTRY_DSN=https://abc123def456@o1.ingest.example.org/7
"""
ENV_SECRETS = ["s3cr3t-pass-word", "hunter2 and more", "blue-42-zebra-lemon"]
ENV_HARMLESS = ["development", "db.internal.example.org", "8080", "true", "replace-me-please-1", "not-a-setting-at-all"]


def test_the_values_of_env_files_are_secrets_and_plain_words_in_them_are_not(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(ENV)
    (tmp_path / ".env.example").write_text("PLACEHOLDER=replace-me-please-1\n")
    mine = redactor(secrets_below(tmp_path))
    for secret in ENV_SECRETS:
        assert mine.text(f"it is {secret}!") == f"it is {REDACTED}!"
    for word in ENV_HARMLESS:
        assert mine.text(word) == word


def test_a_value_is_found_in_json_and_in_an_address_too() -> None:
    value = 'a"quote\\and ümlaut/1'
    mine = redactor([value])
    for text in (json.dumps({"x": value}), json.dumps({"x": value}, ensure_ascii=False)):
        assert json.loads(mine.text(text)) == {"x": REDACTED}
    assert mine.text("https://example.org/?q=a%22quote%5Cand%20%C3%BCmlaut%2F1") == f"https://example.org/?q={REDACTED}"


def test_other_copied_files_give_the_values_whose_name_tells(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "local.yaml").write_text("title: A fine title 1\napi_token: tok-12345678\n")
    (tmp_path / "secrets.json").write_text('{\n  "client_secret": "jKl-9876543210",\n  "name": "value-12345"\n}\n')
    (tmp_path / ".npmrc").write_text("//registry.example.org/:_authToken=npmish-00112233\n")
    found = secrets_below(tmp_path, ("config/*.yaml", "*.json", ".npmrc"))
    assert sorted(found) == ["jKl-9876543210", "npmish-00112233", "tok-12345678"]


def test_a_link_or_a_folder_named_like_a_file_of_settings_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("A_TOKEN=tok-12345678\n")
    (tmp_path / ".env").symlink_to(tmp_path / "elsewhere")
    (tmp_path / ".env.d").mkdir()
    assert secrets_below(tmp_path) == []


@pytest.mark.long
def test_the_values_of_a_copied_env_file_stay_out_of_the_whole_record(tmp_path: Path) -> None:
    config = '[checks]\ncommands = [["cat", ".env"]]\n[workspace]\ncopy = [".env"]\n'
    front = Front(tmp_path, config, {".gitignore": ".env\n"})
    (front.root / ".env").write_text("INTERNAL_CODE=blue-42-zebra-lemon\n")
    rules = basics("Read the settings")
    rules[2] = builder(say="I saw blue-42-zebra-lemon in a file.", run=["cat .env"], events=1)
    done = front.start([*rules, passing()], "--yes", "--yes", "approve")
    assert done.code == 0, done.out + done.err
    kept = done.out + done.err + front("show").out + front("log").out
    kept += "\n".join(encode(recorded.event) for recorded in front.records)
    # the script itself, which the agent is given, names the value
    files = [path for path in front.folder.rglob("*") if path.is_file() and path.name != "scripted.json"]
    kept += "\n".join(path.read_text(errors="replace") for path in files)
    assert REDACTED in kept
    assert "blue-42-zebra-lemon" not in kept


# -- what is no secret

CODE = sorted(Path(redact.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.name)
def test_ordinary_code_is_not_touched(path: Path) -> None:
    text = path.read_text()
    assert redactor().text(text) == text


@given(st.text("0123456789abcdef", min_size=7, max_size=64), st.sampled_from(["commit {}", "sha256:{}", "/objects/{}"]))
def test_a_hash_is_not_touched(sha: str, around: str) -> None:
    text = around.format(sha)
    assert redactor().text(text) == text


@given(st.lists(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), min_size=1, max_size=8), st.sampled_from("_-./ "))
def test_identifiers_and_paths_are_not_touched(words: list[str], joint: str) -> None:
    text = joint.join(words)
    assert redactor().text(text) == text
