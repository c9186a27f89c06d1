"""A compiled LangGraph as an agent.

    driver = graph("writer", compiled, artifacts={"report": "text/markdown"})

Output of its nodes and models is streamed. An `interrupt` becomes a question, and its answer resumes the graph. A
cancel stops the graph. A graph that is compiled without a checkpointer stores its checkpoints in the log of the run, so
that it can ask, and continues after a crash behind the last node that ended. With a checkpointer of its own it also
remembers the conversation by itself.
"""

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable, Container, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol, Unpack, cast, get_args
from weakref import WeakValueDictionary

import msgspec
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.checkpoint.base import get_checkpoint_metadata
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from parley.drivers.framework import (
    HISTORY,
    CallerQuestion,
    FrameworkTurn,
    PendingCall,
    framework_agent,
    text_of_part,
)
from parley.drivers.function import More
from parley.drivers.graph_calls import MODEL_CALLS, ModelCalls, dumped, loaded, record_usage, use_step_cache
from parley.errors import ConfigurationError
from parley.execution.rules import ArtifactChunk, Content, Done, NeedInput, Output, Status, Text
from parley.execution.turn import Turn
from parley.json_values import Fields, Json, fields_of
from parley.runs.rules.agents import Agent, Limits, Rescue, Skill
from parley.runs.rules.content import Part, Parts

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
    """A graph as returned by `StateGraph.compile`."""

    checkpointer: Any

    def astream(self, input: Any, config: Any, /, *, stream_mode: Any, durability: Any) -> Any: ...
    async def aget_state(self, config: Any, /) -> Any: ...
    def copy(self, update: Any, /) -> Any: ...


class GraphDriver:
    def __init__(
        self,
        agent: Agent,
        graph: CompiledGraph,
        *,
        artifacts: Mapping[str, str | None] | Sequence[str] = (),
        answer: str | None = None,
        prepare: Prepare | None = None,
        history: int = HISTORY,
    ) -> None:
        self._agent = agent
        self._graph = graph
        self._artifacts = artifacts if isinstance(artifacts, Mapping) else dict.fromkeys(artifacts)
        self._answer = answer
        self._prepare = prepare
        self._history = history
        self._threads: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        use_step_cache()

    @property
    def agent(self) -> Agent:
        return self._agent

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        work = FrameworkTurn(turn)
        # Two turns at once on the same thread would overwrite each other's checkpoints.
        lock = self._threads.setdefault(thread_of(turn), asyncio.Lock())
        async with lock, aclosing(work.outputs(lambda: self._loop(work))) as outputs:
            async for output in outputs:
                yield output

    async def _loop(self, work: FrameworkTurn) -> None:
        compiled = self._graph
        if not compiled.checkpointer:
            compiled = compiled.copy({"checkpointer": await _LogSaver(work).restored()})
        calls = ModelCalls(work)
        MODEL_CALLS.set(calls)
        try:
            state = await _Passage(compiled, work, lambda: self._input(work), calls.earlier).run()
        finally:
            calls.close()
        for output in self._made(state, work.said):
            await work.say(output)

    async def _input(self, work: FrameworkTurn) -> Any:
        """Return the input of the graph. A graph with its own checkpointer remembers earlier messages itself."""
        if self._prepare is not None:
            return self._prepare(work.turn)
        before, new = await work.conversation(0 if self._graph.checkpointer else self._history)
        said = [message for asked, answer in before for message in (_user(asked), _message("assistant", answer))]
        return {"messages": [*said, _user(new)]}

    def _made(self, state: Mapping[str, Any], streamed: bool) -> list[Output]:
        """Return the outputs in the graph's final state: its artifacts, and its answer unless that was streamed."""
        found: list[Output] = []
        if self._answer is not None and state.get(self._answer) is not None and not streamed:
            found.append(Text(str(state[self._answer])))
        for name, media in self._artifacts.items():
            if state.get(name) is not None:
                found.append(ArtifactChunk(_content(state[name]), id=name, name=name, media_type=media))
        return [*found, Done()]


