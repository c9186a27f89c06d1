"""The application object: agents and settings, to serve, to mount in another application, or to ask in process.

app = Parley(agents=[echo])
app.run(port=8200)
"""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.markup import escape
from starlette.types import ASGIApp, Receive, Scope, Send

from parley import extras
from parley.app import open_exchange, open_faces, tune_interpreter
from parley.app.workers import Worker, count_of, supervise, this_worker
from parley.definitions.frameworks import adapted
from parley.definitions.loader import Sources, is_driver, sources
from parley.definitions.watcher import DefinitionProblem, Definitions, following
from parley.errors import ConfigurationError
from parley.execution.driver import Driver
from parley.execution.rules import Content, parts_of
from parley.http.requests import answer
from parley.http.server import Listening, bind, live, url_of
from parley.ids import new_id
from parley.runs.requests import Send as SendRequest
from parley.runs.rules.access import LOCAL
from parley.runs.rules.content import Message
from parley.runs.rules.view import Answer, answer_of
from parley.runs.service import Exchange
from parley.settings import FILE, Settings, load
from parley.telemetry import logs, tell
from parley.telemetry.logs import log_by_logging

LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
Agents = Iterable[Driver | str | Path | object]
"""Agents of an application: `@agent` functions and other drivers, agents of frameworks, and paths of definitions or
Python files."""


class Parley:
    """Agents and the settings of their server. `run` serves them, `asgi` returns an ASGI application, and inside
    `async with app` the agents can be asked without a server.

    `agents` are `@agent` functions, other drivers, agents of frameworks, and paths of definitions; without them, agents
    are found as by `parley serve`. `settings` is a `Settings` object; or pass settings by name, such as
    `store="memory"`. Settings that are not given come from the environment and `parley.toml`.
    """

    def __init__(self, agents: Agents | None = None, settings: Settings | None = None, **given: Any) -> None:
        if settings is not None and given:
            raise ConfigurationError(
                f"Pass a Settings object or settings by name, not both: {', '.join(sorted(given))}.", field="settings"
            )
        self.settings = settings or load(**given)
        self._agents = None if agents is None else _checked(agents)
        self._service: _Service | None = None
        self._users = 0
        self._asgi = _Asgi(self)

    def run(self, host: str | None = None, port: int | None = None) -> None:
        """Serve until SIGTERM or SIGINT, like `parley serve`."""
        serve(_with(self.settings, host=host, port=port), self._definitions)

    def asgi(self) -> ASGIApp:
        """Return the ASGI application, for any ASGI server or to mount in another application.

        It starts with the server's lifespan. Starlette and FastAPI do not pass their lifespan to mounted applications:
        there, pass `lifespan=app.lifespan` to the parent. Without it, the application starts with its first request.
        """
        return self._asgi

    @asynccontextmanager
    async def lifespan(self, parent: object = None) -> AsyncGenerator[None, None]:
        """Run the application: the lifespan of a parent application that mounts `asgi()`."""
        async with self:
            if self.settings.public_url is not None:
                await self._running().faces(self.settings.public_url.rstrip("/"))
            yield

    async def __aenter__(self) -> "Parley":
        service = self.start()
        self._users += 1
        try:
            await service.opened()
        except BaseException:
            self._users -= 1
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._users -= 1
        if self._users == 0 and self._service is not None:
            await self._service.stop()

    @property
    def exchange(self) -> Exchange:
        """The engine of the running application."""
        return self._running().exchange

    async def ask(
        self, agent: str | Driver, content: Content, *, task: str | None = None, context: str | None = None
    ) -> Answer:
        """Ask an agent, and wait until it is done or asks a question. `task=answer.run_id` answers the question;
        `context=answer.conversation` continues the conversation with a new run."""
        exchange = self.exchange
        slug = agent if isinstance(agent, str) else agent.agent.slug
        message = Message(new_id(), parts_of(content))
        outcome = await exchange.send(SendRequest(slug, LOCAL, message, task, context))
        return answer_of(await exchange.answered(outcome))

    def start(self) -> "_Service":
        """Start the application in the running event loop, if it is not running yet."""
        if self._service is None or not self._service.alive:
            self._service = _Service(self.settings, self._definitions())
        return self._service

    def _running(self) -> "_Service":
        if self._service is None or not self._service.alive:
            raise ConfigurationError(
                "The application is not running: use `async with app`, or pass its lifespan to the parent application."
            )
        return self._service

    def _definitions(self) -> Definitions:
        if self._agents is None:
            return Definitions(sources(self.settings.agents, FILE))
        return read_agents(self._agents)


def read_agents(agents: Agents) -> Definitions:
    """Read the definitions among some agents."""
    found = _checked(agents)
    paths = tuple(str(one) for one in found if isinstance(one, str | Path))
    return Definitions(Sources(paths), [one for one in found if not isinstance(one, str | Path)])


