"""The shape of the house: what may import what, what is listed by hand, what may not happen."""

from __future__ import annotations

import ast
import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

import pytest

import crews
from front import Front
from windlass.agents.process.supervise import SupervisorPool

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "windlass"
SOURCES = sorted(PACKAGE.rglob("*.py"))
KIND_HELPERS = {"__init__", "base", "calls", "proposals", "routes", "spec", "task_graph", "visit_cost", "walker"}
KIND_MAY_IMPORT = {
    "windlass.conversion",
    "windlass.errors",
    "windlass.events",
    "windlass.model",
    "windlass.kinds.base",
    "windlass.kinds.calls",
    "windlass.kinds.proposals",
    "windlass.kinds.routes",
    "windlass.kinds.spec",
    "windlass.kinds.visit_cost",
}
#: what a task's steps can be
TASK_STEPS = {"windlass.kinds.command", "windlass.kinds.produce", "windlass.kinds.review"}
ADAPTER_MAY_IMPORT = {
    "windlass.agents.base",
    "windlass.agents.cli.account",
    "windlass.agents.cli.base",
    "windlass.agents.cli.failures",
    "windlass.agents.cli.opencode_log",
    "windlass.agents.cli.tally",
    "windlass.agents.job_token",
    "windlass.agents.prices",
    "windlass.agents.process.launch",
    "windlass.errors",
    "windlass.events",
    "windlass.model",
}
#: what starts processes or knows slots and transcripts: the local site
LOCAL_SITE = {
    "windlass.agents.process",
    "windlass.dispatch.commands",
    "windlass.dispatch.late_costs",
    "windlass.dispatch.local_site",
    "windlass.dispatch.proof_room",
    "windlass.dispatch.recovery",
    "windlass.dispatch.local_checkout",
    "windlass.git.proof_slot",
    "windlass.git.slot",
    "windlass.git.slot_files",
    "windlass.git.slots",
}
ABOVE_THE_SITE = ("dispatch", "driver", "engine", "kinds", "tasks")
#: from the command to the agent's process
MOST_FILES = 10
#: to a constructor
MOST_GIVEN = 8
# programs of their own: never imported by the driver
PROGRAMS = {
    "agents/process/supervisor.py": set(),
    "agents/cli/scripted_program.py": set(),
    "agents/cli/acp_program.py": {"windlass.agents.cli.json_rpc"},
    "agents/cli/json_rpc.py": set(),
}
"""Start for each dispatch, so they load little: what each may import of ours."""
HEAVY = {"asyncio", "pydantic", "yaml", "rich", "prompt_toolkit", "psutil", "genai_prices", "tree_sitter"}


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def module_name(path: Path) -> str:
    return ".".join(("windlass", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path) -> set[str]:
    """Modules of ours; `from windlass.kinds import review` counts as windlass.kinds.review."""
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {_module(node.module, alias.name) for alias in node.names}
    return {name for name in found if name.split(".")[0] == "windlass"}


def _module(package: str, name: str) -> str:
    folder = ROOT / "src" / Path(*package.split("."))
    return f"{package}.{name}" if (folder / f"{name}.py").is_file() or (folder / name).is_dir() else package


def clean_python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=env,
        cwd=ROOT,
    )


def test_imports_go_one_way() -> None:
    linter = "import sys; from importlinter.cli import lint_imports_command; sys.argv[1:] = ['--no-cache']; "
    done = clean_python(f"{linter} lint_imports_command()")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_kinds_are_the_files_of_the_folder() -> None:
    kinds = importlib.import_module("windlass.kinds").KINDS
    files = {path.stem for path in (PACKAGE / "kinds").glob("*.py")} - KIND_HELPERS
    assert {name: kind.spec.__module__ for name, kind in kinds.items()} == {
        name: f"windlass.kinds.{name}" for name in files
    }


def kinds() -> list[Path]:
    return [path for path in sorted((PACKAGE / "kinds").glob("*.py")) if path.stem not in KIND_HELPERS]


@pytest.mark.parametrize("path", kinds(), ids=relative)
def test_a_kind_imports_only_what_a_kind_needs(path: Path) -> None:
    steps = TASK_STEPS if path.stem == "tasks" else set()
    assert imported(path) - KIND_MAY_IMPORT - steps == set()


