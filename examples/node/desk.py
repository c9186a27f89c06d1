"""A node with a function agent: it forwards a message to the peer named first in it, and relays that peer's questions.

    parley up                                                     # a platform, on this machine
    export PARLEY_NODE_PLATFORM=http://127.0.0.1:8200
    PARLEY_NODE_DATA_DIR=.writer python examples/node/writer.py &
    PARLEY_NODE_DATA_DIR=.desk python examples/node/desk.py &     # says its id
    curl -s http://127.0.0.1:8200/workspaces/ID/a2a -H 'Content-Type: application/json' \
        -d '{"method": "message/send", "params": {"message": {"role": "user",
             "parts": [{"kind": "text", "text": "Writer, write about rivers"}]}}}'
"""

from parley import Note, Text, Turn, agent
from parley.node import Node


@agent("desk", name="Desk")
async def desk(turn: Turn):
    """Knows whom to ask."""
    name = turn.notes.get("asked") or turn.text.partition(",")[0]
    peer = next((peer for peer in node.peers if peer.name == name and peer.status == "online"), None)
    if peer is None:
        yield Text(f"There is no peer with that name. {node.briefing}")
        return
    yield Note({"asked": peer.name})
    async for output in node.relay(turn, peer.id):
        yield output


node = Node(desk)

if __name__ == "__main__":
    node.run()
