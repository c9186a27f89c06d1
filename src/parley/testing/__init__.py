"""Test support for Parley and for its users: run an agent in one line, real servers in a few lines, contract suites for
all protocols, tools for logs."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parley.testing.agents import AgentRun, run, run_async

__all__ = ["AgentRun", "run", "run_async"]


def __getattr__(name: str) -> object:
    """Import a name when it is used: the other modules of this package need no agents."""
    if name in __all__:
        return getattr(import_module("parley.testing.agents"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
