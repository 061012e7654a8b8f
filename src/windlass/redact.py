"""Secrets do not enter the record: known values and what has the form of a key become `[redacted]`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from windlass.model import Json

REDACTED = "[redacted]"
SHORTEST = 8
"""A shorter value is likely to be a word that stands in any text."""
_NAMES = re.compile(
    r"KEY(?!BOARD|MAP|RING)|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|AUTH(?!OR)|_PASS$|_PAT$", re.IGNORECASE
)
_PLACES = re.compile(
    r"(?:/|~/|\./|[A-Za-z]:\\)(?:home|Users|root|etc|var|run|tmp|opt|usr|mnt|private)\b|https?://[^@]*$"
)
#: what is set where no secret is kept; blacking these out would make every second sentence unreadable
_WORDS = frozenset(
    {"postgres", "password", "changeme", "disabled", "required", "optional", "anonymous", "development", "production"}
    | {"localhost", "undefined", "redacted", REDACTED}
)
#: Each begins with plain characters, so that the search runs ahead to them; what may not stand before them is asked
#: after them. None looks far ahead from many places: hostile text must not take long.
_FORMS = (
    r"sk-(?<![A-Za-z0-9_-]sk-)(?=[A-Za-z_-]{0,80}[0-9])[A-Za-z0-9_-]{16,}",  # OpenAI, Anthropic
    r"gh[pousr]_[A-Za-z0-9]{20,}",
    r"github_pat_[A-Za-z0-9_]{20,}",
    r"glpat-[A-Za-z0-9_-]{16,}",
    r"xox[abeprs]-[A-Za-z0-9-]{10,}",  # Slack
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",  # AWS
    r"AIza[A-Za-z0-9_-]{30,}",  # Google
    r"npm_[A-Za-z0-9]{30,}",
    r"hf_[A-Za-z0-9]{30,}",
    r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",  # JSON Web Token
    r"[Bb]earer\s{1,9}(?=[A-Za-z._~+/=-]{0,80}[0-9])[A-Za-z0-9._~+/=-]{16,}",
    r"//[^\s/:@]{1,100}:[^\s/@]{1,200}@",  # a password in an address
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:(?!-----END)[\s\S])*(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?",
)


@dataclass(frozen=True)
class Redactor:
    """Contract: the same text in, the same text out; what was redacted once stays as it is."""

    _secrets: re.Pattern[str]

    def text(self, text: str) -> str:
        return self._secrets.sub(REDACTED, text)

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
    """`values`: secrets that are known. The longest comes first: one may be the beginning of another."""
    known = sorted({value.strip() for value in values if is_secret(value)}, key=lambda value: (-len(value), value))
    return Redactor(re.compile("|".join([*map(re.escape, known), *_FORMS])))


def secrets_in(environ: Mapping[str, str]) -> list[str]:
    """Values of variables whose name says that they are secret."""
    return [value for name, value in environ.items() if _NAMES.search(name) and is_secret(value)]


def is_secret(value: str) -> bool:
    value = value.strip()
    return len(value) >= SHORTEST and value.lower() not in _WORDS and not _PLACES.match(value)