class _Passage:
    """One execution of the graph for one turn."""

    def __init__(
        self, graph: CompiledGraph, work: FrameworkTurn, prepare: Callable[[], Any], earlier: Container[str]
    ) -> None:
        """`earlier` has the ids of messages that an earlier turn has shown."""
        self._graph = graph
        self._work = work
        self._prepare = prepare
        self._earlier = earlier
        self._mark = f"{work.turn.run_id}/{work.turn.number}"
        self._config: dict[str, Any] = {"configurable": {"thread_id": thread_of(work.turn)}}
        self._message: str | None = None

    async def run(self) -> Mapping[str, Any]:
        """Run the graph, and return its final state. Ask if it is interrupted."""
        before = await self._state()
        given = await self._given(before)
        seen = self._seen(before) + len(_messages(given) if isinstance(given, dict) else ())
        if given is not _NOTHING:
            await self._stream(given, {TURN: self._mark, SEEN: seen})
        after = await self._state()
        if not self._work.said:
            # Messages that a node returned in another form than LangChain's are not streamed.
            await self._work.text(_said(after.values, seen, self._earlier)[1])
        if after.interrupts:
            _resumed(self._work, after.interrupts[0])
        return _mapping(after.values)

    async def _stream(self, given: Any, metadata: dict[str, Any]) -> None:
        config = {**self._config, "metadata": metadata, "callbacks": [_Calls(self._work)]}
        # A checkpoint is stored before the next node starts.
        parts = self._graph.astream(given, config, stream_mode=_MODES, durability="sync")
        async with aclosing(parts):
            async for mode, part in parts:
                await self._show(mode, part)

    async def _state(self) -> GraphSnapshot:
        return await self._graph.aget_state(self._config)

    def _seen(self, before: GraphSnapshot) -> int:
        now = len(_messages(before.values))
        return int(before.metadata.get(SEEN, now)) if self._is_mine(before) else now

    def _is_mine(self, state: GraphSnapshot) -> bool:
        about: dict[str, Any] = state.metadata or {}
        return about.get(TURN) == self._mark

    async def _given(self, state: GraphSnapshot) -> Any:
        """Return the input for the graph, after streaming again what this turn said before it was interrupted."""
        if self._is_mine(state):
            self._message, text = _said(state.values, state.metadata[SEEN])
            await self._work.text(text)
            return None if state.next and not state.interrupts else _NOTHING
        if state.interrupts and self._work.turn.answers:
            return Command(resume={state.interrupts[0].id: _resumed(self._work, state.interrupts[0])})
        return await self._prepare()

    async def _show(self, mode: str, part: Any) -> None:
        if mode == "custom":
            await self._work.say(_custom(part))
            return
        message, _ = part
        text = _text(message)
        if text and _is_said(message) and message.id not in self._earlier:
            # Text that a model writes after a tool call starts a new paragraph.
            await self._work.text(text, begins=self._message not in (None, message.id))
            self._message = message.id


_NOTHING = object()


def _custom(part: Any) -> Output:
    if isinstance(part, _OUTPUTS):
        return cast(Output, part)
    return Text(part) if isinstance(part, str) else Status(_content(part))


# Questions.


def _resumed(work: FrameworkTurn, interrupt: Any) -> Any:
    """Return the value that resumes an interrupt. Ask for it if it is not known."""
    value = interrupt.value
    wanted = cast(dict[str, Any], value) if isinstance(value, dict) else {}
    if "action_requests" in wanted:
        return {"decisions": _decisions(work, str(interrupt.id), wanted["action_requests"])}
    if "choices" in wanted or "schema" in wanted:
        words = str(wanted.get("question") or wanted.get("message") or "Which one?")
        need = NeedInput(words, choices=wanted.get("choices") or (), schema=wanted.get("schema"))
    else:
        need = NeedInput(_content(value))
    return work.ask(CallerQuestion((f"interrupt.{interrupt.id}",), need))[0]


