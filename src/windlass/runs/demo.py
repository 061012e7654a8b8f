"""The sample repository of `windlass demo`, and the scripts that its agents follow."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

import windlass
from windlass.agents.registry import CLIS
from windlass.git import run as git
from windlass.strict_yaml import read, values

if TYPE_CHECKING:
    from windlass.testing.scripted_model import ScriptedModel


class Scene(Struct, frozen=True):
    """One demo: a request, the script of the agents, and the answers of the simulated person."""

    request: str
    script: Path
    answers: Mapping[str, str]
    test_module: str = ""
    """The module of the sample that `[commands.test]` runs, if the flow has test commands."""


DATA = Path(windlass.__file__).parent / "demo"
SETTLED = {"approve": "approve", "review_mode": "iterative", "execution_mode": "auto"}
CHOSEN = {"question-1": "1", "question-2": "1", "question-3": "1", "question-4": "12 hours", "approach": "middleware"}
REAL = CLIS
"""CLIs that can run the demo with a scripted model."""
SCENES = {
    "plan": Scene("Add rate limiting with token bucket algorithm", DATA / "script.yaml", SETTLED),
    "brainstorm": Scene(
        "Add user authentication",
        DATA / "brainstorm.yaml",
        SETTLED | CHOSEN | {f"section-{n}": "yes" for n in range(1, 5)} | {"final": "accept"},
    ),
    "staged": Scene("Add link expiry", DATA / "staged.yaml", {}, test_module="tests.end_to_end"),
}
REQUEST, SCRIPT = SCENES["plan"].request, SCENES["plan"].script
AUTHOR = ("-c", "user.name=Sample Author", "-c", "user.email=author@windlass.invalid")


def scripted(scene: Scene) -> str:
    return f"""# Agents whose answers are scripted in that file: no network, no key, no cost.
[agents]
default = "scripted"

[agents.scripted]
script = {json.dumps(str(scene.script))}"""


def real_agent(agent: str, binary: str, url: str) -> str:
    return f"""# A real CLI. Its model was a server of `windlass demo`, which ended with the demo.
[agents]
default = "{agent}"

[agents.{agent}]
bin = {json.dumps(binary)}
base_url = {json.dumps(url)}
api_key = "none needed\""""


def scripted_model(scene: Scene) -> ScriptedModel:
    """A local model server that answers a real CLI from the scene's script."""
    from windlass.testing.scripted_model import ScriptedModel

    return ScriptedModel.from_file(scene.script)


def _test_commands(scene: Scene) -> str:
    if not scene.test_module:
        return ""
    return f"""# The stage TEST runs these on the code of the whole run.
[commands.test]
commands = [{json.dumps([sys.executable, "-m", scene.test_module])}]

"""


def make_sample(folder: Path, agents: str = "", scene: Scene = SCENES["plan"]) -> None:
    """Create a repository with one commit. Its checks are its own tests."""
    # The sample's tests run with pytest or unittest. The choice is made once and committed.
    check = [sys.executable, "-m", "unittest", "-q"]
    proof = [*check, "{files}"]
    if find_spec("pytest"):
        # The sample does not need plugins of other packages, and they cost a second at every start.
        alone = ["env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1"]
        check = [*alone, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        proof = [*check, "--junitxml={junit}", "{files}"]
    places = {
        "{check}": json.dumps(check),
        "{proof}": json.dumps(proof),
        "{agents}": _test_commands(scene) + (agents or scripted(scene)),
    }
    files = values(read((DATA / "sample.yaml").read_text(encoding="utf-8")))
    assert isinstance(files, dict)
    for path, template in files.items():
        text = str(template or "")
        for place, value in places.items():
            text = text.replace(place, value)
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    git.require_git()
    git.run(["init", "--quiet", "--initial-branch=main"], folder)
    git.run(["add", "--all"], folder)
    git.run([*AUTHOR, "commit", "--quiet", "--message", "A small URL shortener"], folder)
