"""The protocol: the tools, their parameters, and their descriptions for the host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import new_class
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ConfigDict, Field

from windlass import __version__
from windlass.errors import WindlassError
from windlass.interfaces.mcp.drivers import BackgroundDrivers, DriverProcess, ToolPatience
from windlass.interfaces.mcp.texts import WIDTH
from windlass.interfaces.mcp.tools import McpTools
from windlass.runs.app import App
from windlass.runs.start import Start
from windlass.text import clean
from windlass.views.status import RunSummary, render_runs, status_json

USUAL_WAIT_S, LONGEST_WAIT_S = 20.0, 300.0
INSTRUCTIONS = """Windlass drives coding agents from a request to reviewed, tested code on a new branch.
Start with the tool `workflow`. Runs continue in the background. When a run waits for an answer, the text contains the
question and its options: show them to the person and pass on their answer."""

Run = Annotated[str, Field(description="A run's id or the beginning of it. Empty: the active run, or else the newest.")]
Wait = Annotated[
    float,
    Field(
        ge=0,
        le=LONGEST_WAIT_S,
        description="Seconds that this call may wait for the run to stop or to ask. The run continues after it. "
        "Most hosts give up on a call after 60.",
    ),
]


OpenTools = Callable[[Context, float], AbstractContextManager[McpTools]]


def make_server(build: Callable[[], App]) -> MCPServer:
    """`build` opens the repository; each call of a tool opens it again."""
    started: dict[str, DriverProcess] = {}

    @contextmanager
    def open_tools(ctx: Context, wait_s: float) -> Iterator[McpTools]:
        """Report expected errors to the model. The SDK reports and logs all others."""
        client = ctx.request_context.session.client_params
        name = clean(client.client_info.name, 60) if client else ""
        try:
            app = build()
            try:
                drivers = BackgroundDrivers(app, ToolPatience(wait_s), started)
                yield McpTools(app, f"mcp ({name})" if name else "mcp", drivers)
            finally:
                app.service.close()
        except WindlassError as error:
            raise ToolError(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")) from error

    server = MCPServer("windlass", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    _add_workflow(server, open_tools)
    _add_actions(server, open_tools)
    _add_readers(server, open_tools)
    # Refuse unknown arguments: if they were ignored, a misspelt budget would mean no budget.
    strict = {"model_config": ConfigDict(extra="forbid"), "__module__": __name__}
    for tool in server._tool_manager.list_tools():
        known = tool.fn_metadata.arg_model
        tool.fn_metadata.arg_model = new_class(known.__name__, (known,), exec_body=lambda body: body.update(strict))
        tool.parameters["additionalProperties"] = False
    return server


def _add_workflow(server: MCPServer, open_tools: OpenTools) -> None:
    @server.tool(structured_output=False)
    def workflow(
        ctx: Context,
        input: Annotated[
            str,
            Field(
                description="What to build; or the answer to the open question (an option's key, number or label, or "
                "text); or `status`; or `abort`, which answers a question that has such an option, and otherwise ends "
                "the run. Empty: continue the active run."
            ),
        ] = "",
        wait_s: Wait = USUAL_WAIT_S,
    ) -> str:
        """Start, continue, answer, inspect or abort the workflow of this repository, with one text.

        If a question is open, the text is its answer. If no run is active, the text is the request of a new run.
        """
        with open_tools(ctx, wait_s) as tools:
            return tools.workflow(input)


def _add_actions(server: MCPServer, open_tools: OpenTools) -> None:
    @server.tool(structured_output=False)
    def start(
        ctx: Context,
        request: Annotated[str, Field(description="What to build.")],
        flow: Annotated[str, Field(description="The name of a flow. Empty: the configured one.")] = "",
        settings: Annotated[
            dict[str, str] | None, Field(description="Settings of the flow; these are not asked.")
        ] = None,
        agent: Annotated[str, Field(description="Use this agent for every role.")] = "",
        budget_usd: Annotated[
            float | None, Field(ge=0, allow_inf_nan=False, description="Stop the run before it spends more.")
        ] = None,
        beside: Annotated[bool, Field(description="Start even if another run is active.")] = False,
        wait_s: Wait = USUAL_WAIT_S,
    ) -> str:
        """Start a run in the background."""
        wanted = Start(request, flow, settings or {}, agent, budget=budget_usd, detached=True)
        with open_tools(ctx, wait_s) as tools:
            return tools.start(wanted, beside=beside)

    @server.tool(structured_output=False)
    def answer(
        ctx: Context,
        value: Annotated[str, Field(description="An option's key, number or label, or text.")],
        run: Run = "",
        question: Annotated[str, Field(description="The question's key or id, if more than one is open.")] = "",
        comment: Annotated[str, Field(description="What to change, for an option that takes a comment.")] = "",
        wait_s: Wait = USUAL_WAIT_S,
    ) -> str:
        """Answer a run's open question and continue the run."""
        with open_tools(ctx, wait_s) as tools:
            return tools.answer(run, question, value, comment)

    @server.tool(structured_output=False)
    def resume(ctx: Context, run: Run = "", wait_s: Wait = USUAL_WAIT_S) -> str:
        """Continue a paused or stopped run. Steps that have a result are not repeated."""
        with open_tools(ctx, wait_s) as tools:
            return tools.resume(run)

    @server.tool(structured_output=False)
    def pause(ctx: Context, run: Run = "", wait_s: Wait = 0.0) -> str:
        """Pause a run: running agents finish, nothing new starts."""
        with open_tools(ctx, wait_s) as tools:
            return tools.pause(run)

    @server.tool(structured_output=False)
    def abort(ctx: Context, run: Run = "", wait_s: Wait = USUAL_WAIT_S) -> str:
        """End a run for good. Its branch, its commits and its history are kept."""
        with open_tools(ctx, wait_s) as tools:
            return tools.abort(run)


def _add_readers(server: MCPServer, open_tools: OpenTools) -> None:
    @server.tool(structured_output=False)
    def status(
        ctx: Context,
        run: Run = "",
        wait_s: Wait = 0.0,
        as_json: Annotated[bool, Field(description="Return JSON.")] = False,
    ) -> str:
        """Show a run's progress, its open question, and the next step."""
        with open_tools(ctx, wait_s) as tools:
            text = tools.status(run)
            return _json(tools, [tools.service.run(run).id])[0] if as_json and tools.service.has_runs else text

    @server.tool(name="list", structured_output=False)
    def list_runs(ctx: Context, as_json: bool = False) -> str:
        """List the runs of this repository, newest first."""
        with open_tools(ctx, 0.0) as tools:
            rows = tools.service.runs()
            if as_json:
                return f"[{', '.join(_json(tools, [row.id for row in rows]))}]"
            return render_runs([RunSummary.of(tools.service.view(row.id)) for row in rows], width=WIDTH)

    @server.tool(structured_output=False)
    def show(ctx: Context, run: Run = "") -> str:
        """Show everything about one run: tasks, reviews, findings, cost, branch, and the report of a finished run."""
        with open_tools(ctx, 0.0) as tools:
            return tools.show(run)


def _json(tools: McpTools, runs: list[str]) -> list[str]:
    service = tools.service
    views = ((service.view(run), service.is_driven(run)) for run in runs)
    return [json.dumps(status_json(view, service.host.clock(), driver_alive=driven)) for view, driven in views]
