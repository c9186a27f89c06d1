"""A small A2A 1.x client over JSON-RPC that survives broken connections: for the command line, tests and users.

A broken stream is resumed after the last event seen; a send is retried with its idempotency key. With A2A 1.1, missed
updates are detected by their generation, and a task of an agent without streaming is followed by long polls.
"""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Literal
from urllib.parse import quote

import httpx2
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field, structs

from parley.client.generations import Updates, generation_in
from parley.client.http import (
    FIRST_RETRIES,
    RETRIES,
    HttpAnswer,
    Json,
    Unreachable,
    ask,
    open_events,
    pause_s,
    reaching,
    token_headers,
)
from parley.errors import ParleyError
from parley.ids import new_id
from parley.runs.rules.content import Artifact, Part
from parley.runs.rules.state import State
from parley.runs.rules.view import Answer, compose, usage_in
from parley.security.outbound import open_client

_ENDED = ("TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED", "TASK_STATE_REJECTED")
_POLL_S = 1.0
UNSUPPORTED = -32004
"""The JSON-RPC code of an operation that a server does not support."""
_WAITING = ("TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED")

Content = str | list[Json]
"""Content of a message: a text, or parts in the format of A2A 1.0."""
OnRetry = Callable[[str, float], None]
"""Called before each reconnection with the reason and the seconds until the next attempt."""


class _Reply(msgspec.Struct):
    jsonrpc: str
    result: Any = None
    error: Json | None = None


class RemoteError(ParleyError):
    """The server refused the request; `rpc` is its JSON-RPC code."""

    code = "remote_error"

    def __init__(self, error: Json, status: int = 200) -> None:
        super().__init__(str(error.get("message", "The server refused the request.")))
        self.status = status
        """HTTP status."""
        code = error.get("code")
        self.rpc = code if isinstance(code, int) else 0
        self.data: list[Json] = error.get("data") or error.get("details") or []

    @property
    def reason(self) -> str:
        """Reason of the refusal, as the server names it."""
        return str(self.data[0].get("reason", "")) if self.data else ""


class UnreadableAnswer(ParleyError):
    """The server's result is neither a task nor a message of A2A 1.0."""

    code = "unreadable_answer"


class SendAnswer(Answer, frozen=True):
    """The answer to `Client.send`: an `Answer`, and the JSON result of the server in `result`. `answer["task"]` is
    short for `answer.result["task"]`."""

    result: Json = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.result[name]

    def __contains__(self, name: str) -> bool:
        return name in self.result

    def get(self, name: str, default: Any = None) -> Any:
        """Return a member of `result`, or the default."""
        return self.result.get(name, default)


