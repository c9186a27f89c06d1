"""An A2A SDK executor as a driver: each input is one call of `execute`, and the events it enqueues go to our log."""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

import msgspec
from a2a.auth.user import User
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.context import ServerCallContext
from a2a.server.events import Event, EventQueue
from a2a.types import a2a_pb2 as pb
from google.protobuf import json_format

from parley.drivers.remote.protos import artifact_of, metadata_out, part_out, parts_in, state_of, state_out, words_of
from parley.drivers.remote.translation import ENDS, EXECUTOR, Ends, RemoteArtifact, ending
from parley.errors import AgentError
from parley.execution.rules import ArtifactChunk, Done, NeedAuth, NeedInput, Note, Output, Reply, Status
from parley.execution.turn import Turn
from parley.ids import RunId
from parley.runs.rules.access import Principal
from parley.runs.rules.agents import Agent
from parley.runs.rules.content import Artifact, Message
from parley.runs.rules.state import Run, State
from parley.runs.rules.view import StatusMessage
from parley.telemetry import tell

# From an executor's events to outputs of a turn. Pure; takes account of what an interrupted attempt left in the log.


# Why: docs/decisions/drivers.md#start-an-sdk-executors-turn-anew-after-a-crash
class Ids:
    """Artifact ids across attempts. By default an executor gives its artifacts random ids, so after a crash it makes
    the same artifacts with new ids. These replace the artifacts of the interrupted attempt, in order, instead of being
    added to them."""

    def __init__(self, turn: int, marks: Iterable[str], known: Iterable[str]) -> None:
        """`marks`: marks of this run so far; `known`: ids of its artifacts."""
        self._prefix = f"{turn}:"
        self._left = list(
            dict.fromkeys(one.removeprefix(self._prefix) for one in marks if one.startswith(self._prefix))
        )
        self._earlier = set(known) - set(self._left)
        self._named: dict[str, str] = {}

    def placed(self, made: RemoteArtifact) -> RemoteArtifact:
        """Return the chunk with the id that it has in our log. The first chunk of an artifact always starts it, even if
        it says `append`."""
        known = made.artifact in self._named or made.artifact in self._earlier
        id_ = self._named.setdefault(made.artifact, self._id(made.artifact))
        return msgspec.structs.replace(made, artifact=id_, append=made.append and known)

    def mark(self, id_: str) -> str:
        return self._prefix + id_

    def _id(self, given: str) -> str:
        if given in self._left:
            self._left.remove(given)
        elif self._left and given not in self._earlier:
            return self._left.pop(0)
        return given


class Telling:
    """Translates the events of one call of `execute`."""

    def __init__(self, ids: Ids, *, begun: bool = False) -> None:
        """`begun`: the task existed before this call."""
        self._ids = ids
        self._begun = begun
        self._marked: set[str] = set()
        self.is_task = False

    def outputs(self, event: Event) -> list[Output]:
        match event:
            case pb.Message():
                return [self._reply(event)]
            case pb.Task() if self._begun or self.is_task:
                # Many executors enqueue the task that they were given: an old copy, without later changes.
                return self._task([])
            case pb.Task():
                status, found = event.status, [output for one in event.artifacts for output in self._made(one)]
            case pb.TaskStatusUpdateEvent():
                status, found = event.status, list[Output]()
            case pb.TaskArtifactUpdateEvent():
                return self._task(self._made(event.artifact, append=event.append, last=event.last_chunk))
        words = words_of(status.message) if status.HasField("message") else None
        end = ending(state_of(status.state), words, EXECUTOR)
        said = [Status(words.parts)] if words and words.parts else []
        return self._task([*found, *([end] if end else said)])

    def _task(self, outputs: list[Output]) -> list[Output]:
        """Return the outputs of a task. The first event shows a caller, who may get a task or a message, that it is a
        task."""
        first, self.is_task = not self.is_task, True
        return outputs or ([Status(())] if first else [])

    def _reply(self, message: pb.Message) -> Reply:
        if self.is_task:
            raise AgentError("The executor enqueued a Message after it had started a Task.")
        metadata = json_format.MessageToDict(message.metadata) if message.HasField("metadata") else None
        return Reply(parts_in(message.parts), metadata)

    def _made(self, artifact: pb.Artifact, *, append: bool = False, last: bool = True) -> list[Output]:
        given = artifact_of(artifact)
        chunk = RemoteArtifact(given.id, given.parts, given.name, given.description, append, last, given.metadata)
        made = self._ids.placed(chunk)
        mark = "" if made.artifact in self._marked else self._ids.mark(made.artifact)
        self._marked.add(made.artifact)
        return [
            ArtifactChunk(
                made.parts,
                made.artifact,
                made.name,
                made.description,
                append=made.append,
                last=made.last,
                metadata=made.metadata,
                mark=mark,
            )
        ]


