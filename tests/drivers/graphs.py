"""Graphs as people write them, without a model."""

import asyncio
from typing import Annotated, Any, TypedDict

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

begun, stopped = asyncio.Event(), asyncio.Event()


class State(TypedDict, total=False):
    messages: Annotated[list[Any], add_messages]
    report: str
    figures: dict[str, int]


def built(**steps: Any) -> StateGraph[State]:
    """One after the other."""
    builder = StateGraph(State)
    names = list(steps)
    for name, step in steps.items():
        builder.add_node(name, step)
    for one, other in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(one, other)
    return builder


class CountingModel(BaseChatModel):
    """Repeats the prompt with the number of the call."""

    _calls: int = 0

    @property
    def _llm_type(self) -> str:
        return "counting"

    def _generate(self, messages: list[BaseMessage], *args: Any, **more: Any) -> ChatResult:
        self._calls += 1
        used = UsageMetadata(input_tokens=1, output_tokens=1, total_tokens=2)
        message = AIMessage(f"{messages[-1].content}: {self._calls}", usage_metadata=used)
        return ChatResult(generations=[ChatGeneration(message=message)])


async def speak(state: State) -> State:
    """Streams as a model does, word by word."""
    model = GenericFakeChatModel(messages=iter([AIMessage("one two three")]))
    return {"messages": [await model.ainvoke(state["messages"])]}


async def count(state: State) -> State:
    return {"messages": [AIMessage(f"You have said {sum(one.type == 'human' for one in state['messages'])}.")]}


async def ask(state: State) -> State:
    colour = interrupt("Which colour?")
    size = interrupt({"question": "Which size?"})
    return {"messages": [AIMessage(f"{colour}, {size}")], "report": f"# {colour}", "figures": {"size": 4}}


async def write(state: State) -> State:
    get_stream_writer()({"step": "writing"})
    get_stream_writer()("written")
    return {"report": "# Done"}


async def hang(state: State) -> State:
    begun.set()
    try:
        await asyncio.Event().wait()
    finally:
        stopped.set()
    return {}
