"""Tools, and whoever provides them."""

from typing import Literal, Protocol

from msgspec import Struct

from parley.core.canonical import Fields
from parley.core.policy import ReasonCode
from parley.core.tools import Manifest, Pack


class ToolResult(Struct, frozen=True):
    """What a provider said to one call, or why it said nothing. `data` and `message` are still as they came."""

    state: Literal["succeeded", "failed"]
    data: Fields = {}
    code: ReasonCode | None = None
    """Why it failed, where a code says more than that."""
    message: str = ""
    effect: Literal["done", "none", "unknown"] = "done"
    """Whether what was asked for has happened."""
    well: bool = True
    """Whether the provider works; that it refused something is no sign of the contrary."""


class ToolPack(Protocol):
    """Tools of one kind, and whoever provides them."""

    @property
    def rules(self) -> Pack: ...

    def host(self, manifest: Manifest) -> str:
        """Who would be called: their failures are counted together."""
        ...

    async def call(self, operation: str, request: Fields, manifest: Manifest) -> ToolResult:
        """Carry out a request in which nothing is wrong. To cancel it is to break it off."""
        ...
