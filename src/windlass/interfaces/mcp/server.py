"""The protocol: which tools there are, what they take, and what a host reads about them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import new_class
from typing import Annotated

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import ConfigDict, Field

from windlass import __version__
from windlass.errors import WindlassError
from windlass.interfaces.mcp.texts import WIDTH
from windlass.interfaces.mcp.tools import DriverProcess, McpTools, ToolPatience
from windlass.runs.app import App
from windlass.runs.start import Start
from windlass.text import clean
from windlass.views.status import RunSummary, render_runs, status_json

USUAL_WAIT_S, LONGEST_WAIT_S = 20.0, 300.0
INSTRUCTIONS = """Windlass drives coding agents from a request to reviewed, tested code on a branch of its own.
Start with the tool `workflow`; runs go on in the background. When a run waits for an answer, the question with its
options is in the text: show it to the person and pass on their answer."""

Run = Annotated[str, Field(description="A run's id or the beginning of one; empty: the active run, else the newest.")]
Wait = Annotated[
    float,
    Field(
        ge=0,
        le=LONGEST_WAIT_S,
        description="Seconds this call may wait for the run to rest; the run goes on after it. "
        "Most hosts give up on a call after 60.",
    ),
]


Holding = Callable[[Context, float], AbstractContextManager[McpTools]]


def make_server(build: Callable[[], App]) -> MCPServer:
    """`build`: the repository as it is now; each call looks anew."""
    hands = partial(_hands, build, dict[str, DriverProcess]())
    server = MCPServer("windlass", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    _one_for_all(server, hands)
    _acting(server, hands)
    _reading(server, hands)
    _refuse_unknown(server)
    return server


def _refuse_unknown(server: MCPServer) -> None:
    """An argument that no tool takes is refused by name: ignored, a misspelt limit would be none."""
    strict = {"model_config": ConfigDict(extra="forbid"), "__module__": __name__}
    for tool in server._tool_manager.list_tools():
        known = tool.fn_metadata.arg_model
        tool.fn_metadata.arg_model = new_class(known.__name__, (known,), exec_body=lambda body: body.update(strict))
        tool.parameters["additionalProperties"] = False


def _one_for_all(server: MCPServer, holding: Holding) -> None:
    @server.tool(structured_output=False)
    def workflow(
        ctx: Context,
        input: Annotated[
            str,
            Field(
                description="What to build; or the answer to the open question (an option's key, number or label, or "
                "text); or `status`; or `abort`, which answers a question that has such an option, else ends the run; "
                "empty: go on with the active run."
            ),
        ] = "",
        wait_s: Wait = USUAL_WAIT_S,
    ) -> str:
        """Start, continue, answer, look at or abort the workflow of this repository, with one text.

        Without an active run the text is the request that a new run is started with. While a question is open, it is
        the answer to that question.
        """
        with holding(ctx, wait_s) as hands:
            return hands.workflow(input)


def _acting(server: MCPServer, holding: Holding) -> None:
    @server.tool(structured_output=False)
    def start(
        ctx: Context,
        request: Annotated[str, Field(description="What to build.")],
        flow: Annotated[str, Field(description="A flow's name; empty: the configured one.")] = "",
        settings: Annotated[dict[str, str] | None, Field(description="Settings of the flow; not asked then.")] = None,
        agent: Annotated[str, Field(description="This agent for every role.")] = "",
        budget_usd: Annotated[
            float | None, Field(ge=0, allow_inf_nan=False, description="Stop before spending more.")
        ] = None,
        beside: Annotated[bool, Field(description="Start although another run is active.")] = False,
        wait_s: Wait = USUAL_WAIT_S,
    ) -> str:
        """Start a run in the background."""
        told = Start(request, flow, settings or {}, agent, budget=budget_usd, detached=True)
        with holding(ctx, wait_s) as hands:
            return hands.start(told, beside=beside)

    @server.tool(structured_output=False)
    def answer(
        ctx: Context,
        value: Annotated[str, Field(description="An option's key, number or label, or text.")],
        run: Run = "",
        question: Annotated[str, Field(description="Its key or id; needed when more than one is open.")] = "",
        comment: Annotated[str, Field(description="What to change, for answers that take a comment.")] = "",
        wait_s: Wait = USUAL_WAIT_S,
    ) -> str:
        """Answer a run's open question; the run goes on."""
        with holding(ctx, wait_s) as hands:
            return hands.answer(run, question, value, comment)

    @server.tool(structured_output=False)
    def resume(ctx: Context, run: Run = "", wait_s: Wait = USUAL_WAIT_S) -> str:
        """Go on with a run that rests; what has a result is not done again."""
        with holding(ctx, wait_s) as hands:
            return hands.resume(run)

    @server.tool(structured_output=False)
    def pause(ctx: Context, run: Run = "", wait_s: Wait = 0.0) -> str:
        """Let a run rest: agents at work finish, nothing new starts."""
        with holding(ctx, wait_s) as hands:
            return hands.pause(run)

    @server.tool(structured_output=False)
    def abort(ctx: Context, run: Run = "", wait_s: Wait = USUAL_WAIT_S) -> str:
        """End a run for good. Its branch, its commits and its record stay."""
        with holding(ctx, wait_s) as hands:
            return hands.abort(run)


def _reading(server: MCPServer, holding: Holding) -> None:
    @server.tool(structured_output=False)
    def status(
        ctx: Context,
        run: Run = "",
        wait_s: Wait = 0.0,
        as_json: Annotated[bool, Field(description="Everything, for programs.")] = False,
    ) -> str:
        """Where a run stands, what it asks, and what comes next."""
        with holding(ctx, wait_s) as hands:
            told = hands.status(run)
            return _json(hands, [hands.service.run(run).id])[0] if as_json and hands.service.has_runs else told

    @server.tool(name="list", structured_output=False)
    def list_runs(ctx: Context, as_json: bool = False) -> str:
        """All runs of this repository, newest first."""
        with holding(ctx, 0.0) as hands:
            rows = hands.service.runs()
            if as_json:
                return f"[{', '.join(_json(hands, [row.id for row in rows]))}]"
            return render_runs([RunSummary.of(hands.service.view(row.id)) for row in rows], width=WIDTH)

    @server.tool(structured_output=False)
    def show(ctx: Context, run: Run = "") -> str:
        """Everything about one run: tasks, reviews, findings, cost, branch, and its report when it is done."""
        with holding(ctx, 0.0) as hands:
            return hands.show(run)


@contextmanager
def _hands(
    build: Callable[[], App], drivers: dict[str, DriverProcess], ctx: Context, wait_s: float
) -> Iterator[McpTools]:
    """Failures that we saw coming are told to the model; any other is the SDK's to report and to log."""
    try:
        app = build()
        try:
            yield McpTools(app, _who(ctx), ToolPatience(wait_s), drivers)
        finally:
            app.service.close()
    except WindlassError as error:
        raise ToolError(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")) from error


def _who(ctx: Context) -> str:
    told = ctx.request_context.session.client_params
    name = clean(told.client_info.name, 60) if told else ""
    return f"mcp ({name})" if name else "mcp"


def _json(hands: McpTools, runs: list[str]) -> list[str]:
    service = hands.service
    views = ((service.view(run), service.driven(run)) for run in runs)
    return [json.dumps(status_json(view, service.world.clock(), driver_alive=driven)) for view, driven in views]
