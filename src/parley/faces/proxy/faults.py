"""How this face says no, or not yet: the contract's words in plain JSON, and not JSON-RPC."""

from parley.errors import (
    CallQueued,
    NodeNotFound,
    NodeNotRoutable,
    NodeOverBudget,
    NodeRemoved,
    NodeTimedOut,
    NodeUnavailable,
    NodeUnreachable,
    ParleyError,
)
from parley.faces.http import Headers

Answer = tuple[int, object, Headers]

_STATUSES: list[tuple[type[ParleyError], int]] = [
    (CallQueued, 202), (NodeOverBudget, 402), (NodeUnavailable, 503), (NodeNotRoutable, 502), (NodeUnreachable, 502),
    (NodeTimedOut, 504), (NodeNotFound, 404), (NodeRemoved, 404),
]  # fmt: skip
_SHOWN = ("status", "waking", "restarting", "queue_id", "queue_depth", "task_id")


def answer_of(error: ParleyError) -> Answer | None:
    """None for what JSON-RPC has a way to say."""
    status = next((status for kind, status in _STATUSES if isinstance(error, kind)), None)
    if status is None:
        return None
    more = {name: error.details[name] for name in _SHOWN if name in error.details}
    if isinstance(error, CallQueued):
        return status, {"queued": True, **more, "message": error.message}, []
    retry = error.details.get("retry_after")
    return status, {"error": error.message, **more}, [(b"retry-after", b"%d" % retry)] if isinstance(retry, int) else []
