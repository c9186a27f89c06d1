"""The stream over the wire: where it begins, how long it stays, how it ends."""

import asyncio
from contextlib import aclosing

import pytest

from parley.client.control import RuntimeClient
from parley.ids import RunId
from parley.runs.service import Exchange
from parley.testing.processes import until as until_true
from parley.testing.servers import Server
from tests.faces.control.wire import THREAD, Wire, error_of, kinds, until, until_done


async def ended(wire: Wire, client: RuntimeClient) -> str:
    run = await wire.new_run()
    await client.say(run, THREAD, "hi")
    await client.finish(run, THREAD)
    await until_done(client, run)
    return run


def path(run: str, *query: str) -> str:
    return "&".join([f"/runs/{run}/stream?thread_id={THREAD}", *query])


async def test_a_stream_is_written_as_the_contract_shows_it(wire: Wire, client: RuntimeClient) -> None:
    run = await ended(wire, client)
    reply = await wire.get(path(run, "cursor=3"))
    assert reply.headers["content-type"].startswith("text/event-stream")
    first, *_, last = reply.text.split("\n\n")[:-1]
    assert first == f'event: message\nid: 4\ndata: {{"type":"text-delta","runId":"{run}","delta":"hi"}}'
    latest = (await client.snapshot(run, THREAD))["latestSeq"]
    assert last == f"event: message\nid: {latest}\ndata: [DONE]"


async def test_the_end_and_done_share_a_number(wire: Wire, client: RuntimeClient) -> None:
    run = await ended(wire, client)
    *_, finish, done = (await wire.get(path(run, "cursor=0"))).text.split("\n\n")[:-1]
    assert '"type":"finish"' in finish
    assert finish.split("\n")[1] == done.split("\n")[1]


async def test_a_run_can_be_read_from_every_event_on(wire: Wire, client: RuntimeClient) -> None:
    run = await ended(wire, client)
    everything = await until_done(client, run)
    for cursor in range(len(everything)):
        assert await until_done(client, run, cursor) == everything[cursor:]


async def test_the_header_says_the_same_as_the_query(wire: Wire, client: RuntimeClient) -> None:
    run = await ended(wire, client)
    by_query = await wire.get(path(run, "cursor=2"))
    by_header = await wire.get(path(run), headers={"Last-Event-ID": "2"})
    by_both = await wire.get(path(run, "cursor=2"), headers={"Last-Event-ID": "2"})
    assert by_query.text == by_header.text == by_both.text
    reply = await wire.get(path(run, "cursor=2"), headers={"Last-Event-ID": "3"})
    assert error_of(reply) == (400, "invalid_request", "cursor query and Last-Event-ID must match")


@pytest.mark.parametrize("cursor", ["-1", "x", "1.5", "", "1e3", "99999999999999999999"])
async def test_a_cursor_is_a_number(wire: Wire, client: RuntimeClient, cursor: str) -> None:
    run = await wire.new_run()
    reply = await wire.get(path(run, f"cursor={cursor}"))
    assert error_of(reply) == (400, "invalid_request", "cursor must be an integer >= 0")


@pytest.mark.parametrize("tail", ["0", "-5", "x", "1.5", ""])
async def test_a_tail_is_a_positive_number(wire: Wire, tail: str) -> None:
    run = await wire.new_run()
    reply = await wire.get(path(run, f"tail_ms={tail}"))
    assert error_of(reply) == (400, "invalid_request", "tail_ms must be a positive integer")


async def test_a_cursor_beyond_the_end_belongs_to_another_run(wire: Wire) -> None:
    run = await wire.new_run()
    assert error_of(await wire.get(path(run, "cursor=5")))[:2] == (400, "invalid_request")


async def test_without_a_cursor_a_stream_begins_now(server: Server, wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run()
    await client.say(run, THREAD, "before")
    before = await until(client, run, "run.input_required")
    await until_true(lambda: not server.exchange.streams.followed)
    async with aclosing(client.stream(run, THREAD)) as events:
        first = asyncio.ensure_future(anext(events))
        await until_true(lambda: bool(server.exchange.streams.followed))
        await client.say(run, THREAD, "after")
        assert (await first)[0] == before[-1][0] + 1


async def test_a_stream_that_waits_closes_when_its_tail_is_over(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run()
    async with aclosing(client.stream(run, THREAD, 0, tail_ms=50)) as events:
        assert kinds([event async for event in events]) == ["run.created"]


async def test_a_stream_wakes_for_what_comes_during_its_tail(wire: Wire, client: RuntimeClient) -> None:
    run = await wire.new_run()
    async with aclosing(client.stream(run, THREAD, 0, tail_ms=20_000)) as events:
        assert (await anext(events))[0] == 1
        await client.say(run, THREAD, "hi")
        await client.finish(run, THREAD)
        seen = [event async for event in events]
    assert [seq for seq, _ in seen] == list(range(2, 2 + len(seen)))
    assert kinds(seen)[-1] == "finish"


async def test_whoever_comes_after_the_end_is_told_that_it_is_done(wire: Wire, client: RuntimeClient) -> None:
    run = await ended(wire, client)
    latest = (await client.snapshot(run, THREAD))["latestSeq"]
    for cursor in ((), (f"cursor={latest}",)):
        reply = await wire.get(path(run, *cursor))
        assert reply.text == f"event: message\nid: {latest}\ndata: [DONE]\n\n"


async def test_a_cursor_before_what_is_kept_is_stale(server: Server, wire: Wire, client: RuntimeClient) -> None:
    run = await ended(wire, client)
    await forget(server.exchange, RunId(run), 4)
    reply = await wire.get(path(run, "cursor=2"))
    assert error_of(reply)[:2] == (410, "stale_cursor")
    assert reply.json()["error"]["details"] == [{"cursor": 2, "floor": 4}]
    assert (await wire.get(path(run, "cursor=4"))).status_code == 200


async def forget(exchange: Exchange, run: RunId, floor: int) -> None:
    view = await exchange.view(run)
    await exchange.store.trim(run, floor, view.snapshot())