@pytest.mark.parametrize("path", kinds(), ids=relative)
def test_a_kind_has_a_spec_of_its_name_and_its_outcomes(path: Path) -> None:
    kind = importlib.import_module(f"windlass.kinds.{path.stem}").KIND
    assert kind.name == path.stem
    assert len(set(kind.spec.OUTCOMES)) == len(kind.spec.OUTCOMES) > 0


def adapters() -> list[Path]:
    """A file with a class that starts a CLI and reads it is an adapter; the port itself is not."""
    return [
        path for path in sorted((PACKAGE / "agents" / "cli").glob("*.py")) if path.stem != "base" and _has_adapter(path)
    ]


def _has_adapter(path: Path) -> bool:
    classes = (node for node in tree(path).body if isinstance(node, ast.ClassDef))
    methods = ({item.name for item in one.body if isinstance(item, ast.FunctionDef)} for one in classes)
    return any({"invocation", "parse"} <= names for names in methods)


def test_the_adapters_are_the_files_of_the_folder() -> None:
    listed = importlib.import_module("windlass.agents.registry").ADAPTERS
    assert set(listed) == {path.stem for path in adapters()}


@pytest.mark.parametrize("path", adapters(), ids=relative)
def test_an_adapter_imports_only_the_port_and_the_nouns(path: Path) -> None:
    assert imported(path) - ADAPTER_MAY_IMPORT == set()


@pytest.mark.parametrize("path", [PACKAGE / name for name in sorted(PROGRAMS)], ids=relative)
def test_a_program_of_its_own_imports_next_to_nothing_of_ours(path: Path) -> None:
    assert imported(path) == PROGRAMS[relative(path)]


def test_one_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(relative(path))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def above_the_site() -> list[Path]:
    found = [path for name in ABOVE_THE_SITE for path in sorted((PACKAGE / name).glob("*.py"))]
    return [path for path in found if module_name(path) not in LOCAL_SITE]


def local_imports(path: Path) -> set[str]:
    ours = {name for name in imported(path) if any(name == one or name.startswith(f"{one}.") for one in LOCAL_SITE)}
    return ours | ({"subprocess", "psutil", "signal", "socket"} & packages(path))


def test_nothing_above_the_site_starts_processes_or_knows_slots() -> None:
    found = {relative(path): local_imports(path) for path in above_the_site()}
    assert {name: modules for name, modules in found.items() if modules} == {}


def local_attributes(path: Path) -> set[str]:
    names = {"pid", "getpid", "kill", "cwd", "git_dir"}
    # the pull request's text is a file of the run, for people
    names |= set() if relative(path) == "driver/publisher.py" else {"folder"}
    return names & {node.attr for node in ast.walk(tree(path)) if isinstance(node, ast.Attribute)}


def test_nothing_above_the_site_reads_a_process_or_the_folders_of_an_attempt() -> None:
    found = {relative(path): local_attributes(path) for path in above_the_site()}
    assert {name: attributes for name, attributes in found.items() if attributes} == {}


