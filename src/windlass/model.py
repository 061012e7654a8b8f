"""The values that all other modules share. Frozen, without side effects."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from windlass.errors import UserError

Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
PART = re.compile(rf"(?P<id>{ID.pattern})(?:\+(?P<visit>[1-9][0-9]*))?(?:#(?P<cycle>[1-9][0-9]*))?")


def is_id(text: str) -> bool:
    """Whether the text is valid in keys, refs and file names. git forbids '..', a final '.' and '.lock'."""
    return bool(ID.fullmatch(text)) and ".." not in text and not text.endswith((".", ".lock"))


def is_inner_path(text: str) -> bool:
    """Whether the text names a file inside the repository and outside `.git`. Does not read the disk."""
    parts = text.lower().split("/")
    odd = text.startswith("~") or "\\" in text or ":" in text or not text.isprintable()
    return bool(text.strip()) and not odd and not {"", ".", "..", ".git"} & set(parts)


class KeyPart(Struct, frozen=True):
    id: str
    visit: int = 1
    """How often the machine has entered this phase or task. 1 is not written."""
    cycle: int | None = None
    """The round of a bounded loop inside a kind. Written only in loops."""

    def __str__(self) -> str:
        visit = f"+{self.visit}" if self.visit > 1 else ""
        cycle = f"#{self.cycle}" if self.cycle is not None else ""
        return f"{self.id}{visit}{cycle}"


class Key(Struct, frozen=True, dict=True):
    """The name of a step. It reads like a path, and is valid in refs and file names."""

    parts: tuple[KeyPart, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Key:
        return cls(tuple(_parse_part(piece, text) for piece in text.split("/")))

    def child(self, id: str, *, visit: int = 1, cycle: int | None = None) -> Key:
        if not is_id(id):
            raise UserError(f"'{id}' is not a valid id", hint="letters, digits, '.', '_' and '-', at most 64")
        return Key((*self.parts, KeyPart(id, visit, cycle)))

    def contains(self, other: Key) -> bool:
        return other.parts[: len(self.parts)] == self.parts

    @cached_property
    def text(self) -> str:
        return "/".join(str(part) for part in self.parts)

    def __str__(self) -> str:
        return self.text


def _parse_part(piece: str, whole: str) -> KeyPart:
    match = PART.fullmatch(piece)
    if not match or not is_id(match["id"]) or match["visit"] == "1":
        raise UserError(f"'{whole}' is not a step key", hint="like execute/t3+2/spec#1")
    return KeyPart(match["id"], int(match["visit"] or 1), int(match["cycle"]) if match["cycle"] else None)


class RunState(StrEnum):
    RUNNING = "running"
    #: a question is open
    WAITING = "waiting"
    #: checkpoint, batch, `pause`, quota wait when detached
    PAUSED = "paused"
    #: a person must fix something; can be resumed
    STOPPED = "stopped"
    #: a required approval or decision is missing; can be resumed
    BLOCKED = "blocked"
    ABORTED = "aborted"
    FINISHED = "finished"

    @property
    def final(self) -> bool:
        return self in (RunState.ABORTED, RunState.FINISHED)


class Severity(IntEnum):
    LOW = 1
    MEDIUM = 2
    HIGH = 3
    CRITICAL = 4

    @classmethod
    def of(cls, word: str) -> Severity:
        return cls[word.upper()]

    @property
    def word(self) -> str:
        return self.name.lower()


class Verdict(StrEnum):
    """The six canonical verdicts. Each contract maps its own words to them."""

    PASS = "pass"
    PASS_WITH_NOTES = "pass_with_notes"
    FAIL = "fail"
    NEEDS_DECISION = "needs_decision"
    HARD_STOP = "hard_stop"
    INCONCLUSIVE = "inconclusive"


class ErrorClass(StrEnum):
    """Why an attempt has no good result. `engine/retry.py` decides by class what happens next."""

    #: tried again after a stored wait, without using up an attempt
    RATE_LIMITED = "rate_limited"
    OVERLOADED = "overloaded"
    KILLED = "killed"
    DRIVER_LOST = "driver_lost"
    #: the run stops; `resume` tries again
    AUTH = "auth"
    BILLING = "billing"
    MISSING_BINARY = "missing_binary"
    DISK_FULL = "disk_full"
    OVER_BUDGET = "over_budget"
    #: fails after 2 reminders
    BAD_OUTPUT = "bad_output"
    #: fails after the configured number of attempts
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    REFUSED = "refused"
    CONTEXT_OVERFLOW = "context_overflow"
    #: fails at once: another attempt would write as much again
    TOO_MUCH_OUTPUT = "too_much_output"


class Finding(Struct, frozen=True):
    message: str
    severity: Severity = Severity.MEDIUM
    file: str = ""
    line: int | None = None
    suggestion: str = ""
    role: str = ""
    tasks: tuple[str, ...] = ()
    """For a review of a plan: the tasks concerned, by number, title or id; `plan` for the whole plan."""

    @property
    def identity(self) -> str:
        """Role, file and normalised message. A finding keeps its identity if its line or severity changes."""
        words = re.sub(r"[^a-z0-9]+", " ", self.message.lower()).strip()
        return digest([self.role, self.file, words])[:16]

    def to_json(self) -> dict[str, Json]:
        about: dict[str, Json] = {"tasks": list(self.tasks)} if self.tasks else {}
        return {
            "message": self.message,
            "severity": self.severity.word,
            "file": self.file,
            "line": self.line,
            "suggestion": self.suggestion,
            "role": self.role,
            # Left out if empty: findings are compared with those of older versions, which lack this field.
            **about,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Finding:
        line = data.get("line")
        return cls(
            message=str(data["message"]),
            severity=Severity.of(str(data.get("severity") or "medium")),
            file=str(data.get("file") or ""),
            line=line if isinstance(line, int) else None,
            suggestion=str(data.get("suggestion") or ""),
            role=str(data.get("role") or ""),
            tasks=tuple(str(one) for one in about) if isinstance(about := data.get("tasks"), list) else (),
        )

    def by(self, role: str) -> Finding:
        return replace(self, role=role)


class Task(Struct, frozen=True):
    """One task of a plan. Its id is assigned once and never reused."""

    id: str
    title: str
    description: str = ""
    files: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    difficulty: str = "medium"
    tdd: str = ""
    """The plan's declaration: behaviour-change | test-only | preserve | exempt; '' if there is none."""
    visit: int = 1
    """2 or more: a later plan changed this landed task, and it runs again on the tip."""

    def to_json(self) -> dict[str, Json]:
        return {
            "id": self.id,
            "title": self.title,
            "description": self.description,
            "files": list(self.files),
            "depends_on": list(self.depends_on),
            "difficulty": self.difficulty,
            "visit": self.visit,
            # Left out if empty: recorded steps are compared by these fields.
            **({"tdd": self.tdd} if self.tdd else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> Task:
        return cls(
            id=str(data["id"]),
            title=str(data["title"]),
            description=str(data.get("description") or ""),
            files=_strings(data.get("files")),
            depends_on=_strings(data.get("depends_on")),
            difficulty=str(data.get("difficulty") or "medium"),
            tdd=str(data.get("tdd") or ""),
            visit=int(str(data.get("visit") or 1)),
        )


def _strings(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list | tuple) else ()


class Usage(Struct, frozen=True, eq=False):
    input: int = 0
    output: int = 0
    cached: int = 0
    cost_usd: float | None = None
    """None: the agent did not report it. Unknown is never 0."""
    priced: bool = False
    """The agent reported tokens, and Windlass computed the cost from a price list."""

    def __eq__(self, other: object) -> bool:
        """The same tokens and cost, no matter who computed the cost. A CLI may repeat its reports."""
        return isinstance(other, Usage) and self._amounts() == other._amounts()

    def __hash__(self) -> int:
        return hash(self._amounts())

    def _amounts(self) -> tuple[int, int, int, float | None]:
        return self.input, self.output, self.cached, self.cost_usd

    def to_json(self, assumed_usd: float | None = None) -> dict[str, Json]:
        """`assumed_usd`: the amount to count in addition, for unreported cost."""
        tokens: dict[str, Json] = {"input": self.input, "output": self.output, "cached": self.cached}
        return {**tokens, "cost_usd": self.cost_usd} | ({} if assumed_usd is None else {"assumed_usd": assumed_usd})


class RunFacts(Struct, frozen=True):
    """Facts that never change after a run starts. Every step may use them as inputs."""

    id: str
    request: str
    flow: str
    slug: str
    date: str
    """YYYY-MM-DD in UTC, the day the run started."""
    base: str
    branch: str
    started_at: float
    settings: Mapping[str, str] = field(default_factory=dict)
    """From the config or `--set`. No question asks for these."""


#: created once, because json.dumps with options builds an encoder for every call
canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
compact = json.JSONEncoder(separators=(",", ":")).encode


def digest(value: Json) -> str:
    """The hash for fingerprints. Equal values have equal digests, whatever the order of their keys."""
    return text_digest(canonical(value))


def text_digest(canonical_text: str) -> str:
    return hashlib.sha256(canonical_text.encode()).hexdigest()


def content_id(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def slugify(text: str) -> str:
    """ASCII lower case, hyphens, at most 40 characters, never empty."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    if len(words) > 40:
        words = words[:41].rsplit("-", 1)[0][:40].strip("-") or words[:40].strip("-")
    return words or "run"


class Choice(Struct, frozen=True):
    key: str
    label: str
    about: str = ""


class Question(Struct, frozen=True):
    """A question in its stored form. `text` and `detail` are rendered."""

    id: str
    text: str
    options: tuple[Choice, ...] = ()
    type: str = "choice"
    """choice | input | confirm | multi | editor"""
    default: str = ""
    detail: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)
    comment: str = ""
    """'' | optional | required | required-unless-KEY | editor"""
    yes: str = ""
    mandatory: bool = False
    back: tuple[str, ...] = ()
    """Keys of options that lead back. They are never chosen automatically."""
    check: str = ""
    """For input: '' | int."""
    task: str = ""
    title: str = ""
    """The heading of its dialog, such as `Question 2 of 5`."""
    objection: str = ""
    """Why `--yes` must not answer it: a review has an open finding. Not stored, because it can change."""


class Answer(Struct, frozen=True):
    value: str
    comment: str = ""
    by: str = ""


def question_json(question: Question) -> dict[str, Json]:
    return {
        "id": question.id,
        "text": question.text,
        "options": [{"key": o.key, "label": o.label, "about": o.about} for o in question.options],
        "type": question.type,
        "default": question.default,
        "detail": question.detail,
        "aliases": dict(question.aliases),
        "comment": question.comment,
        "yes": question.yes,
        "mandatory": question.mandatory,
        "back": list(question.back),
        "check": question.check,
        "task": question.task,
        "title": question.title,
    }


def question_of(data: Mapping[str, object]) -> Question:
    values = dict(data)
    options = values.pop("options")
    assert isinstance(options, list)
    values["options"] = tuple(Choice(**option) for option in options)
    values["back"] = _strings(values["back"])
    return Question(**values)  # type: ignore[arg-type]


class LandStyle(StrEnum):
    #: fast-forward if possible, else a merge commit; obeys the user's `merge.ff` as `git merge` does
    AUTO = "auto"
    NO_FF = "no-ff"
    SQUASH = "squash"


class LandResult(Struct, frozen=True):
    branch: str
    """The user's branch that now contains the work."""
    before: str
    after: str
    kind: str
    """already | fast-forward | merge | squash"""


class GcRemoved(Struct, frozen=True):
    what: str


class GcKept(Struct, frozen=True):
    what: str
    reason: str


Collected: TypeAlias = GcRemoved | GcKept
