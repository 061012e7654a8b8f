"""Real agent CLIs against the scripted model on loopback. `make agents` installs them and runs this folder.

`make test` leaves it out: it is collected only when the command line names it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from windlass.agents import registry
from windlass.agents.base import Adapter
from windlass.testing.scripted_model import ScriptedModel

ROOT = Path(__file__).parent.parent.parent
# Read here, because the clean room of a test has neither.
FOLDER = Path(os.environ.get("WINDLASS_AGENTS") or ROOT / ".venv-agents")
IN_CI = os.environ.get("CI", "").lower() in ("1", "true")
CLIS = ("claude", "codex", "pi", "gemini", "opencode")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    named = any("live" in Path(str(argument).split("::")[0]).parts for argument in config.args)
    return None if named else True


@pytest.fixture(params=CLIS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def binary(name: str) -> Path:
    path = FOLDER / "bin" / name
    if path.exists():
        return path
    missing = f"'{name}' is not installed in {FOLDER}: run `make agents`"
    if IN_CI:
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture
def model() -> Iterator[Callable[..., ScriptedModel]]:
    started: list[ScriptedModel] = []

    def start(*rules: dict[str, Any]) -> ScriptedModel:
        started.append(ScriptedModel(rules).start())
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def agent(name: str, binary: Path) -> Callable[[ScriptedModel], Adapter]:
    """The CLI's adapter, set up as the config would: no login, the scripted model in place of its own."""

    def make(server: ScriptedModel, **more: Any) -> Adapter:
        return registry.make(name, {**options(server, binary), **more})

    return make


def options(server: ScriptedModel, binary: Path) -> dict[str, Any]:
    return {"bin": str(binary), "base_url": server.url_for("{job}"), "api_key": "scripted"}


def said(events: Sequence[object], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]
