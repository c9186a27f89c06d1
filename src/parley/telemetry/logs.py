"""Log lines, written by structlog."""

import logging
import os
import sys
from typing import Any, Literal

import structlog

from parley.telemetry import Detach, attach
from parley.telemetry.trace import current

# Log level of each telemetry event: WARNINGS need an operator's attention, QUIET is shown only at level debug.

WARNINGS = frozenset(
    {
        "agent.raised", "agents.refused", "agents.unwatched", "agentzero.failed", "agentzero.not_set_up",
        "append.deadlock", "append.failed", "append.unanswered",
        "audit.not_written", "auth.none", "command.failed", "config.unknown",
        "console.failed", "dispatch.failed", "document.failed", "executor.raised", "export.failed",
        "export.glyphs_missing", "group.not_noted", "grpc.crashed",
        "http.crashed", "issuer.unavailable", "key.use_not_noted", "lease.not_ended", "lease.not_shortened",
        "ledger.broken", "ledger.dropped", "ledger.failed", "loop.broken", "loop.failed", "mcp.ended",
        "mcp.not_started", "mcp.stuck", "model.failed", "node.token_refused", "nodes.not_kept", "nodes.not_read",
        "org.command_failed", "org.model_failed", "org.no_sandbox", "org.not_reported", "org.problem", "org.unwatched",
        "push.broken", "push.dead", "push.refused", "push.rejected", "push.unreadable", "replica.buried",
        "replica.died", "retention.failed", "runtime.not_noted", "secrets.readable_by_others",
        "session.use_not_noted", "signals.lost", "signing.key_unreadable",
        "slots.vacated", "step.broken", "stream.broken", "tool.broken", "tool.failed", "tool.token_unreadable",
        "telemetry.failed", "tool.unwatched", "traceback.not_stored", "turn.broken", "turn.not_salvaged", "turn.stuck",
        "urls.unavailable",
    }
)  # fmt: skip
QUIET = frozenset(
    {
        "turn.not_needed", "turn.ended", "append.conflict", "auth.refused", "push.delivered", "send.refused",
        "tool.ended", "tool.late", "usage.recorded",
    }
)  # fmt: skip


def configure(format_: Literal["console", "json"], level: str) -> Detach:
    """Write every telemetry event to standard error, one line each. Return a function that stops this."""
    colors = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    renderer = (
        structlog.processors.JSONRenderer() if format_ == "json" else structlog.dev.ConsoleRenderer(colors=colors)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    if level == "debug":
        return attach(_log, spans=False)
    # Some of these are sent for every turn, and a logger needs some time to find out that it discards an event.
    return attach(lambda name, fields: None if name in QUIET else _log(name, fields), spans=False)


def _log(name: str, fields: dict[str, Any]) -> None:
    logger: Any = structlog.get_logger()
    error = fields.get("error")
    if isinstance(error, BaseException):
        fields = {**fields, "error": type(error).__name__, "exc_info": error}
    fields = {**fields, **_traced()}
    if name in WARNINGS:
        logger.warning(name, **fields)
    elif name in QUIET:
        logger.debug(name, **fields)
    else:
        logger.info(name, **fields)


def _traced() -> dict[str, str]:
    """Return the ids by which a caller's own logs name the current request."""
    trace = current()
    named = {"request_id": trace.request_id, "trace_id": trace.trace_id}
    return {name: value for name, value in named.items() if value}


# The same events through `logging`, for programs that configure their own logs.

_LOGGER = logging.getLogger("parley")


def log_by_logging() -> Detach:
    """Send every telemetry event to the logger `parley` of the standard library. Return a function that stops this."""
    return attach(_log_by_logging, spans=False)


def _log_by_logging(name: str, fields: dict[str, Any]) -> None:
    level = logging.WARNING if name in WARNINGS else logging.DEBUG if name in QUIET else logging.INFO
    if not _LOGGER.isEnabledFor(level):
        return
    error = fields.get("error")
    raised = error if isinstance(error, BaseException) else None
    told = " ".join(f"{field}={value}" for field, value in fields.items() if value is not raised)
    _LOGGER.log(level, "%s %s", name, told, exc_info=raised)
