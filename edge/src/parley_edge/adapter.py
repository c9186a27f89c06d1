"""Write a local agent in a few lines:

    from parley_edge.adapter import Task, serve

    def shout(task: Task) -> str:
        return task.text.upper()

    serve(shout)

A handler is a function, async or not. It returns a text, a dict that becomes the output, or an `Output` with artifacts;
it may raise `Failure` with a reason for the caller.
"""

import asyncio
import inspect
import sys
import threading
import traceback
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from parley_edge.errors import WrongUse
from parley_edge.json_values import Json, as_list, as_object, read_object
from parley_edge.net.proxies import is_loopback
from parley_edge.net.serving import Exchange, listening
from parley_edge.system import heed_signals

__all__ = ["Adapter", "Artifact", "Failure", "Output", "Task", "adapter", "serve"]

T = TypeVar("T")

PORT = 18789
PATHS = ("/run-task", "/execute")
"""The adapter's own path, and the path of the OpenClaw preset."""
_TEXTS = ("task_run_id", "conversation_id", "workspace_id", "task_type", "initiator_agent_id", "target_agent_id")
_FAILED = "The local agent failed."


class Failure(Exception):
    """The work failed; the caller gets the message."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file to deliver. The platform stores it and assigns its id."""

    filename: str
    content_text: str
    title: str = ""
    summary: str = ""
    keywords: Sequence[str] = ()
    mime_type: str = ""
    artifact_type: str = "file"


@dataclass(frozen=True, slots=True)
class Output:
    """An answer with more than text: artifacts, parts, or a question."""

    text: str = ""
    artifacts: Sequence[Artifact] = ()
    parts: Sequence[Json] = ()
    input_required: bool = False
    """True if the text is a question: the run waits for the answer, which then arrives as another task."""
    more: Json = field(default_factory=dict[str, Any])
    """Additional members of the output."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task from the runtime."""

    task_run_id: str
    conversation_id: str = ""
    workspace_id: str = ""
    task_type: str = "chat"
    input: Json = field(default_factory=dict[str, Any])
    initiator_agent_id: str = ""
    target_agent_id: str = ""
    platform: Json = field(default_factory=dict[str, Any])
    _tell: Callable[[Json], None] = field(default=lambda said: None, repr=False, compare=False)
    _gone: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    @property
    def text(self) -> str:
        """Text of the task."""
        text = self.input.get("text", "")
        return text if isinstance(text, str) else ""

    @property
    def parts(self) -> list[Json]:
        """Parts of the input other than plain text, in A2A format."""
        return as_list(self.input.get("parts")) or []

    @property
    def canceled(self) -> bool:
        """True when the caller no longer waits. For sync handlers; an async handler is canceled instead."""
        return self._gone.is_set()

    def progress(self, text: str = "", percent: float | None = None) -> None:
        """Report progress to the caller; may be called from any thread."""
        said: Json = {"text": text} if text else {}
        self._tell({"progress": said if percent is None else {**said, "percent": percent}})

    def payload(self) -> Json:
        """The task as received."""
        return {name: getattr(self, name) for name in (*_TEXTS[:4], "input", *_TEXTS[4:], "platform")}


Answer = str | Json | Output | None
Handler = Callable[[Task], Answer | Coroutine[Any, Any, Answer]]


