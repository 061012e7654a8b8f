"""A flow file in, a checked Flow out. Also finds flow files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from windlass.errors import UserError, near
from windlass.flow.check import check
from windlass.flow.document import Located, load_strict
from windlass.flow.problem import FlowError, FlowProblem
from windlass.flow.schema import Artifact, Flow
from windlass.flow.shape import read_shape, without_unread
from windlass.model import is_id

HERE = Path(__file__).parent
SUFFIXES = (".yaml", ".yml")


class FlowSource(Struct, frozen=True):
    name: str
    path: Path
    text: str
    origin: str
    """built-in, or its folder or file."""


def parse_flow(text: str, where: str, *, roles: Collection[str], contracts: Collection[str]) -> Flow:
    return _checked_flow(load_strict(text, where), roles, contracts)


def parse_recorded_flow(text: str, where: str, *, roles: Collection[str], contracts: Collection[str]) -> Flow:
    """The flow of a run that has begun. The next version must be able to continue a run, so keys that were accepted
    then, and that nothing ever read, are removed."""
    return _checked_flow(without_unread(load_strict(text, where)), roles, contracts)


def _checked_flow(located: Located, roles: Collection[str], contracts: Collection[str]) -> Flow:
    flow = read_shape(located)
    problems = check(flow, located, roles=roles, contracts=contracts)
    if problems:
        raise FlowError(located.where, problems)
    return _with_summaries(flow)


def _with_summaries(flow: Flow) -> Flow:
    """The flow with an artifact for the summary of each stage and each phase."""
    if flow.compact is None:
        return flow
    parts = [*(stage.id for stage in flow.stages), *(phase.id for phase in flow.all_phases())]
    made = {
        flow.compact.artifact(of): Artifact(kind="file", path=flow.compact.path.replace("{of}", of)) for of in parts
    }
    return replace(flow, artifacts={**flow.artifacts, **made})


def find_flow(name_or_path: str, folders: Sequence[Path]) -> FlowSource:
    """A path to a file, otherwise a name: the first folder that has it wins, built-ins come last."""
    if name_or_path.endswith(SUFFIXES):
        path = Path(name_or_path)
        return FlowSource(path.stem, path, _read(path), str(path))
    found = {source.name: source for source in list_flows(folders)}
    if name_or_path not in found:
        raise UserError(f"there is no flow '{name_or_path}'", hint=near(name_or_path, found))
    return found[name_or_path]


def list_flows(folders: Sequence[Path]) -> list[FlowSource]:
    candidates = [(path, str(folder)) for folder in folders for path in _flow_files(folder)]
    candidates += [(path, "built-in") for path in _flow_files(HERE / "builtin")]
    found: dict[str, FlowSource] = {}
    for path, origin in candidates:
        if path.stem not in found:
            found[path.stem] = FlowSource(path.stem, path, _read(path), origin)
    return list(found.values())


def template(name: str) -> str:
    """A small flow to start from; it passes the check."""
    if not is_id(name):
        raise UserError(f"'{name}' cannot be a flow's name", hint="letters, digits, '.', '_' and '-', at most 64")
    starter = (HERE / "starter.yaml").read_text(encoding="utf-8")
    return starter.replace("FLOW_NAME", name)


def _flow_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.suffix in SUFFIXES and path.is_file())


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise FlowError(str(path), [FlowProblem(1, f"not UTF-8 at byte {error.start}")]) from None
    except OSError as error:
        raise UserError(f"cannot read the flow '{path}': {error.strerror}", hint="give a flow's name or file") from None
