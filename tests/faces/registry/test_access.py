"""Access rules: the hierarchy between nodes, tokens, operators; refusals use the contract's words."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from parley.security.keys import ApiKeys
from parley.stores.records import SqliteRecords
from parley.stores.sqlite import FILE
from parley.testing.servers import serving
from tests.faces.registry.fleet import CARD, Fleet, Node

NOBODY = "00000000-0000-4000-8000-000000000000"


class House(Fleet):
    """Two roots; below the first two teams, and below one of those somebody."""

    async def build(self) -> "House":
        self.root, self.other = await self.online("Root"), await self.online("Other")
        self.left, self.right = await self.online("Left", self.root), await self.online("Right", self.root)
        self.leaf = await self.online("Leaf", self.left)
        return self


@pytest.fixture
async def house(small: Fleet) -> House:
    return await House(small.http, small.at).build()


async def test_nodes_find_their_own_and_nobody_else(house: House) -> None:
    for caller, target, status in [
        (house.left, house.right, 200), (house.left, house.root, 200), (house.root, house.left, 200),
        (house.root, house.other, 200), (house.leaf, house.leaf, 200), (house.leaf, house.root, 403),
        (house.leaf, house.right, 403), (house.other, house.left, 403),
    ]:  # fmt: skip
        reply = await caller.discover(target)
        assert reply.status_code == status
        pair = {"caller_id": caller.id, "target_id": target.id}
        assert (await caller.post("/registry/check-access", pair)).json() == {"allowed": status == 200}
    assert (await house.leaf.discover(house.root)).json() == {"error": "not authorized to discover this workspace"}
    missing = await house.leaf.discover(NOBODY)
    assert (missing.status_code, missing.json()) == (404, {"error": "workspace not found"})
    names = {peer["name"] for peer in (await house.left.get(f"/registry/{house.left.id}/peers")).json()}
    assert names == {"Root", "Right", "Leaf"}
    page = await house.left.get(f"/registry/{house.left.id}/peers?limit=2")
    rest = await house.left.get(f"/registry/{house.left.id}/peers?limit=2&after={page.headers['x-next-after']}")
    assert {peer["name"] for peer in [*page.json(), *rest.json()]} == names


async def test_ancestors_may_talk_where_the_setting_says_so(tmp_path: Path, http: httpx2.AsyncClient) -> None:
    async with serving(tmp_path, [], store="memory", node_ancestors=True) as server:
        house = await House(http, server.url).build()
        assert (await house.leaf.discover(house.root)).status_code == 200
        assert (await house.root.discover(house.leaf)).status_code == 200
        assert (await house.leaf.discover(house.right)).status_code == 403
        assert (await house.leaf.discover(house.other)).status_code == 403


async def test_a_token_is_needed_once_there_is_one(house: House) -> None:
    for call in ("register", "beat", "discover"):
        for token, error in (("", "missing workspace auth token"), ("x" * 43, "invalid workspace auth token"),
                             (house.left.token, "invalid workspace auth token")):  # fmt: skip
            stranger = Node(house.http, house.at, house.right.id, token)
            reply = await (stranger.discover(house.left) if call == "discover" else getattr(stranger, call)())
            assert (reply.status_code, reply.json()) == (401, {"error": error}), call


async def test_tokens_can_be_replaced_and_revoked(house: House) -> None:
    path = f"/workspaces/{house.left.id}/tokens"
    issued = (await house.ask("POST", path)).json()
    newer = Node(house.http, house.at, house.left.id, issued["auth_token"])
    assert [one["prefix"] for one in (await newer.get(path)).json()] == [house.left.token[:8], issued["prefix"]]
    revoked = await house.http.delete(f"{house.at}{path}/{house.left.token[:8]}", headers=newer.headers)
    assert revoked.json() == {"status": "revoked", "revoked": 1}
    assert (await house.left.beat()).status_code == 401
    assert (await newer.beat()).status_code == 200
    assert (await house.ask("DELETE", f"{path}/nobodys0")).status_code == 404
    assert (await house.right.get(path)).status_code == 403
    await house.ask("DELETE", path)
    assert (await newer.beat()).status_code == 401
    again = Node(house.http, house.at, house.left.id)
    assert len((await again.register()).json()["auth_token"]) == 43


async def test_nodes_see_of_each_other_what_peers_may_see(house: House) -> None:
    own = (await house.left.get(f"/workspaces/{house.left.id}")).json()
    assert "monthly_spend" in own
    peers = (await house.right.get(f"/workspaces/{house.left.id}")).json()
    assert set(peers) == {
        "id", "name", "role", "tier", "status", "agent_card", "url", "parent_id", "active_tasks",
    }  # fmt: skip
    assert (await house.leaf.get(f"/workspaces/{house.right.id}")).status_code == 404
    assert (await house.right.get(f"/workspaces/{house.left.id}/activity")).status_code == 403
    assert (await house.left.get("/workspaces")).status_code == 401
    family = (await house.ask("GET", f"/workspaces/{house.left.id}/hierarchy")).json()
    assert [one["name"] for one in family["ancestors"]] == ["Root"]
    assert [one["name"] for one in family["children"]] == ["Leaf"]


async def test_outside_a_node_has_the_address_that_its_operator_gave(small: Fleet) -> None:
    node = await small.create("Inside", url="http://127.0.0.1:32768")
    assert (await small.ask("GET", f"/registry/discover/{node.id}")).json() == {
        "error": "workspace not available", "status": "provisioning",
    }  # fmt: skip
    await node.register("http://127.0.0.1:8000")
    friend = await small.online("Friend")
    assert (await friend.discover(node)).json()["url"] == "http://127.0.0.1:8000"
    outside = (await small.ask("GET", f"/registry/discover/{node.id}")).json()
    assert outside == {"id": node.id, "url": "http://127.0.0.1:32768", "name": "Inside"}
    assert (await node.register("http://127.0.0.1:8001")).status_code == 200
    assert (await friend.discover(node)).json()["url"] == "http://127.0.0.1:8001"
    assert (await small.ask("GET", f"/registry/discover/{node.id}")).json()["url"] == "http://127.0.0.1:32768"
    await small.ask("PATCH", f"/workspaces/{node.id}", {"status": "paused"})
    paused = await friend.discover(node)
    assert (paused.status_code, paused.json()) == (503, {"error": "workspace not available", "status": "paused"})
    assert (await node.beat()).status_code == 200
    assert (await small.show(node))["status"] == "paused"


async def test_a_removed_node_leads_to_its_successor(small: Fleet) -> None:
    one, two, three, friend = [await small.online(name) for name in ("One", "Two", "Three", "Friend")]
    circle = await small.ask("DELETE", f"/workspaces/{one.id}?forwarded_to={one.id}")
    assert circle.status_code == 400
    assert (await small.ask("DELETE", f"/workspaces/{one.id}?forwarded_to={two.id}")).status_code == 200
    assert (await small.ask("DELETE", f"/workspaces/{two.id}?forwarded_to={one.id}")).status_code == 400
    assert (await small.ask("DELETE", f"/workspaces/{two.id}?forwarded_to={three.id}")).status_code == 200
    moved = await friend.discover(one)
    assert moved.status_code == 301
    assert moved.headers["location"] == f"/registry/discover/{three.id}"
    assert moved.json()["id"] == three.id
    await small.ask("DELETE", f"/workspaces/{three.id}")
    gone = await friend.discover(one)
    assert gone.status_code == 410
    assert gone.json()["last_event"]["event"] == "WORKSPACE_REMOVED"


async def test_a_successor_out_of_reach_is_not_told(small: Fleet) -> None:
    root = await small.online("Root")
    hidden, one, friend = await small.online("Hidden", root), await small.online("One"), await small.online("Friend")
    await small.ask("DELETE", f"/workspaces/{one.id}?forwarded_to={hidden.id}")
    assert (await friend.discover(one)).status_code == 403
    stranger = await small.online("Stranger", root)
    await small.ask("DELETE", f"/workspaces/{friend.id}")
    assert (await stranger.discover(friend)).status_code == 403


async def test_nodes_cannot_be_moved_into_circles_or_removed_from_above_others(house: House) -> None:
    for parent in (house.root.id, house.leaf.id):
        reply = await house.ask("PATCH", f"/workspaces/{house.root.id}", {"parent_id": parent})
        assert reply.status_code == 400
    assert (await house.ask("PATCH", f"/workspaces/{house.leaf.id}", {"parent_id": NOBODY})).status_code == 400
    moved = await house.ask("PATCH", f"/workspaces/{house.leaf.id}", {"parent_id": house.other.id})
    assert moved.json()["parent_id"] == house.other.id
    assert (await house.leaf.discover(house.left)).status_code == 403
    await house.ask("PATCH", f"/workspaces/{house.leaf.id}", {"parent_id": house.left.id})
    refused = await house.ask("DELETE", f"/workspaces/{house.root.id}")
    assert refused.status_code == 409
    assert refused.json()["error"] == "workspace has children"
    gone = (await house.ask("DELETE", f"/workspaces/{house.root.id}?cascade=true")).json()["removed"]
    assert set(gone) == {house.root.id, house.left.id, house.right.id, house.leaf.id}
    assert (await house.leaf.beat()).status_code == 401


async def test_what_cannot_be_understood_is_refused_in_words(small: Fleet) -> None:
    node = await small.create("One")
    for path in ("/registry/discover/x", "/registry/x/peers", "/workspaces/x", "/workspaces/x/activity",
                 "/workspaces/x/events/stream"):  # fmt: skip
        reply = await small.ask("GET", path)
        assert (reply.status_code, reply.json()) == (400, {"error": "invalid workspace id"}), path
    wrong = [
        ("/registry/register", {"id": node.id, "url": "http://127.0.0.1:1"}), ("/registry/register", {"id": "x"}),
        ("/registry/register", {"id": node.id, "url": "http://10.0.0.1", "agent_card": {}}),
        ("/registry/register", {"id": node.id, "url": "http://169.254.169.254", "agent_card": {}}),
        ("/registry/register", {"id": node.id, "url": "file:///etc/passwd", "agent_card": {}}),
        ("/registry/heartbeat", {"workspace_id": node.id, "error_rate": 7}), ("/registry/check-access", {}),
        ("/workspaces", {}), ("/workspaces", {"name": "x" * 256}), ("/workspaces", {"name": "a\nb"}),
        ("/workspaces", {"name": "x", "url": "http://192.168.0.1"}), ("/workspaces", {"name": "x", "parent_id": "y"}),
        ("/workspaces", {"name": "x", "parent_id": NOBODY}),
    ]  # fmt: skip
    for path, body in wrong:
        reply = await small.ask("POST", path, body)
        assert reply.status_code == 400, (path, body)
        assert isinstance(reply.json()["error"], str)
    large = await small.ask("POST", "/workspaces", {"name": "x", "role": "y" * 300_000})
    assert large.status_code == 413
    broken = await small.http.post(f"{small.at}/registry/register", content=b"{")
    assert (broken.status_code, broken.json()) == (400, {"error": "invalid request body"})


async def test_one_that_nobody_created_may_register_itself_here(small: Fleet) -> None:
    node = Node(small.http, small.at, str(uuid.uuid4()).upper())
    assert (await node.register(agent_card={**CARD, "name": "Newcomer"})).status_code == 200
    assert (await small.show(node))["name"] == "Newcomer"


@pytest.fixture
async def guarded(tmp_path: Path, http: httpx2.AsyncClient) -> AsyncIterator[tuple[Fleet, Fleet]]:
    """A server that needs credentials: its operator, and somebody who may read."""
    data = tmp_path / "data"
    keys = ApiKeys(records := SqliteRecords(data / FILE))
    admin, user = [(await keys.create(name, [name]))[1] for name in ("admin", "read")]
    await records.close()
    async with serving(data, [], auth="required", allow_hosts=["127.0.0.1"]) as server:
        yield Fleet(http, server.url, admin), Fleet(http, server.url, user)


async def test_where_credentials_are_needed_strangers_learn_nothing(guarded: tuple[Fleet, Fleet]) -> None:
    operator, _ = guarded
    node = await operator.online("One")
    nobody = Fleet(operator.http, operator.at)
    for method, path, body in [
        ("GET", "/workspaces", None), ("POST", "/workspaces", {"name": "x"}), ("GET", f"/workspaces/{node.id}", None),
        ("DELETE", f"/workspaces/{node.id}", None), ("GET", f"/registry/discover/{node.id}", None),
        ("GET", f"/registry/{node.id}/peers", None), ("GET", "/workspaces/events/stream", None),
        ("POST", "/registry/check-access", {"caller_id": node.id, "target_id": node.id}),
        ("POST", "/registry/introspect", {"token": "x"}), ("GET", f"/workspaces/{NOBODY}", None),
    ]:  # fmt: skip
        assert (await nobody.ask(method, path, body)).status_code == 401, path
    for fake in (Fleet(operator.http, operator.at, "x" * 43), Fleet(operator.http, operator.at, "parley_x")):
        assert (await fake.ask("GET", f"/workspaces/{node.id}")).status_code == 401
        assert (await fake.ask("GET", "/workspaces")).status_code == 401


async def test_a_user_finds_nodes_from_outside_and_looks_after_none(guarded: tuple[Fleet, Fleet]) -> None:
    operator, user = guarded
    node = await operator.online("One")
    assert (await user.ask("GET", f"/registry/discover/{node.id}")).json()["url"] == "http://127.0.0.1:9001"
    assert "monthly_spend" not in (await user.show(node))
    for method, path, body in [
        ("GET", "/workspaces", None), ("POST", "/workspaces", {"name": "x"}),
        ("DELETE", f"/workspaces/{node.id}", None), ("PATCH", f"/workspaces/{node.id}", {"name": "x"}),
        ("GET", f"/workspaces/{node.id}/activity", None),
        ("GET", "/workspaces/events/stream", None), ("POST", f"/workspaces/{node.id}/tokens", None),
        ("DELETE", f"/workspaces/{node.id}/tokens", None),
    ]:  # fmt: skip
        assert (await user.ask(method, path, body)).status_code == 403, path


async def test_the_first_registration_needs_the_token_that_came_with_the_node(guarded: tuple[Fleet, Fleet]) -> None:
    operator, user = guarded
    node = await operator.create("One")
    for token in ("", "x" * 43, user.headers["Authorization"].partition(" ")[2]):
        assert (await Node(node.http, node.at, node.id, token).register()).status_code == 401
    admission = node.token
    assert len((await node.register()).json()["auth_token"]) == 43
    assert (await Node(node.http, node.at, node.id, admission).register()).status_code == 401
    stranger = Node(node.http, node.at, str(uuid.uuid4()))
    assert (await stranger.register()).status_code == 401
    assert (await node.get(f"/workspaces/{node.id}")).status_code == 200


async def test_the_internal_address_of_a_node_is_for_nodes_that_may_talk_to_it(guarded: tuple[Fleet, Fleet]) -> None:
    operator, user = guarded
    house = await House(operator.http, operator.at, operator.headers["Authorization"].removeprefix("Bearer ")).build()
    outside = "http://127.0.0.1:9100"
    for node in (house.root, house.left, house.right, house.leaf):
        assert (await operator.ask("PATCH", f"/workspaces/{node.id}", {"url": outside})).status_code == 200
    inside = "http://127.0.0.1:9001"
    peers = f"/registry/{house.left.id}/peers"
    assert {peer["url"] for peer in (await house.left.get(peers)).json()} == {inside}
    assert (await house.left.get(f"/workspaces/{house.right.id}")).json()["url"] == inside
    for reader in (user, operator):
        assert {peer["url"] for peer in (await reader.ask("GET", peers)).json()} == {outside}
    seen = await user.show(house.right)
    assert (seen["url"], "internal_url" in seen) == (outside, False)
    found = (await house.leaf.get(f"/workspaces/{house.leaf.id}/hierarchy")).json()
    urls = {one["name"]: one["url"] for one in found["ancestors"]}
    assert urls == {"Left": inside, "Root": outside}, "levels may not be skipped"


async def test_the_answer_to_a_patch_shows_the_card(small: Fleet) -> None:
    node = await small.online("One")
    changed = (await small.ask("PATCH", f"/workspaces/{node.id}", {"name": "Two"})).json()
    assert (changed["name"], changed["agent_card"]) == ("Two", CARD)
    assert changed == (await small.ask("GET", f"/workspaces/{node.id}")).json()