# From a turn to the SDK's request context.


class _Caller(User):
    """The caller, already authenticated by our server."""

    def __init__(self, principal: Principal) -> None:
        self._principal = principal

    @property
    def is_authenticated(self) -> bool:
        return True

    @property
    def user_name(self) -> str:
        return str(self._principal)


async def context_of(turn: Turn, place: int) -> RequestContext:
    """Return the request context for one input of a turn. A resumed first turn looks like a first turn: the executor
    starts again."""
    message = await _message(turn, turn.inputs[place])
    task = await _task(turn, place) if turn.number > 1 or place else None
    return RequestContext(
        _call(turn.principal, {"run": turn.run_id, "turn": turn.number, "attempt": turn.attempt}),
        pb.SendMessageRequest(message=message),
        turn.run_id,
        turn.conversation,
        task,
    )


def cancel_context_of(run: Run) -> RequestContext:
    task = pb.Task(id=run.id, context_id=run.conversation, status=pb.TaskStatus(state=state_out(run.state)))
    return RequestContext(_call(Principal.parse(run.principal), {"run": run.id}), None, run.id, run.conversation, task)


def _call(principal: Principal, about: dict[str, object]) -> ServerCallContext:
    return ServerCallContext(user=_Caller(principal), state={"parley": about})


async def _message(turn: Turn, message: Message) -> pb.Message:
    return pb.Message(
        message_id=message.id,
        role=pb.Role.ROLE_USER,
        task_id=turn.run_id,
        context_id=turn.conversation,
        parts=[part_out(part) for part in await turn.loaded(message.parts)],
        metadata=metadata_out(message.metadata),
        extensions=message.extensions,
        reference_task_ids=message.references,
    )


async def _task(turn: Turn, place: int) -> pb.Task:
    """Return the task as it was before this input: waiting with its question, if it asked one."""
    unread = {message.id for message in turn.inputs[place:]}
    before = [said for said in turn.history if said.role != "user" or said.id not in unread]
    asked = turn.question if not place else None
    status = pb.TaskStatus(state=state_out(State(asked) if asked else State.WORKING))
    if asked and before and before[-1].role == "agent":
        status.message.CopyFrom(await _said(turn, before.pop()))
    return pb.Task(
        id=turn.run_id,
        context_id=turn.conversation,
        status=status,
        history=[await _said(turn, one) for one in before],
        artifacts=[await _made(turn, one) for one in turn.artifacts],
    )


async def _said(turn: Turn, said: StatusMessage) -> pb.Message:
    return pb.Message(
        message_id=said.id,
        role=pb.Role.ROLE_USER if said.role == "user" else pb.Role.ROLE_AGENT,
        task_id=turn.run_id,
        context_id=turn.conversation,
        parts=[part_out(part) for part in await turn.loaded(said.parts)],
        metadata=metadata_out(said.metadata),
        extensions=said.extensions,
        reference_task_ids=said.references,
    )


async def _made(turn: Turn, artifact: Artifact) -> pb.Artifact:
    return pb.Artifact(
        artifact_id=artifact.id,
        name=artifact.name or "",
        description=artifact.description or "",
        parts=[part_out(part) for part in await turn.loaded(artifact.parts)],
        metadata=metadata_out(artifact.metadata),
    )


# One call of an executor, and the events that it enqueues.

WAITING = 64
"""Size of the event queue. An executor that is faster than the log waits."""


class Events(EventQueue):
    def __init__(self) -> None:
        self._queue = asyncio.Queue[Event | None](WAITING)
        self._closed = False

    async def enqueue_event(self, event: Event) -> None:
        """Add an event. After the queue is closed events are dropped, as in the SDK."""
        if not self._closed:
            await self._queue.put(event)

    async def finish(self) -> None:
        if not self._closed:
            await self._queue.put(None)

    async def next(self) -> Event | None:
        return await self._queue.get()

    def close(self) -> None:
        """Close the queue, so that an executor waiting for space continues."""
        self._closed = True
        while not self._queue.empty():
            self._queue.get_nowait()


