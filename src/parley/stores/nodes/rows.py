"""Nodes, heartbeats and events as rows, the same for every database."""

from typing import Any

import msgspec
from msgspec.structs import replace

from parley.core.nesting import readable
from parley.core.nodes import Beat, Node, NodeChange, NodeEvent

Row = tuple[Any, ...]

NONE = Beat()
_encode = msgspec.msgpack.Encoder().encode
_decode_node = msgspec.msgpack.Decoder(Node).decode
_encode_beat = msgspec.json.Encoder().encode
_decode_beat = msgspec.json.Decoder(Beat).decode


def words_of(node: Node) -> str:
    return f"{node.name}\n{node.role}".casefold()


def node_row(change: NodeChange) -> Row:
    node = change.node
    body = _encode(replace(node, beat=NONE, card=b""))
    return node.id, node.parent_id, node.status.value, node.version, words_of(node), body


def beat_row(id_: str, beat: Beat) -> Row:
    return id_, beat.at, _encode_beat(beat)


def event_row(event: NodeEvent) -> Row:
    return event.at, event.name, event.node, event.kind, event.payload, event.private


def restored(body: bytes, beat: bytes | None, card: bytes | None = None) -> Node:
    node = _decode_node(body)
    return replace(node, beat=_decode_beat(beat) if beat else NONE, card=readable(card or b""))
