"""One node, and a platform, in this process."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from ipaddress import ip_address
from pathlib import Path

import httpx2
import pytest

from parley import ArtifactChunk, State, Text, Turn, agent
from parley.client import Client, RemoteError
from parley.errors import ConfigurationError
from parley.node import Node
from parley.node.messages import PeerRefused, PeerUnavailable
from parley.node.settings import NodeArguments, NodeSettings
from parley.runs.rules.content import text_of
from parley.security.keys import ApiKeys
from parley.security.netguard import Guard
from parley.stores.records import SqliteRecords
from parley.testing.processes import ServerProcess, until
from parley.testing.servers import serving
from tests.faces.registry.fleet import Fleet


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with serving(tmp_path / "platform", [], store="memory") as platform, httpx2.AsyncClient() as http:
        yield Fleet(http, platform.url)


@agent("echo", name="Echo")
async def echo(turn: Turn):
    yield Text(turn.text)


def shown(fleet: Fleet, node: Node):
    async def show() -> dict[str, object]:
        return (await fleet.ask("GET", f"/workspaces/{node.id}")).json()

    return show


async def test_nodes_that_nobody_created_find_each_other(fleet: Fleet, tmp_path: Path) -> None:
    one, two = (Node(echo, platform=fleet.at, data_dir=tmp_path / name, name=name) for name in ("One", "Two"))
    async with one.running(), two.running():
        await one.registered()
        await two.registered()
        await until(lambda: [peer.name for peer in one.peers] == ["Two"])
        answer = await one.ask(two.id, "hello")
        assert (answer.state, answer.status, answer.text) == (State.COMPLETED, "completed", "hello")
        assert [(text_of(one.parts), one["content"]) for one in answer.artifacts] == [("hello", "hello")]
        assert two.id in one.briefing
        with pytest.raises(PeerRefused):
            await one.ask(two.id, "hello", task="no-such-task")
        with pytest.raises(RemoteError):
            await one.a2a(two.id).get("/tasks/no-such-task")


async def test_media_types_of_artifacts_survive_between_nodes(fleet: Fleet, tmp_path: Path) -> None:
    @agent("typed")
    async def typed(turn: Turn):
        yield ArtifactChunk("<p>", id="page", media_type="text/html")
        yield ArtifactChunk("hi</p>", id="page", media_type="text/html", append=True)
        yield ArtifactChunk({"rows": 2}, id="table", media_type="application/vnd.table+json")

    @agent("front")
    async def front(turn: Turn):
        async for output in front_node.relay(turn, maker.id):
            yield output

    maker = Node(typed, platform=fleet.at, data_dir=tmp_path / "maker")
    front_node = Node(front, platform=fleet.at, data_dir=tmp_path / "front")
    asker = Node(echo, platform=fleet.at, data_dir=tmp_path / "asker")
    async with maker.running(), front_node.running(), asker.running():
        for node in (maker, front_node, asker):
            await node.registered()
        for node in (maker, front_node):
            answer = await asker.ask(node.id, "go")
            made = [(one["type"], one["content"]) for one in answer.contents]
            assert made == [("text/html", "<p>hi</p>"), ("application/vnd.table+json", {"rows": 2})]


async def test_nodes_that_ask_each_other_in_a_circle_come_to_an_end(fleet: Fleet, tmp_path: Path) -> None:
    nodes: list[Node] = []

    @agent("pass-on")
    async def pass_on(turn: Turn):
        here = next(node for node in nodes if node.exchange.driver("pass-on") and node.url in turn.text)
        other = next(node for node in nodes if node is not here)
        yield Text(await other_answer(here, other))

    async def other_answer(here: Node, other: Node) -> str:
        answer = await here.ask(other.id, f"at {other.url}")
        return answer.message if answer.status == "failed" else answer.text

    nodes += [Node(pass_on, platform=fleet.at, data_dir=tmp_path / name) for name in ("one", "two")]
    one, two = nodes
    async with one.running(), two.running():
        await one.registered()
        await two.registered()
        answer = await one.ask(two.id, f"at {two.url}")
    assert "loop" in answer.text


async def test_a_pair_token_is_used_until_it_is_about_to_expire(fleet: Fleet, tmp_path: Path) -> None:
    node = Node(echo, platform=fleet.at, data_dir=tmp_path / "node")
    async with node.running():
        await node.registered()
        peers = node.at_work.peers
        other = await fleet.online("Other")
        known = await peers.where(other.id, False)
        assert await peers.where(other.id, False) is known
        assert (await peers.where(other.id, True)).token != known.token
        with pytest.raises(PeerRefused, match="not allowed to ask"):
            await peers.where((await fleet.online("Below", other)).id, False)


async def test_a_node_whose_tokens_were_revoked_registers_anew(fleet: Fleet, tmp_path: Path) -> None:
    node = Node(echo, platform=fleet.at, data_dir=tmp_path, heartbeat_s=0.1)
    async with node.running():
        await node.registered()
        before = json.loads((tmp_path / "node.json").read_text())
        await fleet.ask("DELETE", f"/workspaces/{node.id}/tokens")
        await until(lambda: json.loads((tmp_path / "node.json").read_text()) != before)
        assert json.loads((tmp_path / "node.json").read_text())["id"] == before["id"]


async def test_a_node_says_what_it_does_in_its_own_words(fleet: Fleet, tmp_path: Path) -> None:
    node = Node(echo, platform=fleet.at, data_dir=tmp_path, heartbeat_s=0.2)
    async with node.running():
        await node.registered()
        node.doing("Counting sheep")
        show = shown(fleet, node)

        async def told() -> bool:
            return (await show())["current_task"] == "Counting sheep"

        await until(told)


async def test_an_operator_comes_in_with_a_key_of_the_node(fleet: Fleet, tmp_path: Path) -> None:
    node = Node(echo, platform=fleet.at, data_dir=tmp_path)
    async with node.running():
        records = SqliteRecords(tmp_path / "parley.db")
        _, key = await ApiKeys(records).create("operator")
        await records.close()
        async with Client(node.url, token=key) as client:
            assert (await client.card())["name"] == "Echo"
            assert (await client.send("hello"))["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        async with Client(node.url) as client:
            with pytest.raises(RemoteError) as refused:
                await client.send("hello")
            assert refused.value.status == 401


def test_what_a_node_cannot_be_started_with_is_said() -> None:
    with pytest.raises(ConfigurationError, match="platform"):
        Node(echo)
    with pytest.raises(ConfigurationError, match="heartbeat_s"):
        Node(echo, platform="http://127.0.0.1:8200", heartbeat_s=0)
    with pytest.raises(ConfigurationError, match="is not running"):
        _ = Node(echo, platform="http://127.0.0.1:8200").peers


def test_every_setting_of_a_node_is_on_its_page_and_can_be_given() -> None:
    page = (Path(__file__).parents[2] / "docs" / "nodekit.md").read_text()
    assert set(NodeSettings.model_fields) == set(NodeArguments.__annotations__)
    assert [name for name in NodeSettings.model_fields if f"`{name}`" not in page.partition("## Settings")[2]] == []


@pytest.mark.slow
async def test_a_node_waits_for_a_platform_that_is_away_when_it_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    node = Node(echo, platform=f"http://127.0.0.1:{port}", data_dir=tmp_path / "node")
    async with node.running():
        platform = await ServerProcess.start(["parley.demo"], tmp_path / "platform", port=port)
        try:
            async with asyncio.timeout(20):
                await node.registered()
        finally:
            await platform.stop()
        with pytest.raises(PeerUnavailable, match="does not answer"):
            await node.ask(node.id, "hello")


@pytest.mark.parametrize("place", ["http://169.254.169.254", "http://[fd00:ec2::254]"])
async def test_a_peer_at_a_metadata_address_is_not_called(tmp_path: Path, place: str) -> None:
    """Also when the platform has let it register there."""
    allow = ["169.254.169.254", "fd00:ec2::254"]
    async with (
        serving(tmp_path / "platform", [], store="memory", allow_hosts=allow) as platform,
        httpx2.AsyncClient() as http,
    ):
        bad = await Fleet(http, platform.url).create("Bad")
        assert (await bad.register(place)).status_code == 200
        async with Node(echo, platform=platform.url, data_dir=tmp_path / "node", name="One").running() as node:
            await node.registered()
            with pytest.raises(PeerRefused, match="not a public address"):
                await node.ask(bad.id, "hello")


@pytest.mark.parametrize(
    ("address", "permitted"),
    [
        ("10.1.2.3", True), ("172.18.0.4", True), ("192.168.1.1", True), ("fd12::1", True), ("93.184.216.34", True),
        ("127.0.0.1", False), ("169.254.0.1", False), ("100.64.0.1", False), ("fd00:ec2::254", False),
    ],
)  # fmt: skip
def test_peers_are_called_inside_of_organisations(address: str, permitted: bool) -> None:
    assert Guard(private=True).permits("peer", 80, ip_address(address)) is permitted
