"""A remote A2A agent as an agent of this server: it gets an address and a durable log here, and works elsewhere."""

from parley.drivers.remote.connections import OUTSIDE, OutboundConnections
from parley.drivers.remote.driver import RemoteDriver, following_cards
from parley.drivers.remote.options import RemoteOptions, blank_remote

__all__ = ["OUTSIDE", "OutboundConnections", "RemoteDriver", "RemoteOptions", "blank_remote", "following_cards"]
