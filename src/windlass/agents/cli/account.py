"""The account of a CLI: a key of the config, otherwise the user's login. Also the base class of CLI adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from msgspec import Struct

from windlass.agents.base import Job
from windlass.agents.cli.base import DEFAULTS, KEY_VARIABLE, CliSettings, key_variable
from windlass.agents.cli.failures import classify_text
from windlass.model import ErrorClass, digest


class Account(Struct, frozen=True):
    """Where a CLI looks for its login and its earlier sessions."""

    variables: tuple[str, ...]
    """Variables of the user's environment that the CLI gets."""
    files: tuple[str, ...]
    """Files below `folder`: one of them shows that the user is logged in."""
    folder: str
    """Below the home folder, unless `folder_variable` names another."""
    folder_variable: str = ""
    below: str = ""
    """The path to append to the variable's folder."""
    room: str = "home"
    """The same folder inside the attempt's folder."""
    extra_files: tuple[str, ...] = ()
    """Files copied with the login; nothing else of the folder is copied."""
    sessions: str = ""
    """Below `room`; empty: among the login's files."""
    key: str = ""
    """The variable for a key of the config; empty: that of the provider."""
    provider: str = ""
    """The provider of the key, when the config names none."""
    server: str = ""
    """The variable for another server's address. Empty: the server is set another way, and its key has a variable of
    Windlass."""

    def place(self, environ: Mapping[str, str], home: str) -> str:
        chosen = environ.get(self.folder_variable)
        return f"{chosen}{self.below}" if chosen else f"{home}/{self.folder}"


class CliAdapter:
    """Contract: a subclass has `name`, `capabilities` and `account`, `invocation`, `parse` and `reader`."""

    name: str
    account: ClassVar[Account]
    flat_usd: float | None = None

    def __init__(self, settings: CliSettings = DEFAULTS, environ: Mapping[str, str] | None = None) -> None:
        self.settings = settings
        self.environ = environ or {}
        account = self.account
        # The login is identified without a secret: a key by its fingerprint, otherwise the chosen folder. The user's
        # own login does not count for another server.
        own = {} if settings.base_url else self.environ
        names = [name for name in account.variables if name.endswith(("_KEY", "_TOKEN"))]
        key = settings.api_key or next((own[name] for name in names if own.get(name)), "")
        folder = own.get(account.folder_variable, "")
        login = f"(key {digest(['login', key])[:6]})" if key else f"({folder})" if folder else ""
        self.credential = " ".join(part for part in (self.name, settings.base_url, login) if part)

    def classify(self, stderr: str, code: int | None) -> tuple[ErrorClass, str]:
        return classify_text(stderr, code)

    def login(self, settings: CliSettings) -> dict[str, str]:
        """The variables of the login. The user's own login is never sent to another server."""
        account = self.account
        if settings.base_url:
            address = {account.server: settings.base_url} if account.server else {}
            return {**address, account.key if account.server else KEY_VARIABLE: settings.api_key or "none"}
        if settings.api_key:
            return {account.key or key_variable(settings.provider or account.provider): settings.api_key}
        return {name: self.environ[name] for name in account.variables if self.environ.get(name)}

    def carried(self, job: Job, settings: CliSettings) -> dict[str, str]:
        """Files of the login, and the folder of the session to continue."""
        account, home = self.account, self.environ.get("HOME")
        sources: dict[str, str] = {}
        if job.session and settings.sessions:
            folder = "/".join(part for part in (account.room, account.sessions) if part)
            sources[folder] = f"{settings.sessions}/{folder}"
        if home and not settings.base_url and not settings.api_key and account.room not in sources:
            place = account.place(self.environ, home)
            sources |= {f"{account.room}/{name}": f"{place}/{name}" for name in (*account.files, *account.extra_files)}
        return sources