def _decisions(work: FrameworkTurn, id: str, requests: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the decisions about tool calls, as LangChain's human-in-the-loop middleware reads them."""
    calls = [PendingCall(f"{id}.{place}", one["name"], one["args"]) for place, one in enumerate(requests)]
    decided = work.approvals(calls)
    return [{"type": "approve" if decided[call.id] else "reject"} for call in calls]


class _Calls(AsyncCallbackHandler):
    """Records the usage of models, and shows the calls of tools."""

    def __init__(self, work: FrameworkTurn) -> None:
        self._work = work

    async def on_llm_end(self, response: LLMResult, **about: Any) -> None:
        for generation in (one for row in response.generations for one in row):
            if isinstance(generation, ChatGeneration):
                record_usage(self._work, generation)

    async def on_tool_start(self, serialized: Any, input_str: str, *, inputs: Any = None, **about: Any) -> None:
        named = cast(Mapping[str, Any], serialized or {})
        given = cast(Mapping[str, Any], inputs or {})
        plain: Json = msgspec.to_builtins({name: one for name, one in given.items() if name != "runtime"}, enc_hook=str)
        await self._work.show_call(PendingCall("", str(named.get("name") or "a tool"), plain))


# Checkpoints in the log.


class _LogSaver(InMemorySaver):
    """Stores the checkpoints of one exchange in the log of the run, as durable steps. Of a list that grew, such as the
    messages, only the new items are stored."""

    def __init__(self, work: FrameworkTurn) -> None:
        cast(Any, super()).__init__()
        self._work = work
        self._number = 0
        self._lists: dict[str, list[Any]] = {}
        self._writing = asyncio.Lock()

    async def restored(self) -> "_LogSaver":
        """Load the checkpoints that are in the log."""
        while (record := await self._work.recorded("checkpoint", str(self._number + 1))) is not None:
            self._number += 1
            self._load(fields_of(record))
        return self

    async def aput(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        about: Any = get_checkpoint_metadata(config, metadata)
        values = {
            name: checkpoint["channel_values"][name] for name in new_versions if name in checkpoint["channel_values"]
        }
        async with self._writing:
            await self._store(
                {
                    "config": _place(config),
                    "checkpoint": self._dumped({**checkpoint, "channel_values": {}}),
                    "metadata": self._dumped(about),
                    "versions": self._dumped(new_versions),
                    "values": {name: self._delta(config, name, value) for name, value in values.items()},
                }
            )
        return super().put(config, checkpoint, metadata, new_versions)

    async def aput_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        async with self._writing:
            await self._store(
                {"config": _place(config), "writes": self._dumped(list(writes)), "task": [task_id, task_path]}
            )
        super().put_writes(config, writes, task_id, task_path)

    async def _store(self, record: Fields) -> None:
        self._number += 1
        await self._work.keep("checkpoint", str(self._number), record)

    def _load(self, record: Fields) -> None:
        config: Any = {"configurable": record["config"]}
        if "writes" in record:
            task_id, path = cast(list[str], record["task"])
            super().put_writes(config, self._loaded(record["writes"]), task_id, path)
            return
        values = {name: self._whole(config, name, delta) for name, delta in fields_of(record["values"]).items()}
        checkpoint: Any = {**self._loaded(record["checkpoint"]), "channel_values": values}
        super().put(config, checkpoint, self._loaded(record["metadata"]), self._loaded(record["versions"]))

    def _delta(self, config: Any, name: str, value: Any) -> Json:
        if not isinstance(value, list):
            return {"value": self._dumped(value)}
        place = f"{_place(config)['checkpoint_ns']}/{name}"
        new, old = cast(list[Any], value), self._lists.get(place, [])
        same = next((at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), len(old))
        kept = min(same, len(old), len(new))
        self._lists[place] = list(new)
        return {"keep": kept, "value": self._dumped(new[kept:])}

    def _whole(self, config: Any, name: str, delta: Json) -> Any:
        found = fields_of(delta)
        value = self._loaded(found["value"])
        if "keep" not in found:
            return value
        place = f"{_place(config)['checkpoint_ns']}/{name}"
        whole = [*self._lists.get(place, [])[: cast(int, found["keep"])], *value]
        self._lists[place] = whole
        return whole

    def _dumped(self, value: Any) -> Json:
        return dumped(value, self.serde)

    def _loaded(self, stored: Json) -> Any:
        return loaded(stored, self.serde)


def _place(config: Any) -> dict[str, Json]:
    """Return the part of a configuration that identifies a checkpoint."""
    found = config["configurable"]
    place = {"thread_id": found["thread_id"], "checkpoint_ns": found.get("checkpoint_ns", "")}
    return {**place, "checkpoint_id": found["checkpoint_id"]} if found.get("checkpoint_id") else place


def graph(
    slug: str,
    compiled: CompiledGraph,
    *,
    name: str | None = None,
    description: str | None = None,
    version: str = "1.0.0",
    skills: Sequence[Skill] = (),
    limits: Limits | None = None,
    rescue: Rescue = "restart",
    artifacts: Mapping[str, str | None] | Sequence[str] = (),
    answer: str | None = None,
    prepare: Prepare | None = None,
    history: int = HISTORY,
    **more: Unpack[More],
) -> GraphDriver:
    """Serve a compiled graph as an agent. `artifacts` names members of its state to deliver at the end, optionally with
    their media types. `answer` names the member that holds the answer, for graphs without messages. `prepare` makes
    the graph's input from a turn. `history` is the number of earlier exchanges of the conversation that a graph without
    a checkpointer reads."""
    if not hasattr(compiled, "astream"):
        raise ConfigurationError(f"Agent {slug}: the graph is not compiled; call compile() and pass the result.")
    spec = framework_agent(
        slug, name=name, description=description, version=version, skills=skills, limits=limits, rescue=rescue, **more
    )
    return GraphDriver(spec, compiled, artifacts=artifacts, answer=answer, prepare=prepare, history=history)


def thread_of(turn: Turn) -> str:
    """Return the LangGraph thread of a conversation. The id includes the owner, so that callers who send the same
    contextId cannot read each other's conversation."""
    return f"{turn.conversation}@{turn.principal}"


# Messages.


def _message(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def _user(messages: Sequence[Parts]) -> dict[str, Any]:
    parts = [part for message in messages for part in message]
    texts = [text_of_part(part) for part in parts]
    if None not in texts:
        return _message("user", "\n".join(cast(list[str], texts)))
    return _message("user", [_block(part) for part in parts])


def _block(part: Part) -> dict[str, Any]:
    text = text_of_part(part)
    if text is not None:
        return {"type": "text", "text": text}
    media = part.media_type or "application/octet-stream"
    kind = "image" if media.startswith("image/") else "file"
    if part.url is not None:
        return {"type": kind, "url": part.url, "mime_type": media}
    name = {"filename": part.filename} if part.filename and kind == "file" else {}
    return {"type": kind, "base64": base64.b64encode(part.raw or b"").decode(), "mime_type": media, **name}


def _messages(values: Any) -> list[Any]:
    found = _mapping(values).get("messages")
    return cast(list[Any], found) if isinstance(found, list) else []


def _said(values: Any, seen: int, without: Container[str] = ()) -> tuple[str | None, str]:
    """Return the id of the last message that was said after the first `seen` ones, and the text of all of them."""
    said = [one for one in _messages(values)[seen:] if _is_said(one) and one.id not in without]
    return said[-1].id if said else None, "\n\n".join(filter(None, map(_text, said)))


def _mapping(values: Any) -> Mapping[str, Any]:
    """Convert a state to a mapping. A state is a dict, a dataclass or a Pydantic model."""
    return cast(Mapping[str, Any], values if isinstance(values, Mapping) else vars(values))


def _is_said(message: Any) -> bool:
    return str(getattr(message, "type", "")).lower().startswith("ai")


def _text(message: Any) -> str:
    """Return the text of a message or of a chunk. Its content is a string or a list of blocks."""
    content = getattr(message, "content", "")
    if isinstance(content, str):
        return content
    return "".join(one if isinstance(one, str) else str(one.get("text") or "") for one in content)


def _content(value: Any) -> Content:
    return cast(Content, value) if isinstance(value, str | bytes | Mapping) else {"value": value}
