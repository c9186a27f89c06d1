"""The kit that turns an agent into a node of a registry (004), which other nodes can find and call."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parley.node.caller import A2A
    from parley.node.delegations import PeerAnswer
    from parley.node.messages import Peer
    from parley.node.node import Node

__all__ = ["A2A", "Node", "Peer", "PeerAnswer"]

_MODULES = {"A2A": "caller", "Node": "node", "Peer": "messages", "PeerAnswer": "delegations"}


def __getattr__(name: str) -> object:
    """Import a name when it is used: programs that verify pair tokens need no server (`parley.node.verifying`)."""
    if name in _MODULES:
        return getattr(import_module(f"parley.node.{_MODULES[name]}"), name)
    raise AttributeError(name)
