"""A compiled LangGraph as an agent.

    driver = graph("writer", compiled, artifacts={"report": "text/markdown"})

What its nodes and models write is streamed, an `interrupt` is a question and its answer resumes the graph, a cancel
stops it. With a checkpointer it remembers a conversation, and a turn that was broken off goes on where it stood.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol, Unpack, cast, get_args
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET

from parley.core.agents import Agent, Rescue, Skill, plain_name, plain_skill
from parley.core.turns import ArtifactChunk, Content, Done, NeedInput, Output, Status, Text
from parley.drivers.function import More
from parley.engine.turns import Turn
from parley.errors import AgentError, ConfigurationError

TURN, SEEN = "parley_turn", "parley_seen"
"""In the metadata of a checkpoint: which turn made it, and how many messages there were before."""
_OUTPUTS = get_args(Output)
_MODES = ["messages", "custom"]

Prepare = Callable[[Turn], Any]


class Snapshot(Protocol):
    """What a graph's state looks like from outside."""

    values: Any
    next: tuple[str, ...]
    metadata: Any
    interrupts: tuple[Any, ...]


class Graph(Protocol):
    """As `StateGraph.compile` makes it; named here so that nobody needs LangGraph who has none."""

    checkpointer: Any

    def astream(self, input: Any, config: Any, /, *, stream_mode: Any) -> Any: ...
    async def aget_state(self, config: Any, /) -> Any: ...


class GraphDriver:
    def __init__(
        self, agent: Agent, graph: Graph, *, artifacts: Mapping[str, str | None] | Sequence[str] = (),
        answer: str | None = None, prepare: Prepare | None = None,
    ) -> None:  # fmt: skip
        self._agent = agent
        self._graph = graph
        self._artifacts = artifacts if isinstance(artifacts, Mapping) else dict.fromkeys(artifacts)
        self._answer = answer
        self._prepare = prepare or _as_message
        self._threads: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @property
    def agent(self) -> Agent:
        return self._agent

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        thread = thread_of(turn)
        # Two at once would write each other's checkpoints.
        lock = self._threads.setdefault(thread, asyncio.Lock())
        async with lock, aclosing(_Passage(self._graph, turn, thread, self._prepare).outputs()) as outputs:
            streamed = False
            async for output in outputs:
                if isinstance(output, _Ended):
                    for last in self._made(output.state, streamed):
                        yield last
                    return
                streamed = streamed or isinstance(output, Text)
                yield output

    def _made(self, state: Mapping[str, Any], streamed: bool) -> list[Output]:
        """What the graph leaves in its state: an answer, unless it was told while it was made, and artifacts."""
        found: list[Output] = []
        if self._answer is not None and state.get(self._answer) is not None and not streamed:
            found.append(Text(str(state[self._answer])))
        for name, media in self._artifacts.items():
            if state.get(name) is not None:
                found.append(ArtifactChunk(_content(state[name]), id=name, name=name, media_type=media))
        return [*found, Done()]


class _Ended:
    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = state


