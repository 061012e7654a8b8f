"""The same steps as a LangGraph loop with its SQLite checkpointer.

usage: python -m benchmarks.peer_langgraph FOLDER STEPS
"""

from __future__ import annotations

import sys
import time
from typing import TypedDict

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

TEXT = "x" * 1024


class State(TypedDict):
    n: int
    text: str


def work(state: State) -> State:
    return {"n": state["n"] + 1, "text": TEXT}


def main(folder: str, steps: int) -> float:
    graph = StateGraph(State)
    graph.add_node("work", work)
    graph.add_edge(START, "work")
    graph.add_conditional_edges("work", lambda state: END if state["n"] >= steps else "work", ["work", END])
    with SqliteSaver.from_conn_string(f"{folder}/langgraph.db") as saver:
        app = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "1"}, "recursion_limit": steps + 10}
        begun = time.perf_counter()
        app.invoke({"n": 0, "text": ""}, config, durability="sync")
        return time.perf_counter() - begun


if __name__ == "__main__":
    print(main(sys.argv[1], int(sys.argv[2])))
