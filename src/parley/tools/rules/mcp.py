"""MCP servers as an operator declares them, the tools that an agent may use, and the names of tools."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from msgspec import Raw, Struct

from parley.errors import Invalid
from parley.json_values import Fields, Json, fields_of
from parley.tools.rules.packs import Manifest, Pack, PackOperation

PACK = "mcp.v1"
TIMEOUT_S = 30.0
START_S = 20.0
MAX_OUTPUT = 1024 * 1024
MAX_NAME = 64
"""Longest function name that the vendors of models accept."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NOT_IN_A_FUNCTION = re.compile(r"[^A-Za-z0-9_-]")


Progressed = Callable[[float, float | None, str | None], Awaitable[None]]
"""Called with the progress of a tool, the total, and the tool's message."""


class McpServer(Struct, frozen=True):
    """An MCP server: a program that the server runs, or a URL.

    `${NAME}` in the values of `env` and `headers` stands for an environment variable of the server, `${file:PATH}` for
    the content of a file, so that a definition refers to secrets without containing them.
    """

    name: str
    run: tuple[str, ...] = ()
    """The program and its arguments. A path is relative to the definition; a bare name is looked up beside the Python
    that runs the server, then on the PATH."""
    cwd: str = "."
    env: dict[str, str] = {}
    url: str | None = None
    headers: dict[str, str] = {}
    timeout_s: float = TIMEOUT_S
    """Time limit of a call whose caller sets none."""
    start_timeout_s: float = START_S
    max_output_bytes: int = MAX_OUTPUT
    """Largest answer of a tool."""


class ToolOffer(Struct, frozen=True):
    """A tool that an agent may use."""

    server: str
    name: str
    description: str = ""
    schema: Fields = {}
    """JSON Schema of its input."""
    writes: bool = True
    """True if it may change something. A tool that only reads is called again after an interruption."""

    @property
    def full(self) -> str:
        return f"{self.server}/{self.name}"


def check_server(server: McpServer) -> None:
    if _NAME.fullmatch(server.name) is None:
        raise Invalid("a name must have 1 to 64 letters, digits, dots, - or _", field="mcp")
    if bool(server.run) == (server.url is not None):
        raise Invalid(f"{server.name} must have either `run` or `url`", field="mcp")
    if server.run and (not server.run[0] or any("\0" in argument for argument in server.run)):
        raise Invalid(f"{server.name}: `run` must name the program and its arguments", field="mcp")
    if server.headers and server.run:
        raise Invalid(f"{server.name}: `headers` are for servers with a `url`, not for programs", field="mcp")
    if (server.env or server.cwd != ".") and server.url is not None:
        raise Invalid(f"{server.name}: `env` and `cwd` are for programs, not for servers with a `url`", field="mcp")
    for field, most in (("timeout_s", 3600), ("start_timeout_s", 3600), ("max_output_bytes", 64 * 1024 * 1024)):
        if not 0 < getattr(server, field) <= most:
            raise Invalid(f"{server.name}: `{field}` must be positive and at most {most:,}", field="mcp")


def check_servers(servers: Sequence[McpServer]) -> None:
    for place, server in enumerate(servers):
        check_server(server)
        if server.name in [one.name for one in servers[:place]]:
            raise Invalid(f"there are two servers called {server.name}", field="mcp")


def servers_for(patterns: Sequence[str], own: Sequence[McpServer], common: Sequence[McpServer]) -> list[McpServer]:
    """Return an agent's own servers, and the common ones that its `tools` name. Own servers hide common ones of the
    same name."""
    names = {server.name for server in own}
    wanted = [pattern.partition("/")[0] for pattern in patterns]
    named = [server for server in common if any(fnmatchcase(server.name, one) for one in wanted)]
    return [*own, *(server for server in named if server.name not in names)]


def permits(patterns: Sequence[str], offer: ToolOffer, *, own: bool) -> bool:
    """Return whether an agent may use a tool. Without patterns it may use all tools of its own servers. A pattern is
    `server` or `server/tool`, with `*` in either, or the bare name of a tool of its own servers."""
    if not patterns:
        return own
    return any(
        fnmatchcase(offer.full, pattern)
        or ("/" not in pattern and fnmatchcase(offer.server, pattern))
        or (own and pattern == offer.name)
        for pattern in patterns
    )


def called(offers: Iterable[ToolOffer], name: str) -> list[ToolOffer]:
    """Return the tools that a name can mean: `server/tool`, or the tool alone."""
    listed = list(offers)
    return [one for one in listed if one.full == name] or [one for one in listed if one.name == name]


def functions(offers: Iterable[ToolOffer]) -> dict[str, ToolOffer]:
    """Return the tools by names that a model can call: the bare name where it is unique, else with the server's
    name."""
    listed = list(offers)
    bare = [_function(one.name) for one in listed]
    return {
        name if bare.count(name) == 1 else _function(f"{one.server}__{one.name}"): one
        for name, one in zip(bare, listed, strict=True)
    }


def _function(name: str) -> str:
    plain = _NOT_IN_A_FUNCTION.sub("_", name)
    if plain == name and len(name) <= MAX_NAME:
        return name
    # The hash keeps shortened names different.
    return f"{plain[: MAX_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def described(server: str, output: Json) -> Fields:
    """Return the `metadata` of an output (the actions contract, 002)."""
    about: Fields = {"mcpServer": server}
    for member, name in (("rows", "rowsReturned"), ("files", "filesFound")):
        if isinstance(found := fields_of(output).get(member), list):
            about[name] = len(found)
    return about


def manifest_for(offer: ToolOffer) -> Manifest:
    """Return a manifest in place of an integrator's: the operator declared the server and allowed its use."""
    return Manifest(offer.server, "mcp", "active", (offer.full,), {"write_operations_mode": "audit_only"})


def rules_for(offer: ToolOffer) -> Pack:
    return Pack(
        PACK,
        "mcp",
        PACK,
        ("mcp",),
        {offer.full: PackOperation(_nothing_wrong, writes=offer.writes)},
        (),
        "comms_failed.provider_error",
        "comms_failed.provider_circuit_open",
        lambda _: [],
        lambda _, request: request,
        given="input",
        personal=False,
        budgeted=False,
    )


def _nothing_wrong(request: Fields) -> list[str]:
    """Accept every input: the MCP server checks it."""
    return []


# Tools as a language model sees them: functions that it may call, and their results.


class Function(Struct, frozen=True):
    """A function that a model may call."""

    name: str
    description: str
    schema: Raw
    """JSON Schema of its input."""


class WantedCall(Struct, frozen=True):
    """A call that a model requests. `input` is None if the model did not write a JSON object."""

    id: str
    """The vendor's id, which links the answer to the call."""
    name: str
    input: Fields | None


class Returned(Struct, frozen=True):
    """Result of a call, for the model."""

    id: str
    text: str
    failed: bool = False
