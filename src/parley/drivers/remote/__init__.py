"""Another A2A agent behind one of ours: it gets our address and our durable log, and does its work where it is."""

from parley.drivers.remote.driver import RemoteDriver, tending
from parley.drivers.remote.options import RemoteOptions, blank_remote
from parley.drivers.remote.outside import OUTSIDE, Outside

__all__ = ["OUTSIDE", "Outside", "RemoteDriver", "RemoteOptions", "blank_remote", "tending"]
