"""Real agent CLIs against the scripted model on loopback. `make agents` installs them and runs this folder.

`make test` leaves it out: it is collected only when the command line names it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clis import ALL_TOOLS, CLIS, IN_CI, PATIENT, binary_of, options
from results import note

from gitrepo import commit, sh
from jobs import make_job
from windlass.agents import registry
from windlass.agents.base import Adapter, Job, Limits
from windlass.testing.scripted_model import ScriptedModel


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    named = any("live" in Path(str(argument).split("::")[0]).parts for argument in config.args)
    return None if named else True


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All of them on all CLIs take a quarter of an hour longer: CI leaves the deep ones to `make agents`."""
    if IN_CI:
        deep = [item for item in items if item.get_closest_marker("deep")]
        config.hook.pytest_deselected(items=deep)
        items[:] = [item for item in items if item not in deep]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """What each agent was seen to do, for `tools/agents_table.py`."""
    if report.when == "call" or report.failed:
        note(report)


@pytest.fixture(params=CLIS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model() -> Iterator[Callable[..., ScriptedModel]]:
    started: list[ScriptedModel] = []

    def start(*rules: dict[str, Any]) -> ScriptedModel:
        started.append(ScriptedModel(rules, clock=time.time).start())
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def agent(name: str) -> Callable[..., Adapter]:
    """The CLI's adapter, set up as the config would: no login, the scripted model in place of its own."""
    binary = binary_of(name)

    def make(server: ScriptedModel, **more: Any) -> Adapter:
        return registry.make(name, {**options(server, binary), **more})

    return make


@pytest.fixture
def job(tmp_path: Path, name: str) -> Job:
    """An implementer's, in a repository with one commit."""
    made = make_job(
        tmp_path,
        agent=name,
        tools=ALL_TOOLS,
        writes="code",
        contract="review",
        options={},
        limits=Limits(wall_s=PATIENT),
    )
    sh(made.cwd, "init", "--quiet", "--initial-branch=main")
    commit(made.cwd, {"README.md": "# sample\n"})
    return made
