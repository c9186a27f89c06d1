"""A compiled LangGraph as an agent.

    driver = graph("writer", compiled, artifacts={"report": "text/markdown"})

Output of its nodes and models is streamed. An `interrupt` becomes a question, and its answer resumes the graph. A
cancel stops the graph. With a checkpointer the graph remembers a conversation and resumes an interrupted turn.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol, Unpack, cast, get_args
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET

from parley.drivers.function import More
from parley.errors import AgentError, ConfigurationError
from parley.execution.rules import ArtifactChunk, Content, Done, NeedInput, Output, Status, Text, Usage
from parley.execution.turn import Turn
from parley.runs.rules.agents import Agent, Rescue, Skill, plain_name, plain_skill

__all__ = ["graph"]

TURN, SEEN = "parley_turn", "parley_seen"
"""Keys in a checkpoint's metadata: the turn that made it, and the number of messages before that turn."""
_OUTPUTS = get_args(Output)
_MODES = ["messages", "custom"]

Prepare = Callable[[Turn], Any]


class GraphSnapshot(Protocol):
    """The attributes of LangGraph's state snapshot that the driver reads."""

    values: Any
    next: tuple[str, ...]
    metadata: Any
    interrupts: tuple[Any, ...]


class CompiledGraph(Protocol):
    """A graph as returned by `StateGraph.compile`. Declared here so that Parley does not depend on LangGraph."""

    checkpointer: Any

    def astream(self, input: Any, config: Any, /, *, stream_mode: Any) -> Any: ...
    async def aget_state(self, config: Any, /) -> Any: ...


class GraphDriver:
    def __init__(
        self,
        agent: Agent,
        graph: CompiledGraph,
        *,
        artifacts: Mapping[str, str | None] | Sequence[str] = (),
        answer: str | None = None,
        prepare: Prepare | None = None,
    ) -> None:
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
        # Two turns at once on the same thread would overwrite each other's checkpoints.
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
        """Return the outputs in the graph's final state: its artifacts, and its answer unless that was streamed."""
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
    """One execution of the graph for one turn."""

    def __init__(self, graph: CompiledGraph, turn: Turn, thread: str, prepare: Prepare) -> None:
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
                        continue
                    if mode == "messages" and (usage := _usage(*part)) is not None:
                        yield usage
                    if (output := self._shown(mode, part)) is not None:
                        yield output
        after = await self._state()
        if after is not None and after.interrupts:
            yield NeedInput(_content(after.interrupts[0].value))
            return
        yield _Ended(_mapping(after.values if after is not None else values))

    async def _state(self) -> GraphSnapshot | None:
        return await self._graph.aget_state(self._config) if self._remembers else None

    def _seen(self, before: GraphSnapshot | None, now: int) -> int:
        return int(before.metadata.get(SEEN, now)) if before is not None and self._is_mine(before) else now

    def _is_mine(self, state: GraphSnapshot) -> bool:
        about: dict[str, Any] = state.metadata or {}
        return about.get(TURN) == self._mark

    def _given(self, state: GraphSnapshot | None) -> tuple[Any, str]:
        """Return the input for the graph, and the text that this turn streamed before it was interrupted."""
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
        # Text that a model writes after a tool call starts a new paragraph.
        apart = "\n\n" if self._message not in (None, message.id) else ""
        self._message = message.id
        return Text(apart + text)


_NOTHING = object()


def _uninterrupted(values: Any) -> Any:
    if isinstance(values, Mapping) and "__interrupt__" in values:
        raise AgentError("The graph asked a question but cannot resume. Compile it with a checkpointer.")
    return cast(Any, values)


def graph(
    slug: str,
    compiled: CompiledGraph,
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "1.0.0",
    skills: Sequence[Skill] = (),
    rescue: Rescue = "restart",
    artifacts: Mapping[str, str | None] | Sequence[str] = (),
    answer: str | None = None,
    prepare: Prepare | None = None,
    **more: Unpack[More],
) -> GraphDriver:
    """Serve a compiled graph as an agent. `artifacts` names members of its state to deliver at the end, optionally with
    their media types. `answer` names the member that holds the answer, for graphs without messages. `prepare` makes
    the graph's input from a turn."""
    if not hasattr(compiled, "astream"):
        raise ConfigurationError(f"Agent {slug}: the graph is not compiled; call compile() and pass the result.")
    about = description or f"The agent {slug}."
    spec = Agent(
        slug,
        name or plain_name(slug),
        about,
        version,
        tuple(skills) or (plain_skill(slug, name or slug, about),),
        rescue=rescue,
        **more,
    )
    return GraphDriver(spec, compiled, artifacts=artifacts, answer=answer, prepare=prepare)


def thread_of(turn: Turn) -> str:
    """Return the LangGraph thread of a conversation. The id includes the owner, so that callers who send the same
    contextId cannot read each other's conversation."""
    return f"{turn.conversation}@{turn.principal}"


def _as_message(turn: Turn) -> Any:
    return {"messages": [{"role": "user", "content": turn.text}]}


def _answer(turn: Turn) -> Any:
    """Return the data value that was sent, if any; else the text."""
    values = [msgspec.json.decode(part.data) for part in turn.message.parts if part.data is not UNSET]
    return values[0] if values else turn.text


def _messages(values: Any) -> list[Any]:
    found = _mapping(values).get("messages")
    return cast(list[Any], found) if isinstance(found, list) else []


def _mapping(values: Any) -> Mapping[str, Any]:
    """Convert a state to a mapping. A state is a dict, a dataclass or a Pydantic model."""
    return cast(Mapping[str, Any], values if isinstance(values, Mapping) else vars(values))


def _is_said(message: Any) -> bool:
    return str(getattr(message, "type", "")).lower().startswith("ai")


def _usage(message: Any, about: Mapping[str, Any]) -> Usage | None:
    """Return the usage that a message or a chunk of one reports. A model's chunks report it in parts."""
    counted = cast(Mapping[str, Any], getattr(message, "usage_metadata", None) or {})
    read, written = _count(counted, "input_tokens"), _count(counted, "output_tokens")
    if not _is_said(message) or not (read or written):
        return None
    told = cast(Mapping[str, Any], getattr(message, "response_metadata", None) or {})
    model = told.get("model_name") or told.get("model") or about.get("ls_model_name") or "unknown"
    details = cast(Mapping[str, Any], counted.get("input_token_details") or {})
    return Usage(str(model), read, written, min(_count(details, "cache_read"), read))


def _count(counted: Mapping[str, Any], name: str) -> int:
    found = counted.get(name)
    return max(0, found) if isinstance(found, int) else 0


def _text(message: Any) -> str:
    """Return the text of a message or of a chunk. Its content is a string or a list of blocks."""
    content = getattr(message, "content", "")
    if isinstance(content, str):
        return content
    return "".join(one if isinstance(one, str) else str(one.get("text") or "") for one in content)


def _content(value: Any) -> Content:
    return cast(Content, value) if isinstance(value, str | bytes | Mapping) else {"value": value}
