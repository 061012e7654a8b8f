"""Keeps secrets out of records: replaces known values, and text in the form of a key, with `[redacted]`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from urllib.parse import quote, urlsplit

from msgspec import Struct

from windlass.model import Json

REDACTED = "[redacted]"
SHORTEST = 8
"""A shorter value is probably an ordinary word."""
_NAMES = re.compile(
    r"KEY(?!BOARD|MAP|RING)|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH(?!OR)|_PASS$|_PAT$", re.IGNORECASE
)
_PLACES = re.compile(
    r"(?:/|~/|\./|[A-Za-z]:\\)(?:home|Users|root|etc|var|run|tmp|opt|usr|mnt|private)\b|https?://[^@]*$"
)
#: common values that are no secrets; redacting them would make texts unreadable
_WORDS = frozenset(
    {"postgres", "password", "changeme", "disabled", "required", "optional", "anonymous", "development", "production"}
    | {"localhost", "undefined", "redacted", REDACTED}
)
#: one setting per line: `NAME=value`, `export NAME="value"`, `name: value`, `"name": "value",`
_SETTING = re.compile(r"""^\s*(?:export\s+|set\s+)?["']?([A-Za-z_/:.][\w./:-]{0,100})["']?\s*[=:]\s*(.+?)\s*,?\s*$""")
_QUOTED = re.compile(r"""(["'`])(.*)\1(?:\s+\#.*)?$""")
#: values in a file of settings that are no secrets, whatever their name
_PLAIN = re.compile(
    r"[a-z]+|[A-Z]+|[A-Z][a-z]+|[-+]?[0-9.,:_]{1,20}|[a-z0-9-]+(?:\.[a-z0-9-]+)+(?::[0-9]+)?|\$\{?\w+\}?"
)
_TEMPLATES = (".example", ".sample", ".template", ".dist", ".defaults", "-example", "-sample")
MOST_FILES, MOST_FILE_BYTES, MOST_VALUES = 50, 256 * 1024, 500
#: The beginning of each form, and a pattern from there. Searching for the beginning is fast, and most texts contain
#: none. What must not come before the beginning is checked after it. No pattern looks far ahead from many positions,
#: so that hostile text cannot take long. A group is the part that stays.
_FORMS = tuple(
    (begin, re.compile(re.escape(begin) + form))
    for begin, form in (
        ("sk-", r"(?<![A-Za-z0-9_-]sk-)(?=[A-Za-z_-]{0,80}[0-9])[A-Za-z0-9_-]{16,}"),  # OpenAI, Anthropic
        *((f"{kind}k_{use}_", r"[A-Za-z0-9]{10,}") for kind in "sr" for use in ("live", "test")),  # Stripe
        ("whsec_", r"[A-Za-z0-9+/=]{16,}"),  # Stripe, svix
        *((f"gh{kind}_", r"[A-Za-z0-9]{20,}") for kind in "pousr"),  # GitHub
        ("github_pat_", r"[A-Za-z0-9_]{20,}"),
        ("glpat-", r"[A-Za-z0-9_-]{16,}"),
        ("xox", r"[abeprs]-[A-Za-z0-9-]{10,}"),  # Slack
        ("AKIA", r"[A-Z0-9]{16}"),  # AWS
        ("ASIA", r"[A-Z0-9]{16}"),
        ("AIza", r"[A-Za-z0-9_-]{30,}"),  # Google
        ("npm_", r"[A-Za-z0-9]{30,}"),
        ("hf_", r"[A-Za-z0-9]{30,}"),
        # JSON Web Token
        ("eyJ", r"(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
        *((word, r"\s{1,9}(?=[A-Za-z._~+/=-]{0,80}[0-9])[A-Za-z0-9._~+/=-]{16,}") for word in ("Bearer", "bearer")),
        ("//", r"[^\s/:@]{1,100}:[^\s/@]{1,200}@"),  # a password in an address
        (
            "-----BEGIN ",
            r"[A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:(?!-----END)[\s\S])*(?:-----END [A-Z ]{0,50}-----)?",
        ),
    )
)
#: the same for values that only the name before them reveals; the name stays
_NAMED_FORMS = tuple(
    (begin, re.compile(f"({re.escape(begin)}{between}){value}"))
    for begins, between, value in (
        (
            ("uthorization", "UTHORIZATION"),
            r"[\"']?:\s{0,9}[\"']?(?:[Bb]asic|[Tt]oken|[Dd]igest)\s{1,9}",
            r"[A-Za-z0-9._~+/=-]{8,}",
        ),
        (
            ("api-key", "Api-Key", "API-KEY", "API-Key"),
            r"[\"']?:\s{0,9}[\"']?",
            r"(?=[A-Za-z._~+/=-]{0,80}[0-9])[A-Za-z0-9._~+/=-]{16,}",
        ),
        (
            ("secret_access_key", "SECRET_ACCESS_KEY", "ecretAccessKey"),  # AWS
            r"[\"']{0,2}\s{0,9}[=:]\s{0,9}[\"']?",
            r"[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])",
        ),
    )
    for begin in begins
)


class Redactor(Struct, frozen=True, dict=True):
    """Contract: the same input gives the same output; redacting a redacted text changes nothing."""

    _known: tuple[str, ...]
    """Longest first, because one may be the beginning of another."""

    @cached_property
    def _values(self) -> re.Pattern[str]:
        return re.compile("|".join(map(re.escape, self._known)))

    def text(self, text: str) -> str:
        if any(value in text for value in self._known):
            text = self._values.sub(REDACTED, text)
        for begin, form in _FORMS:
            if begin in text:
                text = form.sub(REDACTED, text)
        for begin, form in _NAMED_FORMS:
            if begin in text:
                text = form.sub(rf"\1{REDACTED}", text)
        return text

    def json(self, value: Json) -> Json:
        match value:
            case str():
                return self.text(value)
            case list():
                return [self.json(one) for one in value]
            case dict():
                return {self.text(name): self.json(one) for name, one in value.items()}
            case _:
                return value


def redactor(values: Iterable[str] = ()) -> Redactor:
    """`values`: the known secrets."""
    written = {form for value in values if is_secret(value) for form in _spellings(value.strip())}
    return Redactor(tuple(sorted(written, key=lambda value: (-len(value), value))))


def _spellings(value: str) -> Iterator[str]:
    """The forms of a value in a text: plain, in JSON, in a URL."""
    yield value
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield quote(value, safe="", errors="replace")


def secrets_in(environ: Mapping[str, str]) -> list[str]:
    """The values of variables with names that suggest a secret."""
    return [value for name, value in environ.items() if _NAMES.search(name) and is_secret(value)]


def secrets_below(root: Path, globs: Sequence[str] = ()) -> list[str]:
    """Values of the checkout's `.env` files, and of the files that match `globs` (workspace.copy).

    In a `.env` file, every value counts unless it is plainly harmless. In other files, only values with a name that
    suggests a secret count. A value that a committed template (`.env.example`) also shows is no secret.
    """
    patterns = dict.fromkeys([".env", ".env.*", *globs])
    found = (path for pattern in patterns for path in sorted(root.glob(pattern)))
    files = [path for path in islice(dict.fromkeys(found), MOST_FILES) if not path.is_symlink() and path.is_file()]
    shown = {value for path in files if _is_template(path) for _, value in _settings(path)}
    values = (
        value
        for path in files
        if not _is_template(path)
        for name, value in _settings(path)
        if value not in shown and (_NAMES.search(name) or (_is_env(path) and not _is_harmless(value)))
    )
    return list(islice(dict.fromkeys(part for value in values for part in _secret_parts(value)), MOST_VALUES))


def _is_template(path: Path) -> bool:
    return path.name.endswith(_TEMPLATES)


def _is_env(path: Path) -> bool:
    return path.name.startswith(".env") or path.suffix == ".env"


def _settings(path: Path) -> Iterator[tuple[str, str]]:
    try:
        if path.stat().st_size > MOST_FILE_BYTES:
            return
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        setting = _SETTING.match(line) if not line.lstrip().startswith("#") else None
        if setting:
            quoted = _QUOTED.match(setting[2])
            yield setting[1], quoted[2] if quoted else setting[2].split(" #", 1)[0].strip()


def _is_harmless(value: str) -> bool:
    """Whether the value is a word, a number, a host or a reference to another variable."""
    return _PLAIN.fullmatch(value) is not None


def _secret_parts(value: str) -> Iterator[str]:
    """For a URL: the password, and the values of the query, which may contain a key. Otherwise the whole value."""
    if "://" not in value:
        if is_secret(value):
            yield value
        return
    try:
        url = urlsplit(value)
        found = [url.password or "", *(pair.partition("=")[2] for pair in url.query.split("&"))]
    except ValueError:
        found = [value]
    yield from (part for part in found if is_secret(part) and not _is_harmless(part))


def is_secret(value: str) -> bool:
    value = value.strip()
    return len(value) >= SHORTEST and value.lower() not in _WORDS and not _PLACES.match(value)
