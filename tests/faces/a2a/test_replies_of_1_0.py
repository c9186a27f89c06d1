"""Clients of A2A 1.0 get the replies that they got before there was A2A 1.1, on three bindings."""

import json
from pathlib import Path

from parley.testing.servers import serving
from tests.faces.a2a.recorded import AGENTS, FILE, record


async def test_replies_to_clients_of_1_0_are_byte_for_byte_as_before_1_1(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", AGENTS, grpc_port=0, allow_hosts=["127.0.0.1"]) as server:
        found = await record(server.url)
    assert found == json.loads(FILE.read_bytes())
