"""The flows of a repository: find, check, draw, simulate and create one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins

from windlass.errors import UserError
from windlass.flow.check_values import instruction_files
from windlass.flow.graph import graph, mermaid
from windlass.flow.load import FlowSource, find_flow, list_flows, template
from windlass.flow.problem import FlowError
from windlass.flow.schema import Flow
from windlass.flow.simulate import Simulation, simulate
from windlass.runs.project import Project
from windlass.runs.start import settings_for


class FlowCheck(Struct, frozen=True):
    """The problems of one flow file."""

    name: str
    file: str
    problems: tuple[Mapping[str, Any], ...] = ()
    """Each with its line, and `text` for people."""
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


class SimulatedFlow(Struct, frozen=True):
    flow: str
    settings: Mapping[str, Any]
    """The settings in use."""
    result: Simulation


class Flows:
    def __init__(self, project: Project) -> None:
        self._project = project
        self._folders = [folder / "flows" for folder in project.folders()]

    def rows(self) -> list[dict[str, str]]:
        """All flows: first the repository's, then the person's, then the built-in ones."""
        found = []
        for source in list_flows(self._folders):
            try:
                about = self._load(source).about
            except FlowError:
                about = ""
            found.append({"name": source.name, "origin": source.origin, "path": str(source.path), "about": about})
        return found

    def text(self, name: str) -> str:
        return find_flow(name, self._folders).text

    def check(self, names: Sequence[str] = ()) -> list[FlowCheck]:
        """Without names, check all flows."""
        sources = [find_flow(name, self._folders) for name in names] or list_flows(self._folders)
        root, checks = self._project.host.place.root, []
        for source in sources:
            try:
                flow = self._load(source)
            except FlowError as error:
                problems = tuple({**to_builtins(one), "text": one.at(error.where)} for one in error.problems)
                checks.append(FlowCheck(source.name, str(source.path), problems))
                continue
            # A missing file is no problem of the flow: another repository may have it.
            absent = dict.fromkeys(file for _, file in instruction_files(flow) if not (root / file).is_file())
            text = "note: this repository has no instruction file '{}'; agents work without it"
            checks.append(FlowCheck(source.name, str(source.path), notes=tuple(text.format(file) for file in absent)))
        return checks

    def drawing(self, name: str, *, as_mermaid: bool = False) -> str:
        flow = self._load(find_flow(name, self._folders))
        return mermaid(flow) if as_mermaid else graph(flow)

    def simulate(self, name: str, tasks: int, given: Mapping[str, str]) -> SimulatedFlow:
        """Compute the fewest and the most dispatches and questions of a flow."""
        flow = self._load(find_flow(name, self._folders))
        settings = settings_for(flow, self._project.config(), given)
        return SimulatedFlow(flow.flow, settings, simulate(flow, tasks, settings))

    def create(self, name: str) -> tuple[Path, list[str]]:
        """Write a small valid flow. Returns its file, and the origins of the flows that it replaces."""
        name = name.removesuffix(".yaml")
        path = self._folders[0] / f"{name}.yaml"
        hidden = [source.origin for source in list_flows(self._folders) if source.name == name]
        text = template(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise UserError(f"'{path}' already exists", hint="choose another name, or edit that file") from None
        except OSError as error:
            raise UserError(
                f"cannot write '{path}': {error.strerror}", hint="check the permissions of its folder"
            ) from None
        return path, hidden

    def _load(self, source: FlowSource) -> Flow:
        """Load a flow with the roles next to it: X/flows/f.yaml may use X/roles."""
        path = source.path.resolve()
        return self._project.parse(source, self._project.roles(path if path.parent.name == "flows" else None))


def flow_names(folders: Sequence[Path]) -> list[str]:
    return [source.name for source in list_flows(folders)]
