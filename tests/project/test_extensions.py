"""A new kind of phase, and a new agent CLI: one file and one line each."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import windlass
from front import ONE_TASK, Front

KIND = """
from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from windlass.events import Warned
from windlass.kinds.base import Context, Kind, Outcome
from windlass.kinds.spec import FlowView, PhaseSpec
from windlass.kinds.visit_cost import Sizes, VisitCost
from windlass.model import Choice, Question


class WeatherSpec(PhaseSpec, frozen=True, kw_only=True, tag="weather"):
    OUTCOMES: ClassVar[tuple[str, ...]] = ("ok", "rain")

    town: str

    def disagreements(self, flow: FlowView) -> Iterator[str]:
        if self.town == "Nowhere":
            yield "there is no weather in Nowhere"

    def visit_cost(self, sizes: Sizes) -> VisitCost:
        return VisitCost(0, 0, 1, 1)

    def summary(self) -> str:
        return f"  the weather of {self.town}"

    def answer_names(self) -> set[str]:
        return {"weather"}


async def run(spec: WeatherSpec, ctx: Context) -> Outcome:
    options = (Choice("sun", "Sun"), Choice("rain", "Rain"))
    answer = await ctx.ask(Question("weather", f"How is the weather in {spec.town}?", options))
    ctx.emit(Warned("weather", f"{spec.town}: {answer.value}"))
    return Outcome("ok" if answer.value == "sun" else "rain")


KIND = Kind(WeatherSpec, run)
"""
FLOW = """
flow: outdoors
about: Look at the sky first
phases:
  - id: sky
    kind: weather
    town: Bergen
    on:
      rain: abort
  - id: report
    kind: report
    template: task
"""


class Extended:
    """A copy of Windlass with one more file and one more line, used through its command line."""

    def __init__(self, front: Front, folder: Path) -> None:
        self.front, self.folder = front, folder
        shutil.copytree(
            Path(windlass.__file__).parent, folder / "windlass", ignore=shutil.ignore_patterns("__pycache__")
        )

    def add(self, path: str, text: str, list_in: str, after: str) -> None:
        """`after`: the line of `list_in` that the new file's line follows."""
        file, listed = self.folder / "windlass" / path, self.folder / "windlass" / list_in
        file.write_text(text)
        assert listed.read_text().count(after) == 1
        indent = after[: len(after) - len(after.lstrip())]
        listed.write_text(listed.read_text().replace(after, f'{after}{indent}"{file.stem}",\n'))

    def __call__(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "windlass", *argv],
            cwd=self.front.root,
            env={**self.front.env, "PYTHONPATH": str(self.folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )


@pytest.fixture
def outdoors(tmp_path: Path) -> Extended:
    extended = Extended(Front(tmp_path, files={".windlass/flows/outdoors.yaml": FLOW}), tmp_path / "more")
    extended.add("kinds/weather.py", KIND, "kinds/__init__.py", '        "tasks",\n')
    return extended


def test_a_tenth_kind_is_checked_drawn_and_simulated(outdoors: Extended) -> None:
    assert outdoors("flow", "check", "outdoors").stdout == "outdoors: ok\n"
    drawn = outdoors("flow", "graph", "outdoors").stdout
    assert "sky  weather  the weather of Bergen" in drawn
    assert "rain -> abort" in drawn
    counted = json.loads(outdoors("flow", "simulate", "outdoors", "--json").stdout)
    assert (counted["min_questions"], counted["max_questions"], counted["max_dispatches"]) == (1, 1, 0)


@pytest.mark.long
def test_the_faults_of_a_tenth_kind_have_a_line_and_a_way_out(outdoors: Extended) -> None:
    file = outdoors.front.root / ".windlass/flows/outdoors.yaml"
    file.write_text(FLOW.replace("Bergen", "Nowhere").replace("      rain: abort\n", "      snow: abort\n"))
    said = outdoors("flow", "check", "outdoors").stdout
    assert "outdoors.yaml:5: 'sky': there is no weather in Nowhere" in said
    assert "'sky' does not say where 'rain' leads" in said
    assert "outdoors.yaml:9: 'sky' has no outcome 'snow'" in said
    file.write_text(FLOW.replace("town:", "twon:"))
    assert "'twon'" in outdoors("flow", "check", "outdoors").stdout


def test_a_tenth_kind_runs_and_its_outcome_is_a_route(outdoors: Extended) -> None:
    sunny = outdoors("run", "--flow", "outdoors", "--answer", "weather=sun", "Go out")
    assert sunny.returncode == 0, sunny.stderr
    assert "Bergen: sun" in outdoors("log").stdout
    rainy = outdoors("run", "--flow", "outdoors", "--answer", "weather=rain", "Go out again")
    assert rainy.returncode == 13, rainy.stderr
    again = outdoors("resume")
    assert "aborted" in again.stdout + again.stderr


CLI = """
from __future__ import annotations

import json

from windlass.agents.base import AgentEvent, Capabilities, Done, Invocation, Job, Said, SessionSeen
from windlass.agents.cli.account import Account, CliAdapter

TESTED = "1.2.3"
INSTALL = "buy a parrot"
ACCOUNT = Account(variables=("PARROT_API_KEY",), files=("login.json",), folder=".parrot")


class ParrotAdapter(CliAdapter):
    name = "parrot"
    capabilities = Capabilities()
    account = ACCOUNT

    def invocation(self, job: Job) -> Invocation:
        return Invocation(("parrot",), stdin=job.prompt, env=self.login(self.settings))

    def parse(self, line: str) -> list[AgentEvent]:
        told = json.loads(line)
        return [SessionSeen(told["session"]), Said(told["text"]), Done(told["text"])]


ADAPTER = ParrotAdapter
"""
PARROT = """\
if [ "$1" = --version ]; then echo 1.2.3; exit 0; fi
cat > /dev/null
echo "x = 2" > src/app.py
git add -A
git -c user.name=Parrot -c user.email=parrot@example.org commit -qm "Change x"
echo '{"session": "s1", "text": "I changed x."}'
"""


@pytest.fixture
def aviary(tmp_path: Path) -> Extended:
    front = Front(tmp_path, files={".windlass/flows/tiny.yaml": ONE_TASK})
    front.clis(parrot=PARROT)
    extended = Extended(front, tmp_path / "more")
    extended.add("agents/cli/parrot.py", CLI, "agents/registry.py", '    "opencode",\n')
    return extended


@pytest.mark.long
def test_a_sixth_cli_is_found_with_its_version_and_login(aviary: Extended) -> None:
    listed = {one["name"]: one for one in json.loads(aviary("agents", "--json").stdout)}
    assert listed["parrot"]["usable"]
    assert listed["parrot"]["version"] == "1.2.3"
    assert not listed["claude"]["usable"]
    aviary.front.env["PARROT_API_KEY"] = "pk-1"
    listed = {one["name"]: one for one in json.loads(aviary("agents", "--json").stdout)}
    assert "PARROT_API_KEY" in listed["parrot"]["login"]
    (aviary.front.tmp / "bin" / "parrot").unlink()
    assert "buy a parrot" in aviary("doctor").stdout


def test_a_sixth_cli_does_the_work_of_a_run(aviary: Extended) -> None:
    ended = aviary("run", "--flow", "tiny", "--yes", "--agent", "parrot", "Change x")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    branch = json.loads(aviary("status", "--json").stdout)["branch"]
    assert aviary.front.git("show", f"{branch}:src/app.py") == "x = 2"
