"""Agent-Zero as an agent, called through the interface of its web page or through its API."""

from parley.drivers.agentzero.driver import AgentZeroDriver
from parley.drivers.agentzero.options import AgentZeroOptions, blank_agentzero

__all__ = ["AgentZeroDriver", "AgentZeroOptions", "blank_agentzero"]
