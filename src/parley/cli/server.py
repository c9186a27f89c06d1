"""Run a server: bind first, then say where, then serve until told to stop."""

import asyncio
import importlib.util
import os
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

import uvicorn
import uvloop
from rich.console import Console

from parley.app import open_exchange, open_faces, tune_interpreter
from parley.definitions.watching import Definitions, following
from parley.errors import ConfigurationError
from parley.settings import Settings
from parley.telemetry import logs

STOP_WAIT_S = 2
_EVERYWHERE = ("0.0.0.0", "::")
"""To listen on, not to call."""
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(settings: Settings, read: Callable[[], Definitions]) -> None:
    """Serve what is read: only once there are log lines, because reading has something to tell too."""
    logs.configure(settings.log_format, settings.log_level)
    definitions = read()
    if not definitions.drivers:
        raise ConfigurationError(
            "There are no agents to serve: write definitions in agents/, "
            "or name a Python file or module with @agent functions."
        )
    if settings.otel:
        _report_to_opentelemetry()
    tune_interpreter()
    uvloop.run(_serve(settings, definitions))


def _report_to_opentelemetry() -> None:
    try:
        from parley.telemetry import otel
    except ModuleNotFoundError:
        raise ConfigurationError("The setting otel needs the extra: pip install 'parley-a2a[otel]'.") from None
    otel.configure()


async def _serve(settings: Settings, definitions: Definitions) -> None:
    check_binding(settings)
    async with AsyncExitStack() as stack:
        exchange = await stack.enter_async_context(open_exchange(settings, definitions.drivers))
        if settings.reload:
            await stack.enter_async_context(following(definitions, exchange))
        listener = stack.enter_context(_bind(settings.host, settings.port))
        base_url = (settings.public_url or _url(listener)).rstrip("/")
        config = uvicorn.Config(
            await stack.enter_async_context(open_faces(exchange, settings, base_url, _grpc_port(settings))),
            loop="none", http="httptools", ws="none", lifespan="off", log_level="warning", access_log=False,
            timeout_graceful_shutdown=STOP_WAIT_S, server_header=False, proxy_headers=False,
        )  # fmt: skip
        server = _Server(config, lambda: _announce(base_url, list(exchange.agents)))
        await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Tells when it is up, and stops without raising the signal again: work has to be handed over first."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell()

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        for one in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(one, self.handle_exit, one, None)
        yield


def check_binding(settings: Settings) -> None:
    """A server that others can reach asks for credentials, or says in so many words that it does not."""
    if settings.auth == "local" and settings.host not in _LOOPBACK:
        raise ConfigurationError(
            f"Without authentication Parley listens only on this machine, not on {settings.host}. "
            "Set auth to required, or to none if really everybody may use it.",
            field="auth",
        )


def _grpc_port(settings: Settings) -> int | None:
    """Where to serve gRPC; nowhere when the setting says so, or says nothing and the extra is not installed."""
    if settings.grpc_port == -1:
        return None
    if importlib.util.find_spec("grpc") is None or importlib.util.find_spec("a2a") is None:
        if settings.grpc_port is not None:
            raise ConfigurationError("The setting grpc_port needs the extra: pip install 'parley-a2a[grpc]'.")
        return None
    if settings.grpc_port is not None:
        return settings.grpc_port
    return settings.port + 1 if settings.port else 0


def _bind(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise ConfigurationError(f"Cannot listen on {host}:{port}: {error.strerror}.") from None
    # Inherited by those that it accepts: asyncio sees to it only for sockets of its own, uvloop for all.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    listener.setblocking(False)
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    if host in _EVERYWHERE:
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _announce(base_url: str, slugs: list[str]) -> None:
    console = Console(stderr=True, highlight=False)
    console.print(f"[bold]Parley[/bold] listens on {base_url}")
    for slug in slugs:
        console.print(f"  {slug:<12} {base_url}/agents/{slug}")
    if slugs:
        here = "" if base_url.endswith(":8200") else f" --url {base_url}"
        console.print(f"Try: [bold]{_program()} send {slugs[0]} 'hello'{here}[/bold]", soft_wrap=True)


def _program() -> str:
    """How the reader can call this program."""
    return "parley" if shutil.which("parley") else os.path.relpath(Path(sys.executable).with_name("parley"))