def packages(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return found


def bags(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        given = [arg.arg for arg in (*node.args.args, *node.args.kwonlyargs)]
        if {"parts", "services", "kit", "desk"} & set(given):
            yield f"line {node.lineno}: {node.name} takes {', '.join(given)}"
        if node.name == "__init__" and len(given) - 1 > MOST_GIVEN:
            yield f"line {node.lineno}: a constructor takes {len(given) - 1}"


def test_a_class_is_given_what_it_needs_and_no_bag_of_services() -> None:
    found = {relative(path): list(bags(path)) for path in above_the_site()}
    assert {name: lines for name, lines in found.items() if lines} == {}


class Walk:
    """The files that are on the way of a call: those on the stack, and where each asyncio task was started."""

    def __init__(self) -> None:
        self.ways: list[list[str]] = []
        self._began: WeakKeyDictionary[asyncio.Task[Any], list[str]] = WeakKeyDictionary()

    def here(self) -> list[str]:
        frame: FrameType | None = sys._getframe(1)
        found: list[str] = []
        while frame:
            path = Path(frame.f_code.co_filename)
            found += [relative(path)] if path.is_relative_to(PACKAGE) else []
            frame = frame.f_back
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
        return list(dict.fromkeys([*(self._began.get(task, []) if task else []), *reversed(found)]))

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        create, start = asyncio.BaseEventLoop.create_task, SupervisorPool.start

        def create_task(loop: asyncio.BaseEventLoop, *args: Any, **more: Any) -> asyncio.Task[Any]:
            way = self.here()
            task = create(loop, *args, **more)
            self._began[task] = way
            return task

        def started(pool: SupervisorPool, *files: int) -> None:
            way = self.here()
            self.ways.append(way[way.index("interfaces/cli/drive.py") :])
            start(pool, *files)

        monkeypatch.setattr(asyncio.BaseEventLoop, "create_task", create_task)
        monkeypatch.setattr(SupervisorPool, "start", started)


def test_few_files_lie_between_the_command_and_the_process_of_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk = Walk()
    walk.watch(monkeypatch)
    front = Front(tmp_path, files={".windlass/flows/tiny.yaml": crews.flow()})
    done = front.start([crews.plan_rule([{"title": "A"}]), crews.rule("t1", {"a.py": "y = 1\n"})], "--flow", "tiny")
    assert done.code == 0, done.out + done.err
    plan, task = walk.ways
    assert plan[0] == task[0] == "interfaces/cli/drive.py"
    assert plan[-1] == task[-1] == "agents/process/supervise.py"
    assert {"tasks/scheduler.py", "dispatch/dispatcher.py", "dispatch/local_site.py"} <= set(task)
    assert len(plan) <= len(task) <= MOST_FILES, task


def forks(path: Path) -> Iterator[str]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and node.attr in ("fork", "forkpty"):
            yield f"line {node.lineno}: {ast.unparse(node)}"
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        origin = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in (*names, *origin):
            if name.split(".")[0] in ("multiprocessing", "pty") or name == "concurrent.futures.process":
                yield f"line {node.lineno}: imports {name}"
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).endswith("ProcessPoolExecutor"):
            yield f"line {node.lineno}: ProcessPoolExecutor"


def test_the_driver_never_forks() -> None:
    """A forked child would keep the run's lock."""
    found = {relative(path): list(forks(path)) for path in SOURCES if relative(path) not in PROGRAMS}
    assert {name: lines for name, lines in found.items() if lines} == {}


WATCHED_IMPORTS = """
import importlib, os, sys, threading
import asyncio, psutil, pydantic, yaml

sys.dont_write_bytecode = True
ACTS = {"os.fork", "os.mkdir", "os.posix_spawn", "os.putenv", "os.remove", "os.rename", "os.system", "shutil.rmtree",
        "socket.bind", "socket.connect", "sqlite3.connect", "subprocess.Popen"}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
seen = []

def watch(event, args):
    if event in ACTS or (event == "open" and isinstance(args[2], int) and args[2] & WRITES):
        seen.append(f"{event} {args[0]}")

sys.addaudithook(watch)
for name in sys.argv[1:]:
    importlib.import_module(name)
    if seen:
        print(name, seen)
        seen.clear()
if threading.active_count() > 1:
    print(threading.enumerate())
"""


def test_nothing_happens_on_import() -> None:
    names = [module_name(path) for path in SOURCES if path.stem != "__main__" and relative(path) not in PROGRAMS]
    done = clean_python(WATCHED_IMPORTS, *names)
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr


def test_what_happens_on_import_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text("open(__file__ + '.log', 'w').close()")
    done = clean_python(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{WATCHED_IMPORTS}", "busy")
    assert "busy ['open " in done.stdout


def test_the_command_line_starts_without_heavy_packages() -> None:
    done = clean_python("import sys, windlass.interfaces.cli; print(*sorted({m.split('.')[0] for m in sys.modules}))")
    assert done.returncode == 0, done.stderr
    assert HEAVY & set(done.stdout.split()) == set()


FIRST_STEPS = """
import sys
from pathlib import Path
import windlass.runs.drive
from windlass.agents.contracts.registry import CONTRACTS, check, json_schema
from windlass.agents.roles import load_roles
from windlass.config.load import load_config
from windlass.flow.load import find_flow, parse_flow

load_config(Path("/nowhere"), Path("/nowhere"), {"budget": {"stop_usd": 3.0}})
parse_flow(find_flow("plan", []).text, "plan", roles=load_roles([]), contracts=CONTRACTS)
assert json_schema("review") and check("review", {"status": "pass"}).ok
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""


def test_a_driver_reads_its_files_without_pydantic() -> None:
    done = clean_python(FIRST_STEPS)
    assert done.returncode == 0, done.stderr
    assert "pydantic" not in done.stdout.split()