class ExecutorCall:
    def __init__(self, executor: AgentExecutor, context: RequestContext) -> None:
        self._events = Events()
        self.task = asyncio.get_running_loop().create_task(self._execute(executor, context))

    async def _execute(self, executor: AgentExecutor, context: RequestContext) -> None:
        try:
            await executor.execute(context, self._events)
        except Exception:
            await self._events.finish()
            raise
        await self._events.finish()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield events until the executor has returned. Its exception, if any, is raised here after its events."""
        while (event := await self._events.next()) is not None:
            yield event
        await self.task

    async def returns(self, within_s: float) -> bool:
        """Tell whether the executor returns within this time."""
        await asyncio.wait({self.task}, timeout=within_s)
        return self.task.done()

    def leave(self) -> None:
        """Let the executor return by itself, because its turn is over."""
        self._events.close()

    async def stop(self, within_s: float) -> None:
        self.leave()
        self.task.cancel()
        await asyncio.wait({self.task}, timeout=within_s)


AUTH_S = 1.0
"""Time for an executor to return after it asks for authorization. One that does not return waits for the authorization
itself, and its turn continues."""
STOP_S = 4.0
CANCEL_S = 5.0
_ANSWERED = (Done, NeedInput, NeedAuth)
"""Outputs that do not end a turn while it has further inputs."""


class ExecutorDriver:
    def __init__(self, agent: Agent, executor: AgentExecutor) -> None:
        self._agent = agent
        self._executor = executor
        self._leaving: dict[RunId, ExecutorCall] = {}

    @property
    def agent(self) -> Agent:
        return self._agent

    async def run(self, turn: Turn) -> AsyncGenerator[Output, None]:
        if (before := self._leaving.get(turn.run_id)) is not None:
            await asyncio.wait({before.task})
        if not turn.notes:
            # A driver is called for a cancel only if the run has a note.
            yield Note({"executor": type(self._executor).__name__})
        ids = Ids(turn.number, turn.marks, [artifact.id for artifact in turn.artifacts])
        for place in range(len(turn.inputs)):
            async with aclosing(self._executed(turn, place, ids)) as outputs:
                async for output in outputs:
                    if not isinstance(output, _ANSWERED) or place == len(turn.inputs) - 1:
                        yield output

    async def _executed(self, turn: Turn, place: int, ids: Ids) -> AsyncGenerator[Output, None]:
        telling = Telling(ids, begun=turn.number > 1 or place > 0)
        call, over = ExecutorCall(self._executor, await context_of(turn, place)), False
        try:
            async with aclosing(call.events()) as events:
                async for event in events:
                    for output in telling.outputs(event):
                        if isinstance(output, NeedAuth) and not await call.returns(AUTH_S):
                            yield Status(output.content)
                        elif isinstance(output, ENDS):
                            over = True
                            yield self._left(turn.run_id, call, output)
                            return
                        else:
                            yield output
            over = True
            if not telling.is_task:
                raise AgentError("The executor returned without enqueuing an event.")
            yield Done()
        finally:
            if not over:
                await call.stop(STOP_S)

    def _left(self, run_id: RunId, call: ExecutorCall, end: Ends) -> Ends:
        """End the turn while the executor may still clean up. It is not called again for this run before it returns."""

        def returned(task: asyncio.Task[None]) -> None:
            if self._leaving.get(run_id) is call:
                del self._leaving[run_id]
            if not task.cancelled() and (error := task.exception()) is not None:
                tell("executor.raised", run=run_id, agent=self._agent.slug, error=error)

        call.leave()
        self._leaving[run_id] = call
        call.task.add_done_callback(returned)
        return end

    async def cancel_work(self, run: Run) -> None:
        """Notify the executor that its task was canceled. The task stays canceled, whatever the executor does."""
        if run.state is not State.CANCELED:
            return
        heard = Events()
        heard.close()
        try:
            async with asyncio.timeout(CANCEL_S):
                await self._executor.cancel(cancel_context_of(run), heard)
        except Exception as error:  # noqa: BLE001 - many executors raise here to say that they cannot
            tell("executor.not_canceled", run=run.id, agent=self._agent.slug, error=error)
