"""Where nodes are: the contract's keys in a real Redis, which may be away and may not be wrong for long."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace
from redis.asyncio import Redis as Client

from parley.errors import ConfigurationError
from parley.nodes.rules import NodeStatus, RegisteredNode
from parley.stores.node_urls import LIFE_S, RedisUrls
from parley.testing.servers import serving
from tests.faces.registry.conftest import Redis
from tests.faces.registry.fleet import Fleet

NODE = RegisteredNode("n", "n", status=NodeStatus.ONLINE, url="http://in", host_url="http://out", version=1)


@pytest.fixture
async def client(redis: Redis) -> AsyncIterator[Any]:
    client: Any = Client.from_url(redis.url)
    await client.flushdb()
    yield client
    await client.aclose()


@pytest.fixture
async def urls(redis: Redis, client: Any) -> AsyncIterator[RedisUrls]:
    made = RedisUrls(redis.url)
    yield made
    await made.close()


async def test_both_addresses_are_kept_under_the_contracts_keys_for_five_minutes(urls: RedisUrls, client: Any) -> None:
    assert await urls.get(NODE, internal=True) is None
    await urls.put(NODE, changed=True)
    assert await client.get("ws:n:internal_url") == b"http://in"
    assert await client.get("ws:n:url") == b"http://out"
    assert LIFE_S - 5 < await client.ttl("ws:n:url") <= LIFE_S == 300
    assert (await urls.get(NODE, internal=True), await urls.get(NODE, internal=False)) == ("http://in", "http://out")
    await urls.forget("n")
    assert await client.keys("ws:*") == []


async def test_filling_in_never_replaces_what_somebody_wrote(urls: RedisUrls, client: Any) -> None:
    await client.set("ws:n:url", "http://127.0.0.1:32768")
    await urls.put(NODE, changed=False)
    assert await urls.get(NODE, internal=False) == "http://127.0.0.1:32768"
    await urls.put(replace(NODE, host_url="http://new"), changed=True)
    assert await urls.get(NODE, internal=False) == "http://new"


async def test_a_server_reads_and_fills_the_keys(
    redis: Redis, client: Any, tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    async with serving(tmp_path, [], store="memory", redis_url=redis.url) as server:
        fleet = Fleet(http, server.url)
        one, two = await fleet.online("One"), await fleet.online("Two")
        assert await client.get(f"ws:{two.id}:internal_url") == b"http://127.0.0.1:9001"
        await client.set(f"ws:{two.id}:internal_url", "http://127.0.0.1:1234")
        assert (await one.discover(two)).json()["url"] == "http://127.0.0.1:1234"
        await client.flushdb()
        assert (await one.discover(two)).json()["url"] == "http://127.0.0.1:9001"
        assert await client.get(f"ws:{two.id}:internal_url") == b"http://127.0.0.1:9001"
        await fleet.ask("DELETE", f"/workspaces/{two.id}")
        assert await client.keys(f"ws:{two.id}:*") == []


async def test_a_redis_that_is_away_only_slows_and_is_not_believed_about_what_it_missed(tmp_path: Path) -> None:
    now = 0
    redis = Redis(tmp_path)
    urls = RedisUrls(redis.url, lambda: now)
    await urls.put(NODE, changed=True)
    redis.kill()
    for _ in range(3):
        assert await urls.get(NODE, internal=True) is None
    moved = replace(NODE, url="http://moved")
    begun = asyncio.get_running_loop().time()
    await urls.put(moved, changed=True)
    for _ in range(100):
        assert await urls.get(moved, internal=True) is None
    assert asyncio.get_running_loop().time() - begun < 0.2

    redis.start()
    old: Any = Client.from_url(redis.url)
    await old.set("ws:n:internal_url", "http://in")
    now += 11_000
    assert await urls.get(moved, internal=True) is None
    assert await old.get("ws:n:internal_url") == b"http://moved"
    assert await urls.get(moved, internal=True) == "http://moved"
    await old.aclose()
    await urls.close()
    redis.kill()


async def test_an_answer_that_takes_too_long_is_none() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    urls = RedisUrls(f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0")
    begun = asyncio.get_running_loop().time()
    assert await urls.get(NODE, internal=True) is None
    assert asyncio.get_running_loop().time() - begun < 1.5
    await urls.close()
    server.close()


def test_an_address_that_is_none_is_a_wrong_setting() -> None:
    with pytest.raises(ConfigurationError, match="redis_url"):
        RedisUrls("http://nowhere")


async def test_a_patched_address_counts_at_once(
    redis: Redis, client: Any, tmp_path: Path, http: httpx2.AsyncClient
) -> None:
    async with serving(tmp_path, [], store="memory", redis_url=redis.url) as server:
        fleet = Fleet(http, server.url)
        node = await fleet.online("One")
        path, key = f"/workspaces/{node.id}", f"ws:{node.id}:url"
        for url in ("http://127.0.0.1:9002", "http://127.0.0.1:9003"):
            await fleet.ask("PATCH", path, {"url": url})
            assert await client.get(key) == url.encode()
            assert (await fleet.ask("GET", f"/registry/discover/{node.id}")).json()["url"] == url
        await fleet.ask("PATCH", path, {"url": ""})
        assert await client.get(key) == b"http://127.0.0.1:9001"


async def test_a_node_without_an_address_has_no_keys(urls: RedisUrls, client: Any) -> None:
    await urls.put(NODE, changed=True)
    await urls.put(replace(NODE, url="", host_url=""), changed=True)
    assert await client.keys("ws:*") == []
