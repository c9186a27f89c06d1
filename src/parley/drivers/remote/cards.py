"""Cards of agents that cannot be fetched, or that do not say where the agent is for us."""

import msgspec
from a2a.client.card_resolver import parse_agent_card
from a2a.types import a2a_pb2 as pb
from google.protobuf import json_format

from parley.drivers.remote.sdk import Card, is_same_place


def written_card(text: bytes, url: str) -> Card | None:
    """A card that was not fetched but told; None when that is not one, or names no address."""
    try:
        proto = parse_agent_card(msgspec.json.decode(text))
    except (ValueError, TypeError, AttributeError, json_format.Error):
        return None
    return Card(proto, url, None) if proto.supported_interfaces else None


def plain_card(url: str) -> Card:
    """For an agent of which nothing is known but its address: JSON-RPC as every generation before 1.0 has it."""
    return Card(parse_agent_card({"name": "", "url": url, "protocolVersion": "0.3.0", "capabilities": {}}), url, None)


def moved_card(card: Card, url: str) -> Card:
    """The card with the address that the agent was registered under, where it names only others: what an agent in a
    container says of itself is often true inside it alone."""
    if any(is_same_place(url, one.url) for one in card.proto.supported_interfaces):
        return card
    proto = pb.AgentCard()
    proto.CopyFrom(card.proto)
    rpc = [one for one in proto.supported_interfaces if one.protocol_binding == "JSONRPC"]
    del proto.supported_interfaces[:]
    for version in [one.protocol_version for one in rpc] or ["0.3"]:
        proto.supported_interfaces.add(url=url, protocol_binding="JSONRPC", protocol_version=version)
    return Card(proto, card.url, card.etag)