class _Passage:
    """One turn's way through the graph."""

    def __init__(self, graph: Graph, turn: Turn, thread: str, prepare: Prepare) -> None:
        self._graph = graph
        self._turn = turn
        self._prepare = prepare
        self._mark = f"{turn.run_id}/{turn.number}"
        self._config: dict[str, Any] = {"configurable": {"thread_id": thread}}
        self._remembers = bool(graph.checkpointer)
        self._message: str | None = None

    async def outputs(self) -> AsyncGenerator[Output | _Ended, None]:
        before = await self._state()
        given, told = self._given(before)
        if told:
            yield Text(told)
        values: Any = before.values if before is not None else {}
        if given is not _NOTHING:
            seen = len(_messages(values))
            metadata = {TURN: self._mark, SEEN: self._seen(before, seen)}
            config = {**self._config, "metadata": metadata}
            modes = _MODES if self._remembers else [*_MODES, "values"]
            async with aclosing(self._graph.astream(given, config, stream_mode=modes)) as parts:
                async for mode, part in parts:
                    if mode == "values":
                        values = _uninterrupted(part)
                    elif (output := self._shown(mode, part)) is not None:
                        yield output
        after = await self._state()
        if after is not None and after.interrupts:
            yield NeedInput(_content(after.interrupts[0].value))
            return
        yield _Ended(_mapping(after.values if after is not None else values))

    async def _state(self) -> Snapshot | None:
        return await self._graph.aget_state(self._config) if self._remembers else None

    def _seen(self, before: Snapshot | None, now: int) -> int:
        return int(before.metadata.get(SEEN, now)) if before is not None and self._is_mine(before) else now

    def _is_mine(self, state: Snapshot) -> bool:
        about: dict[str, Any] = state.metadata or {}
        return about.get(TURN) == self._mark

    def _given(self, state: Snapshot | None) -> tuple[Any, str]:
        """What the graph goes on with, and what this turn has had it say before it was broken off."""
        if state is not None and self._is_mine(state):
            said = [one for one in _messages(state.values)[state.metadata[SEEN] :] if _is_said(one)]
            self._message = said[-1].id if said else None
            return (None if state.next and not state.interrupts else _NOTHING), "\n\n".join(map(_text, said))
        if state is not None and state.interrupts and self._turn.answers:
            from langgraph.types import Command

            return Command(resume={state.interrupts[0].id: _answer(self._turn)}), ""
        return self._prepare(self._turn), ""

    def _shown(self, mode: str, part: Any) -> Output | None:
        if mode == "custom":
            if isinstance(part, _OUTPUTS):
                return cast(Output, part)
            return Text(part) if isinstance(part, str) else Status(_content(part))
        message, _ = part
        text = _text(message)
        if not text or not _is_said(message):
            return None
        # What a model says after it has used a tool is a paragraph of its own.
        apart = "\n\n" if self._message not in (None, message.id) else ""
        self._message = message.id
        return Text(apart + text)


_NOTHING = object()


def _uninterrupted(values: Any) -> Any:
    if isinstance(values, Mapping) and "__interrupt__" in values:
        raise AgentError("A graph that asks needs a checkpointer, to go on when it is answered.")
    return cast(Any, values)


def graph(
    slug: str, compiled: Graph, *, name: str | None = None, description: str | None = None, version: str = "1.0.0",
    skills: Sequence[Skill] = (), rescue: Rescue = "restart", artifacts: Mapping[str, str | None] | Sequence[str] = (),
    answer: str | None = None, prepare: Prepare | None = None, **more: Unpack[More],
) -> GraphDriver:  # fmt: skip
    """Give a compiled graph an address. `artifacts` are members of its state to be shown at the end, with their media
    type, if need be; `answer` is the one that is its answer, where there are no messages; `prepare` makes its input of
    a turn."""
    if not hasattr(compiled, "astream"):
        raise ConfigurationError(f"Agent {slug}: this is not a compiled graph; call its compile().")
    about = description or f"The agent {slug}."
    spec = Agent(
        slug, name or plain_name(slug), about, version, tuple(skills) or (plain_skill(slug, name or slug, about),),
        rescue=rescue, **more,
    )  # fmt: skip
    return GraphDriver(spec, compiled, artifacts=artifacts, answer=answer, prepare=prepare)


def thread_of(turn: Turn) -> str:
    """The thread of a conversation. Whose it is is part of it: what one caller said is not to be told to another who
    names the same contextId."""
    return f"{turn.conversation}@{turn.principal}"


def _as_message(turn: Turn) -> Any:
    return {"messages": [{"role": "user", "content": turn.text}]}


def _answer(turn: Turn) -> Any:
    """A value, if one was sent; else the text."""
    values = [msgspec.json.decode(part.data) for part in turn.message.parts if part.data is not UNSET]
    return values[0] if values else turn.text


def _messages(values: Any) -> list[Any]:
    found = _mapping(values).get("messages")
    return cast(list[Any], found) if isinstance(found, list) else []


def _mapping(values: Any) -> Mapping[str, Any]:
    """A state is a dict, a dataclass or a model."""
    return cast(Mapping[str, Any], values if isinstance(values, Mapping) else vars(values))


def _is_said(message: Any) -> bool:
    return str(getattr(message, "type", "")).lower().startswith("ai")


def _text(message: Any) -> str:
    """Of a message, or a piece of one: models write a text, or blocks."""
    content = getattr(message, "content", "")
    if isinstance(content, str):
        return content
    return "".join(one if isinstance(one, str) else str(one.get("text") or "") for one in content)


def _content(value: Any) -> Content:
    return cast(Content, value) if isinstance(value, str | bytes | Mapping) else {"value": value}