class Client:
    """Client of one agent at its address (or of the root of a Parley server, for any of its tasks).

    `token` is an API key or an issuer's token; an HTTP client passed as `http` must set its own credentials. With
    `repeats=False` no request is ever sent twice, for servers without idempotency keys. `on_retry` is called before
    each attempt to reconnect. `version` is the version of A2A that the server must offer: 1.0 or 1.1.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = 60.0,
        http: httpx2.AsyncClient | None = None,
        repeats: bool = True,
        on_retry: OnRetry | None = None,
        version: Literal["1.0", "1.1"] = "1.0",
    ) -> None:
        self._url = url
        self._version = version
        self._repeats = repeats
        self._on_retry = on_retry
        timeout = httpx2.Timeout(timeout_s, connect=5.0)
        self._http = http or open_client(timeout=timeout, headers=token_headers(token))

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def card(self) -> Json:
        """Fetch the card of the agent."""
        reply = await self._http.get(self._url.rstrip("/") + "/.well-known/agent-card.json")
        reply.raise_for_status()
        return reply.json()

    async def call(self, method: str, params: Json, headers: dict[str, str] | None = None) -> Any:
        """Call a JSON-RPC method of A2A, and return its result."""
        return _result(await self._post(self._url, _request(method, params), headers))

    async def _post(self, url: str, body: Json, headers: dict[str, str] | None) -> HttpAnswer:
        with reaching(url):
            return await ask(self._http, "POST", url, json=body, headers=self._headers(headers))

    def _headers(self, more: dict[str, str] | None) -> dict[str, str]:
        return {"A2A-Version": self._version, **(more or {})}

    async def send(
        self,
        text: Content,
        *,
        task: str | None = None,
        context: str | None = None,
        key: str | None = None,
        configuration: Json | None = None,
        generation: int | None = None,
    ) -> SendAnswer:
        """Send a message, and wait until the agent is done or asks a question. `task` continues a task, for example to
        answer its question; `context` is the conversation. The same message under the same idempotency `key` is sent
        once, also from another process. With the configuration `{"returnImmediately": True}` the
        answer only says that the task is accepted. With `generation` (A2A 1.1) the message is refused if the task has
        another one by then."""
        # The id is a part of what must be the same under one key.
        id_ = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{self._url}#{key}")) if key else None
        params: Json = {"message": message(text, task=task, context=context, id_=id_)}
        if generation is not None:
            configuration = {**(configuration or {}), "ifGenerationMatch": generation}
        if configuration:
            params["configuration"] = configuration
        return answer_in(await self.call("SendMessage", params, {"Idempotency-Key": key} if key else None))

    async def get(self, task: str) -> Json:
        """Return a task."""
        return await self.call("GetTask", {"id": task})

    async def poll(self, task: str, generation: int) -> Json:
        """Return a task as soon as it has a higher generation than this one, or after a time that the server sets
        (A2A 1.1). A server without generations answers at once."""
        return await self.call("GetTask", {"id": task, "currentGeneration": generation})

    async def list(self, **query: object) -> Json:
        """Return a page of the caller's tasks; `query` as in ListTasks (`contextId`, `status`, `pageSize`, …)."""
        return await self.call("ListTasks", query)

    async def cancel(self, task: str, reason: str | None = None) -> Json:
        """Cancel a task, and return it."""
        return await self.call("CancelTask", {"id": task, **({"metadata": {"reason": reason}} if reason else {})})

    async def fork(self, task: str, at: int | None = None, content: Content | None = None) -> Json:
        """Create a task that starts as a copy of another up to an event (a Parley extension)."""
        body: Json = {} if at is None else {"at": at}
        if content is not None:
            body["message"] = message(content)
        url = f"{self._url.rstrip('/')}/tasks/{quote(task, safe='')}:fork"
        answer = await self._post(url, body, {"Idempotency-Key": new_id()})
        fork = answer.read(Json) if answer.ok else None
        if fork is None:
            raise _refused(answer)
        return fork

    async def stream(
        self, text: Content, *, task: str | None = None, context: str | None = None
    ) -> AsyncGenerator[Json, None]:
        """Send a message and follow its task until it ends or waits for an answer. The task of an agent without
        streaming is followed by long polls, with A2A 1.1: each result is then the whole task."""
        params: Json = {"message": message(text, task=task, context=context)}
        key = {"Idempotency-Key": new_id()}
        try:
            async with aclosing(self._streamed(params, key)) as results:
                async for result in results:
                    yield result
        except RemoteError as error:
            if error.rpc != UNSUPPORTED or self._version == "1.0":
                raise
            async with aclosing(self._sent_and_polled(params, key)) as results:
                async for result in results:
                    yield result

    async def _streamed(self, params: Json, key: dict[str, str]) -> AsyncGenerator[Json, None]:
        if not self._repeats:
            async with aclosing(self._stream_once(params)) as results:
                async for result in results:
                    yield result
            return
        async with aclosing(self._stream_resumed("SendStreamingMessage", params, None, key)) as steps:
            async for _, result in steps:
                yield result

    async def _sent_and_polled(self, params: Json, key: dict[str, str]) -> AsyncGenerator[Json, None]:
        result = await self.call("SendMessage", {**params, "configuration": {"returnImmediately": True}}, key)
        yield result
        if "task" not in result or _state(result["task"]) in (*_ENDED, *_WAITING):
            return
        async with aclosing(self._polled(result["task"])) as tasks:
            async for task in tasks:
                yield {"task": task}
                if _state(task) in _WAITING:
                    return

    async def _polled(self, task: Json) -> AsyncGenerator[Json, None]:
        """Yield a task after each change, until it ends. After the server's time limit it is asked again."""
        while _state(task) not in _ENDED:
            before, task = task, await self.poll(task["id"], generation_in(task))
            if not generation_in(task):
                # Without generations the server answers at once, so this is an ordinary poll.
                await asyncio.sleep(_POLL_S)
            if task != before:
                yield task

    async def tail(self, task: str, after: int | None = None) -> AsyncGenerator[tuple[int, Json], None]:
        """Follow a task after an event, through broken connections, until it ends; yield a task that has ended once."""
        try:
            async with aclosing(self._stream_resumed("SubscribeToTask", {"id": task}, after, {})) as steps:
                async for step in steps:
                    yield step
        except RemoteError as error:
            now = await self.get(task) if error.rpc == UNSUPPORTED else {}
            if _state(now) not in _ENDED and (not now or self._version == "1.0"):
                raise
            yield after or 0, {"task": now}
            async with aclosing(self._polled(now)) as tasks:
                async for now in tasks:
                    yield after or 0, {"task": now}

    async def events(
        self, method: str, params: Json, headers: dict[str, str] | None = None
    ) -> AsyncGenerator[tuple[int | None, Json], None]:
        """Yield the events of one connection as they arrive: ids and complete JSON-RPC responses."""
        accept = {"Accept": "text/event-stream", **(headers or {})}
        sent: Json = {"json": _request(method, params), "headers": self._headers(accept)}
        async with open_events(self._http, "POST", self._url, _result, **sent) as events:
            last: int | None = None
            async for number, data in events:
                last = last if number is None else number
                yield last, json.loads(data)

    async def _stream_once(self, params: Json) -> AsyncGenerator[Json, None]:
        """Send once; follow the task by its id if the stream breaks or is closed early."""
        task, updates = "", Updates()
        try:
            async with aclosing(self.events("SendStreamingMessage", params)) as replies:
                async for _, reply in replies:
                    if "error" in reply:
                        raise RemoteError(reply["error"])
                    async with aclosing(self._shown(updates, result := reply["result"])) as results:
                        async for shown in results:
                            yield shown
                    if _is_last(result, waits=True):
                        return
                    task = _task_of(result) or task
        except httpx2.TransportError as error:
            if not task:
                raise Unreachable(f"{self._url} does not answer ({type(error).__name__}).") from error
        if not task:
            raise Unreachable(f"{self._url} closed the stream without sending an event.")
        found = await self.get(task)
        if _state(found) in (*_ENDED, *_WAITING):
            yield {"task": found}
            return
        async with aclosing(self.tail(task)) as steps:
            async for _, result in steps:
                yield result
                if _is_last(result, waits=True):
                    return

    async def _shown(self, updates: Updates, result: Json) -> AsyncGenerator[Json, None]:
        """Yield a result of a stream; in place of an update after a gap, the whole task."""
        number = generation_in(_numbered(result))
        if updates.missed(number, whole="task" in result):
            task = await self.get(_task_of(result))
            updates.caught_up(generation_in(task))
            yield {"task": task}
        elif "task" in result or not updates.is_known(number):
            yield result

    async def _stream_resumed(
        self, method: str, params: Json, after: int | None, headers: dict[str, str]
    ) -> AsyncGenerator[tuple[int, Json], None]:
        tries, ended, answered = 0, False, False
        updates = Updates()
        while True:
            cursor = {"Last-Event-ID": str(after)} if after is not None else {}
            reason = "the connection was closed"
            try:
                came = False
                async with aclosing(self.events(method, params, {**headers, **cursor})) as replies:
                    async for id_, reply in replies:
                        if "error" in reply:
                            raise RemoteError(reply["error"])
                        tries, came, answered = 0, True, True
                        after = id_ if id_ is not None else after
                        async with aclosing(self._shown(updates, reply["result"])) as results:
                            async for result in results:
                                yield after or 0, result
                        if _is_last(reply["result"], waits=method == "SendStreamingMessage"):
                            return
                # The stream of an ended task closes at once. But if a stopping server closed this stream and the task
                # ended after that, events are missing: only a stream opened after the end was known is complete.
                if ended and not came:
                    return
                if after is not None and method == "SubscribeToTask" and tries == 0:
                    ended = _state(await self.get(params["id"])) in _ENDED
                    if ended:
                        continue
            except (httpx2.TransportError, Unreachable) as error:
                reason = _reason(error)
            tries += 1
            if tries > (RETRIES if answered else FIRST_RETRIES):
                raise Unreachable(f"{self._url} does not answer ({reason}).")
            pause = pause_s(tries)
            if self._on_retry is not None:
                self._on_retry(reason, pause)
            await asyncio.sleep(pause)


