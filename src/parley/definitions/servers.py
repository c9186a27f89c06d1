"""MCP servers in a definition, or in the settings: each at its place, and nothing wrong with it."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from parley.core.mcp import McpServer, check_servers
from parley.definitions.places import folder_at, program_at
from parley.errors import ConfigurationError, Invalid, OutboundRefused
from parley.security.netguard import Guard

_FILE = re.compile(r"\$\{file:([^}]+)\}")
FIELD = "mcp"


def placed(servers: Iterable[McpServer], folder: Path) -> tuple[McpServer, ...]:
    """The same with every path whole, as seen from the folder of the definition."""
    return tuple(_placed(server, folder) for server in servers)


def common_servers(given: Sequence[Mapping[str, Any]], folder: Path) -> list[McpServer]:
    """Those of the settings, which any agent may name."""
    try:
        servers = msgspec.convert(list(given), list[_Strict])
        found = [McpServer(**msgspec.structs.asdict(one)) for one in servers]
        check_servers(found)
        return list(placed(found, folder))
    except (msgspec.ValidationError, Invalid) as error:
        raise ConfigurationError(f"Setting {FIELD}: {error}", field=FIELD) from None


class _Strict(McpServer, frozen=True, forbid_unknown_fields=True):
    """In the settings nobody else looks for fields that there are not."""


def _placed(server: McpServer, folder: Path) -> McpServer:
    if not server.run:
        _check_url(server.url or "")
        return replace(server, headers=_with_files(server.headers, folder))
    if os.name != "posix":
        raise Invalid("programs can be run only on Linux, macOS and the like", field=FIELD)
    run = (program_at(server.run[0], folder, FIELD), *server.run[1:])
    return replace(server, run=run, cwd=folder_at(server.cwd, folder, FIELD), env=_with_files(server.env, folder))


def _check_url(url: str) -> None:
    """Where it leads is looked at when it is called."""
    try:
        Guard(("0.0.0.0/0", "::/0")).check_url(url)
    except OutboundRefused as error:
        raise Invalid(error.message, field=FIELD) from None


def _with_files(values: Mapping[str, str], folder: Path) -> dict[str, str]:
    def whole(match: re.Match[str]) -> str:
        return f"${{file:{(folder / match[1]).absolute()}}}"

    return {name: _FILE.sub(whole, value) for name, value in values.items()}