class Adapter:
    """Serves a handler at `POST /run-task`."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.__doc__ = handler.__doc__

    def __call__(self, task: Task) -> Answer | Coroutine[Any, Any, Answer]:
        return self._handler(task)

    def serve(
        self, port: int = PORT, host: str = "127.0.0.1", *, i_know_this_is_not_an_authentication_boundary: bool = False
    ) -> None:
        """Serve until SIGINT or SIGTERM."""
        exposed = i_know_this_is_not_an_authentication_boundary
        asyncio.run(self._until_stopped(host, port, exposed))

    async def _until_stopped(self, host: str, port: int, exposed: bool) -> None:
        stopped = asyncio.Event()
        if threading.current_thread() is threading.main_thread():
            heed_signals(stopped.set)
        async with self.listening(port, host, i_know_this_is_not_an_authentication_boundary=exposed) as url:
            print(f"The adapter listens on {url}", file=sys.stderr, flush=True)
            await stopped.wait()

    @asynccontextmanager
    async def listening(
        self, port: int = PORT, host: str = "127.0.0.1", *, i_know_this_is_not_an_authentication_boundary: bool = False
    ) -> AsyncGenerator[str, None]:
        """Serve inside a running event loop for the duration of the block; yields the URL."""
        check_host(host, exposed=i_know_this_is_not_an_authentication_boundary)
        async with AsyncExitStack() as stack:
            try:
                bound = await stack.enter_async_context(listening(self._handle, host, port))
            except OSError as error:
                raise WrongUse(f"Cannot listen on {host}:{port}: {error.strerror}.") from error
            name = f"[{host}]" if ":" in host else host
            yield f"http://{name}:{bound}{PATHS[0]}"

    async def _handle(self, exchange: Exchange) -> None:
        refusal = _refusal(exchange)
        if refusal is not None:
            status, reason = refusal
            await exchange.answer({"success": False, "error": reason}, status)
        elif exchange.request.method == "GET":
            await exchange.answer({"ok": True})
        else:
            await self._run(exchange)

    async def _run(self, exchange: Exchange) -> None:
        gone = threading.Event()
        task = _task(exchange, gone)
        if task is None:
            await exchange.answer(
                {"success": False, "error": "The request is not a task: it must be a JSON object with task_run_id."},
                400,
            )
            return
        try:
            said = await self._said(task)
        except asyncio.CancelledError:
            gone.set()
            raise
        await exchange.answer(said)

    async def _answer(self, task: Task) -> Answer:
        """Call the handler. A sync handler may block, so it runs in a thread."""
        handler = self._handler
        is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
        said = handler(task) if is_async else await _in_thread(lambda: handler(task))
        return await said if isinstance(said, Coroutine) else said

    async def _said(self, task: Task) -> Json:
        """The answer as an envelope. Details of unexpected errors go to the operator only, not to the caller."""
        try:
            return envelope(await self._answer(task))
        except Failure as failure:
            return {"success": False, "error": str(failure) or _FAILED}
        except Exception:  # noqa: BLE001 - any exception of a handler is a failed task
            traceback.print_exc()
            return {"success": False, "error": _FAILED}


def adapter(handler: Handler) -> Adapter:
    """Turn a function into an adapter: `@adapter`, then `NAME.serve()`."""
    return Adapter(handler)


def serve(
    handler: Handler,
    port: int = PORT,
    host: str = "127.0.0.1",
    *,
    i_know_this_is_not_an_authentication_boundary: bool = False,
) -> None:
    """Serve a handler until SIGINT or SIGTERM."""
    exposed = i_know_this_is_not_an_authentication_boundary
    Adapter(handler).serve(port, host, i_know_this_is_not_an_authentication_boundary=exposed)


def check_host(host: str, *, exposed: bool) -> None:
    """Refuse a host that other machines can reach, unless `exposed`: an adapter does not authenticate callers."""
    if not is_loopback(host) and not exposed:
        raise WrongUse(
            f"{host} can be reached from other machines, and an adapter does not authenticate callers.",
            "Omit the host, or add --i-know-this-is-not-an-authentication-boundary to allow it.",
        )


def envelope(answer: Answer) -> Json:
    """The envelope for a handler's answer, in the contract's format. A dict with `success` is used unchanged."""
    match answer:
        case None | str():
            return {"success": True, "output": {"text": answer or ""}}
        case Output():
            return {"success": True, "output": _output(answer)}
        case dict():
            return answer if "success" in answer else {"success": True, "output": answer}
        case _:  # pyright: ignore[reportUnnecessaryComparison] - handlers are not always typed
            raise TypeError(f"A handler must return a text, a dict or an Output, not {type(answer).__name__}.")


def _output(answer: Output) -> Json:
    said: Json = {**answer.more, "text": answer.text}
    if answer.parts:
        said["parts"] = list(answer.parts)
    if answer.artifacts:
        said["artifacts"] = [_artifact(one) for one in answer.artifacts]
    if answer.input_required:
        said["state"] = "input-required"
    return said


def _artifact(one: Artifact) -> Json:
    given = {**asdict(one), "keywords": list(one.keywords)}
    return {name: value for name, value in given.items() if value or name == "content_text"}


def _refusal(exchange: Exchange) -> tuple[int, str] | None:
    """Refuse requests from web pages, which must not start work here: they send an Origin, a runtime does not."""
    asked = exchange.request
    host = asked.headers.get("host", "").rpartition("@")[2]
    if "origin" in asked.headers or not _is_ours(host, exchange):
        return 403, "Requests from web pages are not accepted."
    if asked.method == "GET" and asked.path in ("/", "/healthz"):
        return None
    if asked.path not in PATHS:
        return 404, f"There is nothing at this path. Send tasks to {PATHS[0]}."
    if asked.method != "POST":
        return 405, "Tasks must be sent with POST."
    if asked.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        return 415, "A task must be sent as application/json."
    return None


def _is_ours(host: str, exchange: Exchange) -> bool:
    """Check the Host header: on a loopback address only loopback names are valid (protects from DNS rebinding)."""
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return is_loopback(name.strip("[]")) or not is_loopback(exchange.address)


def _task(exchange: Exchange, gone: threading.Event) -> Task | None:
    given = read_object(exchange.request.body)
    if given is None or not isinstance(given.get("task_run_id"), str):
        return None
    texts = {name: given[name] for name in _TEXTS if isinstance(given.get(name), str)}
    objects = {name: given[name] for name in ("input", "platform") if as_object(given.get(name)) is not None}
    return Task(**texts, **objects, _tell=_teller(exchange), _gone=gone)


def _teller(exchange: Exchange) -> Callable[[Json], None]:
    """A function that reports progress. The loop's thread writes the lines, in the order of the calls."""
    loop, thread = asyncio.get_running_loop(), threading.get_ident()

    def tell(said: Json) -> None:
        if threading.get_ident() == thread:
            exchange.line(said)
        else:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(exchange.line, said)

    return tell


async def _in_thread(work: Callable[[], T]) -> T:
    """Run work in a thread that no shutdown waits for: a handler may block for long."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(how: Callable[[], None]) -> None:
        if not done.done():
            how()

    def run() -> None:
        try:
            answer = work()
            how = lambda: done.set_result(answer)  # noqa: E731
        except BaseException as raised:  # noqa: BLE001 - passed on to the waiting caller
            error = raised if isinstance(raised, Exception) else RuntimeError("The handler tried to exit the process.")
            how = lambda: done.set_exception(error)  # noqa: E731
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, how)

    threading.Thread(target=run, daemon=True).start()
    return await done
