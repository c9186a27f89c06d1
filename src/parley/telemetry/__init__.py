"""The seam through which the engine tells what happens. Loggers, tracers and counters attach to it."""

from collections.abc import Callable
from typing import Any

Handler = Callable[[str, dict[str, Any]], None]
Detach = Callable[[], None]

_handlers: list[Handler] = []


def attach(handler: Handler) -> Detach:
    """Call `handler(name, fields)` for everything told from now on; the result detaches it."""
    _handlers.append(handler)
    return lambda: _handlers.remove(handler)


def tell(name: str, **fields: Any) -> None:
    for handler in _handlers:
        handler(name, fields)
