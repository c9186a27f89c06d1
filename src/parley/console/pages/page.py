"""One page or action: where it is, who may ask for it, and what it does."""

from collections.abc import Awaitable, Callable

from msgspec import Struct

from parley.console.replies import Reply, Stream
from parley.console.visits import Visit
from parley.core.access import Scope as Right

Handler = Callable[[Visit], Awaitable[Reply | Stream]]


class Page(Struct, frozen=True):
    method: str
    path: str
    """Below `/console`, in Starlette's words: `/runs/{id:path}`."""
    handler: Handler
    right: Right | None = "read"
    """None for what everybody may ask, signed in or not."""
