"""Whoever does the work: Agent-Zero, or the kernel that is built in."""

from parley.compat.organisation import driver_of
from parley.drivers.agentzero import AgentZeroDriver
from parley.drivers.org import OrgDriver

__all__ = ["AgentZeroDriver", "OrgDriver", "driver_of"]
