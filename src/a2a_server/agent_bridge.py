"""Drivers of an organisation: Agent-Zero, or the built-in kernel."""

from parley.compat.organisation import driver_of
from parley.drivers.agentzero import AgentZeroDriver
from parley.drivers.org import OrgDriver

__all__ = ["AgentZeroDriver", "OrgDriver", "driver_of"]