class _Service:
    """A running application. One task opens and closes all its parts, so that any task may start or stop it. When the
    event loop ends, the task is canceled and closes everything too."""

    def __init__(self, settings: Settings, definitions: Definitions) -> None:
        self._settings = settings
        self._definitions = definitions
        self._loop = asyncio.get_running_loop()
        self._exchange: asyncio.Future[Exchange] = self._loop.create_future()
        self._faces: asyncio.Future[ASGIApp] = self._loop.create_future()
        self._url: asyncio.Future[str | None] = self._loop.create_future()
        """The base URL for the faces; None to stop without faces."""
        self._stop = asyncio.Event()
        self._task = self._loop.create_task(self._live())

    @property
    def alive(self) -> bool:
        return not self._task.done() and self._loop is asyncio.get_running_loop()

    @property
    def exchange(self) -> Exchange:
        return self._exchange.result()

    async def opened(self) -> None:
        await asyncio.shield(self._exchange)

    async def faces(self, url: str) -> ASGIApp:
        """Return the application of all faces. The first caller sets its base URL."""
        if not self._url.done():
            self._url.set_result(url)
        await self.opened()
        return await asyncio.shield(self._faces)

    async def stop(self) -> None:
        if not self._url.done():
            self._url.set_result(None)
        self._stop.set()
        await self._task

    async def _live(self) -> None:
        detach = log_by_logging()
        try:
            async with open_agents(self._settings, self._definitions) as exchange:
                self._exchange.set_result(exchange)
                await self._serve(exchange)
        except Exception as error:
            waiting = self._faces if self._exchange.done() else self._exchange
            if waiting.done():
                raise
            waiting.set_exception(error)
        finally:
            detach()

    async def _serve(self, exchange: Exchange) -> None:
        try:
            url = await self._url
            if url is None:
                return
            async with open_faces(exchange, self._settings, url, None, self._definitions) as faces:
                self._faces.set_result(faces)
                try:
                    await self._stop.wait()
                finally:
                    await drain(exchange, self._settings.drain_s)
        finally:
            exchange.streams.stop()


# The ASGI application. Its base URL is `public_url`, or else the address of the socket and the path of the mount.

_NOT_LOCAL = {
    "code": "auth_required",
    "message": "Without authentication Parley answers only on this machine. Listen on 127.0.0.1, "
    "or set auth to required, or to none if every client that can reach the server may use it.",
}
_PARENTS = ("route", "endpoint")
"""Keys of the scope that a parent's router sets, and that mean something else below."""


