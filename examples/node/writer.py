"""A node with a LangGraph graph that asks before it writes; its state is in a file and survives restarts.

It needs `parley-a2a[langgraph]` and `langgraph-checkpoint-sqlite`; how to start it is in desk.py.
"""

import asyncio
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

from parley.drivers.graph import graph
from parley.node import Node
from parley.node.settings import load


class State(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    tone: str
    draft: str


async def ask(state: State) -> State:
    return {"tone": interrupt("In which tone?")}


async def write(state: State) -> State:
    asked = str(state["messages"][-1].content)
    draft = f"# {asked}\n\nWritten in a tone that is {state['tone']}.\n"
    return {"draft": draft, "messages": [AIMessage("Here it is.")]}


def plan() -> StateGraph[State]:
    builder = StateGraph(State)
    builder.add_node("ask", ask)
    builder.add_node("write", write)
    builder.add_edge(START, "ask")
    builder.add_edge("ask", "write")
    builder.add_edge("write", END)
    return builder


async def main() -> None:
    folder = load().data_dir
    folder.mkdir(parents=True, exist_ok=True)
    async with AsyncSqliteSaver.from_conn_string(str(folder / "threads.db")) as saver:
        writer = graph(
            "writer", plan().compile(checkpointer=saver), name="Writer",
            description="Writes about anything, in any tone.", artifacts={"draft": "text/markdown"},
        )  # fmt: skip
        await Node(writer).serve()


if __name__ == "__main__":
    asyncio.run(main())
