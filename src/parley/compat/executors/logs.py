"""What the server tells, through `logging`: that is where an SDK program expects to read it."""

import logging
from typing import Any

from parley.telemetry import Detach, attach
from parley.telemetry.severity import QUIET, WARNINGS

_LOGGER = logging.getLogger("parley")


def log_by_logging() -> Detach:
    return attach(_log, spans=False)


def _log(name: str, fields: dict[str, Any]) -> None:
    level = logging.WARNING if name in WARNINGS else logging.DEBUG if name in QUIET else logging.INFO
    if not _LOGGER.isEnabledFor(level):
        return
    error = fields.get("error")
    raised = error if isinstance(error, BaseException) else None
    told = " ".join(f"{field}={value}" for field, value in fields.items() if value is not raised)
    _LOGGER.log(level, "%s %s", name, told, exc_info=raised)