class _Asgi:
    def __init__(self, app: Parley) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await live(self._app.lifespan(), receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
        elif self._app.settings.auth == "local" and _host(scope) not in LOOPBACK_HOSTS:
            await answer(send, 403, {"error": _NOT_LOCAL})
        else:
            faces = await self._app.start().faces(self._base_url(scope))
            await faces(_below_mount(scope), receive, send)

    def _base_url(self, scope: Scope) -> str:
        return (self._app.settings.public_url or _address(scope)).rstrip("/")


def _host(scope: Scope) -> str:
    """Return the address that the client has connected to; the `Host` header does not count."""
    server = scope.get("server")
    return str(server[0]) if server else ""


def _address(scope: Scope) -> str:
    host, port = scope.get("server") or ("localhost", None)
    host = f"[{host}]" if ":" in host else host
    return f"{scope.get('scheme', 'http')}://{host}{f':{port}' if port else ''}{scope.get('root_path', '')}"


def _below_mount(scope: Scope) -> Scope:
    """Return the scope with the path below the mount."""
    mount: str = scope.get("root_path", "").rstrip("/")
    if not mount or not scope["path"].startswith(mount):
        return scope
    below = {name: value for name, value in scope.items() if name not in _PARENTS}
    below["path"] = scope["path"][len(mount) :] or "/"
    if raw := scope.get("raw_path"):
        below["raw_path"] = raw[len(mount.encode()) :] or b"/"
    return {**below, "root_path": ""}


def _checked(agents: Agents) -> list[Driver | str | Path]:
    return [_agent(place, one) for place, one in enumerate(agents)]


def _agent(place: int, one: object) -> Driver | str | Path:
    """Return an agent as a driver, or the path of its definition."""
    if isinstance(one, str | Path) or is_driver(one):
        return one
    driver = adapted(one)
    if driver is None:
        hint = "decorate the function with @agent(slug)" if callable(one) else "pass an agent"
        raise ConfigurationError(f"agents[{place}] is not an agent: {hint}.", field="agents")
    return driver


def _with(settings: Settings, **changes: object) -> Settings:
    """Return the settings with some changes, checked like any settings."""
    if all(value is None for value in changes.values()):
        return settings
    given = {name: getattr(settings, name) for name in settings.model_fields_set}
    return load(**given | {name: value for name, value in changes.items() if value is not None})


# A server of its own: bind the port, print the addresses, then serve until stopped.


def serve(settings: Settings, read: Callable[[], Definitions]) -> None:
    """Serve the agents that `read` returns. Logging is configured first, because reading definitions logs too."""
    # Files written by this process and by programs it starts are readable by its user only, unless they change it.
    os.umask(0o077)
    logs.configure(settings.log_format, settings.log_level)
    worker = this_worker(settings)
    if worker is None and (count := count_of(settings)) > 1:
        check_binding(settings)
        return supervise(settings, count, _grpc_port(settings), _announce)
    definitions = read()
    if not definitions.drivers:
        raise ConfigurationError(
            "There are no agents to serve. Write definitions in agents/, "
            "or name a Python file or module with @agent functions."
        )
    close = _report_to_opentelemetry() if settings.otel else None
    tune_interpreter()
    try:
        uvloop.run(_serve(settings, definitions, worker))
    finally:
        if close is not None:
            close()
    return None


def _report_to_opentelemetry() -> Callable[[], None]:
    extras.check("otel", "The setting otel", field="otel")
    try:
        from parley.telemetry import otel

        close = otel.set_up()
    except ModuleNotFoundError:
        # Other extras install a part of the extra otel, so `extras.check` may pass without all of it.
        raise ConfigurationError("The setting otel needs the extra otel: pip install 'parley-a2a[otel]'.") from None
    except LookupError as error:
        raise ConfigurationError(str(error.args[0])) from None
    otel.configure()
    return close


@asynccontextmanager
async def open_agents(settings: Settings, definitions: Definitions) -> AsyncGenerator[Exchange, None]:
    """Open an exchange with the agents of some definitions, and follow the changes of their files."""
    follows = settings.reload and definitions.has_files
    async with (
        open_exchange(settings, definitions.drivers) as exchange,
        following(definitions, exchange) if follows else nullcontext(),
    ):
        yield exchange


async def _serve(settings: Settings, definitions: Definitions, worker: Worker | None) -> None:
    check_binding(settings)
    async with AsyncExitStack() as stack:
        exchange = await stack.enter_async_context(open_agents(settings, definitions))
        listener = stack.enter_context(worker.listener() if worker else bind(settings.host, settings.port))
        base_url = (settings.public_url or url_of(listener)).rstrip("/")
        grpc_port = worker.place.grpc_port if worker else _grpc_port(settings)
        app = await stack.enter_async_context(open_faces(exchange, settings, base_url, grpc_port, definitions, worker))

        def started() -> None:
            agents, problems = list(exchange.agents), definitions.problems()
            worker.ready(agents, problems) if worker else _announce(base_url, agents, problems)

        stop = partial(drain, exchange, settings.drain_s)
        server = Listening(app, started, stop, shared=worker is not None)
        if worker is not None:
            await stack.enter_async_context(worker.supervised(server, lambda: bool(exchange.execution.under_way)))
        await server.serve(sockets=[listener])


def check_binding(settings: Settings) -> None:
    """Refuse to listen beyond this machine without authentication, unless `auth` is explicitly none."""
    if settings.auth == "local" and settings.host not in LOOPBACK_HOSTS:
        raise ConfigurationError(
            f"Without authentication Parley listens only on this machine, not on {settings.host}. "
            "Set auth to required, or to none if every client that can reach the server may use it.",
            field="auth",
        )


def _grpc_port(settings: Settings) -> int | None:
    """The port for gRPC. None if turned off, or if the setting is unset and the extra grpc is not installed."""
    if settings.grpc_port == -1:
        return None
    if settings.grpc_port is not None:
        extras.check("grpc", "The setting grpc_port", field="grpc_port")
        return settings.grpc_port
    if not extras.has("grpc"):
        return None
    return settings.port + 1 if settings.port else 0


class _Announcement(Console):
    """Standard error, where a server prints its addresses. A closed pipe does not stop the server."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def _announce(base_url: str, slugs: list[str], problems: list[DefinitionProblem]) -> None:
    with suppress(OSError):
        _print_addresses(_Announcement(stderr=True, highlight=False), base_url, slugs, problems)


def _print_addresses(console: Console, base_url: str, slugs: list[str], problems: list[DefinitionProblem]) -> None:
    console.print(f"Console: [bold]{base_url}/console[/bold]", soft_wrap=True)
    console.print(f"[bold]Parley[/bold] listens on {base_url}")
    for slug in slugs:
        console.print(f"  {slug:<12} {base_url}/agents/{slug}")
    for problem in problems:
        console.print(f"[red]Not served:[/red] {escape(problem.message)}", soft_wrap=True)
    if slugs:
        here = "" if base_url.endswith(":8200") else f" --url {base_url}"
        console.print(f"Try: [bold]{_program()} send {slugs[0]} 'hello'{here}[/bold]", soft_wrap=True)


def _program() -> str:
    """The command that calls this program in the user's shell."""
    return "parley" if shutil.which("parley") else os.path.relpath(Path(sys.executable).with_name("parley"))


async def drain(exchange: Exchange, drain_s: float) -> None:
    """Accept no more work; keep answering for a while, so that a load balancer notices; hand over every turn; and when
    nothing in this process waits for a run any more, end the streams of followers."""
    tell("server.stopping", drain_s=drain_s)
    exchange.admission.stop()
    await asyncio.sleep(drain_s)
    await exchange.execution.close()
    exchange.streams.stop()