def message(text: Content, *, task: str | None = None, context: str | None = None, id_: str | None = None) -> Json:
    """Create a user's message in the format of A2A 1.0."""
    parts = [{"text": text}] if isinstance(text, str) else text
    wire: Json = {"messageId": id_ or new_id(), "role": "ROLE_USER", "parts": parts}
    if task:
        wire["taskId"] = task
    if context:
        wire["contextId"] = context
    return wire


def _request(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": new_id(), "method": method, "params": params}


def _reason(error: Exception) -> str:
    """Return a short reason for a failed connection."""
    if isinstance(error, Unreachable):
        return error.message
    if isinstance(error, httpx2.ConnectTimeout):
        return "connecting timed out"
    if isinstance(error, httpx2.ConnectError):
        return "cannot connect"
    return "the connection broke"


def _result(answer: HttpAnswer) -> Any:
    body = answer.read(_Reply)
    if body is None:
        raise _refused(answer)
    if body.error is not None:
        raise RemoteError(body.error, answer.status)
    return body.result


def _refused(answer: HttpAnswer) -> ParleyError:
    """Return the error for a response that is not JSON-RPC. Servers send such a response before they read the request,
    for example when credentials are missing."""
    if answer.error is not None:
        return RemoteError(answer.error, answer.status)
    return Unreachable(f"{answer.url} answered {answer.status} without a JSON-RPC response.")


def _task_of(result: Json) -> str:
    for kind, name in (("task", "id"), ("statusUpdate", "taskId"), ("artifactUpdate", "taskId")):
        if kind in result:
            return str(result[kind][name])
    return ""


def _numbered(result: Json) -> Json:
    """Return the task or the update of a result, which has a generation in A2A 1.1."""
    return result.get("task") or result.get("statusUpdate") or result.get("artifactUpdate") or {}


def _state(task: Json) -> str:
    return str(task.get("status", {}).get("state", ""))


def _is_last(result: Json, *, waits: bool) -> bool:
    if "message" in result:
        return True
    state = _state(result.get("statusUpdate") or result.get("task") or {})
    return state in _ENDED or (waits and state in _WAITING and "statusUpdate" in result)


# Answers, read from the results of an A2A 1.0 server.

_PREFIX = "TASK_STATE_"
_UNSTATED = ("", "unspecified")


class _Message(Struct, rename="camel"):
    parts: list[Part] | None = None
    context_id: str | None = None
    metadata: Raw | UnsetType = UNSET


class _Status(Struct, frozen=True):
    state: str = ""
    message: _Message | None = None


class _Artifact(Struct, rename="camel"):
    artifact_id: str = ""
    parts: list[Part] | None = None
    name: str | None = None
    description: str | None = None
    metadata: Raw | UnsetType = UNSET


class _Task(Struct, rename="camel"):
    id: str = ""
    context_id: str | None = None
    status: _Status = _Status()
    artifacts: list[_Artifact] | None = None
    metadata: Raw | UnsetType = UNSET


class _Result(Struct):
    task: _Task | None = None
    message: _Message | None = None


class _Coded(Struct):
    code: str = ""


_decode = msgspec.json.Decoder(_Result).decode
_NULL = b"null"


def answer_in(result: Any) -> SendAnswer:
    """Return the answer in the result of `SendMessage`: `{"task": …}` or `{"message": …}`."""
    try:
        read = _read(_decode(msgspec.json.encode(result)))
    except (msgspec.MsgspecError, ValueError) as error:
        raise UnreadableAnswer("The server's answer is not valid A2A 1.0.") from error
    if read is None:
        raise UnreadableAnswer("The server's answer is neither a task nor a message of A2A 1.0.")
    return SendAnswer(**structs.asdict(read), result=result)


def _read(result: _Result) -> Answer | None:
    if result.task is not None:
        return _of_task(result.task)
    if result.message is None:
        return None
    message = result.message
    return compose(State.COMPLETED, (), tuple(message.parts or ()), conversation=message.context_id or "")


def _of_task(task: _Task) -> Answer:
    said, state = task.status.message, _state_named(task.status.state)
    return compose(
        state,
        tuple(_artifact(one) for one in task.artifacts or ()),
        tuple(said.parts or ()) if said else (),
        usage=usage_in(_object(task.metadata)),
        run_id=task.id,
        conversation=task.context_id or "",
        code=_code(said) if said and state in (State.FAILED, State.REJECTED) else "",
    )


def _state_named(wire: str) -> State:
    """Return the state. A server that states none has accepted the task."""
    name = wire.removeprefix(_PREFIX).lower()
    return State.SUBMITTED if name in _UNSTATED else State(name)


def _artifact(wire: _Artifact) -> Artifact:
    parts = tuple(wire.parts or ())
    return Artifact(wire.artifact_id, parts, wire.name, wire.description, _object(wire.metadata), complete=True)


def _object(metadata: Raw | UnsetType) -> Raw | UnsetType:
    return UNSET if metadata is UNSET or bytes(metadata) == _NULL else metadata


def _code(said: _Message) -> str:
    about = _object(said.metadata)
    return "" if about is UNSET else msgspec.json.decode(about, type=_Coded).code
