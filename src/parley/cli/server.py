"""Run a server: bind first, then say where, then serve until told to stop."""

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import uvloop
from rich.console import Console
from rich.markup import escape

from parley import extras
from parley.app import open_exchange, open_faces, tune_interpreter
from parley.definitions.watching import Definitions, Problem, following
from parley.engine.stopping import drain
from parley.errors import ConfigurationError
from parley.listening import Listening, bind, url_of
from parley.settings import Settings
from parley.telemetry import logs

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def serve(settings: Settings, read: Callable[[], Definitions]) -> None:
    """Serve what is read: only once there are log lines, because reading has something to tell too."""
    # Whatever this process and the programs that it starts write is for its user alone, unless they say otherwise.
    os.umask(0o077)
    logs.configure(settings.log_format, settings.log_level)
    definitions = read()
    if not definitions.drivers:
        raise ConfigurationError(
            "There are no agents to serve: write definitions in agents/, "
            "or name a Python file or module with @agent functions."
        )
    close = _report_to_opentelemetry() if settings.otel else None
    tune_interpreter()
    try:
        uvloop.run(_serve(settings, definitions))
    finally:
        if close is not None:
            close()


def _report_to_opentelemetry() -> Callable[[], None]:
    extras.check("otel", "The setting otel", field="otel")
    try:
        from parley.telemetry import otel, providers

        close = providers.set_up()
    except ModuleNotFoundError:
        # Other extras bring a part of it.
        raise ConfigurationError("The setting otel needs the extra otel: pip install 'parley-a2a[otel]'.") from None
    except LookupError as error:
        raise ConfigurationError(str(error.args[0])) from None
    otel.configure()
    return close


async def _serve(settings: Settings, definitions: Definitions) -> None:
    check_binding(settings)
    async with AsyncExitStack() as stack:
        exchange = await stack.enter_async_context(open_exchange(settings, definitions.drivers))
        if settings.reload:
            await stack.enter_async_context(following(definitions, exchange))
        listener = stack.enter_context(bind(settings.host, settings.port))
        base_url = (settings.public_url or url_of(listener)).rstrip("/")
        app = await stack.enter_async_context(
            open_faces(exchange, settings, base_url, _grpc_port(settings), definitions.problems)
        )
        stop = partial(drain, exchange, settings.drain_s)
        server = Listening(app, lambda: _announce(base_url, list(exchange.agents), definitions.problems()), stop)
        await server.serve(sockets=[listener])


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
    if settings.grpc_port is not None:
        extras.check("grpc", "The setting grpc_port", field="grpc_port")
        return settings.grpc_port
    if not extras.has("grpc"):
        return None
    return settings.port + 1 if settings.port else 0


class _Announcement(Console):
    """Standard error, where a server says that it is up. It serves all the same when nobody reads that."""

    def on_broken_pipe(self) -> None:
        self.quiet = True


def _announce(base_url: str, slugs: list[str], problems: list[Problem]) -> None:
    with suppress(OSError):
        _print_addresses(_Announcement(stderr=True, highlight=False), base_url, slugs, problems)


def _print_addresses(console: Console, base_url: str, slugs: list[str], problems: list[Problem]) -> None:
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
    """How the reader can call this program."""
    return "parley" if shutil.which("parley") else os.path.relpath(Path(sys.executable).with_name("parley"))
