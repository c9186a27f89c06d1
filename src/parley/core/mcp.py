"""MCP servers as an operator declares them, which of their tools an agent may use, and what a tool is called."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from parley.core.canonical import Fields, Json, fields_of
from parley.core.tools import Manifest, Operation, Pack
from parley.errors import Invalid

PACK = "mcp.v1"
TIMEOUT_S = 30.0
START_S = 20.0
MAX_OUTPUT = 1024 * 1024
MAX_NAME = 64
"""What the models' vendors take as the name of a function."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_NOT_IN_A_FUNCTION = re.compile(r"[^A-Za-z0-9_-]")


Progressed = Callable[[float, float | None, str | None], Awaitable[None]]
"""Told how far a tool has come, of how much, and in its words."""


class McpServer(Struct, frozen=True):
    """A server of tools: a program that is run beside ours, or one that is reached by its address.

    `${NAME}` in the values of `env` and `headers` stands for an environment variable of ours, `${file:PATH}` for what
    a file holds: so a definition names secrets and has none.
    """

    name: str
    run: tuple[str, ...] = ()
    """The program and its arguments. A path is relative to the definition; a bare name is looked for beside the
    Python that runs the server, then on the PATH."""
    cwd: str = "."
    env: dict[str, str] = {}
    url: str | None = None
    headers: dict[str, str] = {}
    timeout_s: float = TIMEOUT_S
    """How long a call may take when its caller does not say."""
    start_timeout_s: float = START_S
    max_output_bytes: int = MAX_OUTPUT
    """The largest answer of a tool."""


class Offer(Struct, frozen=True):
    """A tool that an agent may use."""

    server: str
    name: str
    description: str = ""
    schema: Fields = {}
    """JSON Schema of its input."""
    writes: bool = True
    """Whether it may change something; one that only reads is done again when it was broken off."""

    @property
    def full(self) -> str:
        return f"{self.server}/{self.name}"


def check_server(server: McpServer) -> None:
    if _NAME.fullmatch(server.name) is None:
        raise Invalid("a name has 1 to 64 letters, digits, dots, - or _", field="mcp")
    if bool(server.run) == (server.url is not None):
        raise Invalid(f"{server.name} has either `run` or `url`", field="mcp")
    if server.run and (not server.run[0] or any("\0" in argument for argument in server.run)):
        raise Invalid(f"{server.name}: `run` names the program and its arguments", field="mcp")
    if server.headers and server.run:
        raise Invalid(f"{server.name}: a program has no headers", field="mcp")
    if (server.env or server.cwd != ".") and server.url is not None:
        raise Invalid(f"{server.name}: `env` and `cwd` are for programs", field="mcp")
    for field, most in (("timeout_s", 3600), ("start_timeout_s", 3600), ("max_output_bytes", 64 * 1024 * 1024)):
        if not 0 < getattr(server, field) <= most:
            raise Invalid(f"{server.name}: `{field}` is positive, and at most {most:,}", field="mcp")


def check_servers(servers: Sequence[McpServer]) -> None:
    for place, server in enumerate(servers):
        check_server(server)
        if server.name in [one.name for one in servers[:place]]:
            raise Invalid(f"there are two servers called {server.name}", field="mcp")


def servers_for(patterns: Sequence[str], own: Sequence[McpServer], common: Sequence[McpServer]) -> list[McpServer]:
    """An agent's own servers, and those common ones that its `tools` name. Its own hide others of the same name."""
    names = {server.name for server in own}
    wanted = [pattern.partition("/")[0] for pattern in patterns]
    named = [server for server in common if any(fnmatchcase(server.name, one) for one in wanted)]
    return [*own, *(server for server in named if server.name not in names)]


def permits(patterns: Sequence[str], offer: Offer, *, own: bool) -> bool:
    """Without patterns an agent may use all tools of its own servers. A pattern is `server`, `server/tool`, with `*` in
    either, or the bare name of a tool of its own."""
    if not patterns:
        return own
    return any(
        fnmatchcase(offer.full, pattern)
        or ("/" not in pattern and fnmatchcase(offer.server, pattern))
        or (own and pattern == offer.name)
        for pattern in patterns
    )


def called(offers: Iterable[Offer], name: str) -> list[Offer]:
    """Those that a name can mean: `server/tool`, or the tool alone."""
    listed = list(offers)
    return [one for one in listed if one.full == name] or [one for one in listed if one.name == name]


def functions(offers: Iterable[Offer]) -> dict[str, Offer]:
    """The tools by names that a model can call: the bare one where it is unique, else with its server's."""
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
    # Two names must not become one.
    return f"{plain[: MAX_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def described(server: str, output: Json) -> Fields:
    """What is said about an output beside it (002's `metadata`)."""
    about: Fields = {"mcpServer": server}
    for member, name in (("rows", "rowsReturned"), ("files", "filesFound")):
        if isinstance(found := fields_of(output).get(member), list):
            about[name] = len(found)
    return about


def manifest_for(offer: Offer) -> Manifest:
    """What stands for an integrator's manifest: the operator declared the server, and that it may be used."""
    return Manifest(offer.server, "mcp", "active", (offer.full,), {"write_operations_mode": "audit_only"})


def rules_for(offer: Offer) -> Pack:
    return Pack(
        PACK, "mcp", PACK, ("mcp",), {offer.full: Operation(_nothing_wrong, writes=offer.writes)}, (),
        "comms_failed.provider_error", "comms_failed.provider_circuit_open", lambda _: [],
        lambda _, request: request, given="input", personal=False, budgeted=False,
    )  # fmt: skip


def _nothing_wrong(request: Fields) -> list[str]:
    """Its server says what is wrong with an input."""
    return []
