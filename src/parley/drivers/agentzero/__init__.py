"""An Agent-Zero behind one of our addresses, spoken to as its own web page or its API does."""

from parley.drivers.agentzero.driver import AgentZeroDriver
from parley.drivers.agentzero.options import AgentZeroOptions, blank_agentzero

__all__ = ["AgentZeroDriver", "AgentZeroOptions", "blank_agentzero"]
