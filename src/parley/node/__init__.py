"""What turns an agent into a node that others find and call (contract 004)."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parley.node.caller import A2A
    from parley.node.delegating import PeerAnswer
    from parley.node.node import Node
    from parley.node.words import Peer

__all__ = ["A2A", "Node", "Peer", "PeerAnswer"]

_ROOMS = {"A2A": "caller", "Node": "node", "Peer": "words", "PeerAnswer": "delegating"}


def __getattr__(name: str) -> object:
    """Only when it is asked for: whoever verifies pair tokens needs no server (`parley.node.verifying`)."""
    if name in _ROOMS:
        return getattr(import_module(f"parley.node.{_ROOMS[name]}"), name)
    raise AttributeError(name)
