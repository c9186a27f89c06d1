"""Collaborators of an exchange that are built with it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from parley.execution.executor import Conduct
from parley.execution.turn import ToolCaller
from parley.runs.log import Fulfil

if TYPE_CHECKING:
    from parley.runs.service import Exchange


class Extensions(Struct, frozen=True):
    """Collaborators that use the exchange, and that the exchange uses."""

    toolcalls: ToolCaller | None = None
    """Calls the tools of agents."""
    conduct: Conduct | None = None
    fulfil: Fulfil | None = None


Extend = Callable[["Exchange"], Extensions]
"""Builds the extensions of an exchange during its construction: they may store the exchange, but not use it yet."""


def no_extensions(exchange: "Exchange") -> Extensions:
    return Extensions()
