"""Log lines, by structlog."""

import logging
import os
import sys
from typing import Any, Literal

import structlog

from parley.telemetry import Detach, attach
from parley.telemetry.severity import QUIET, WARNINGS
from parley.telemetry.trace import current


def configure(format_: Literal["console", "json"], level: str) -> Detach:
    """Send everything that is told to standard error, one line each."""
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
    # Some of these are told for every turn, and a logger takes a while to find out that it has nothing to say.
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
    """By which a caller's own records name what is under way."""
    trace = current()
    named = {"request_id": trace.request_id, "trace_id": trace.trace_id}
    return {name: value for name, value in named.items() if value}
