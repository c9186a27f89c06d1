"""Failures: connections that break, remote agents that are missing, cycles."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import httpx2
import pytest

from parley import Turn, agent
from parley.app import open_records
from parley.client import Client, Json
from parley.drivers.remote import OutboundConnections, RemoteDriver, RemoteOptions, blank_remote
from parley.drivers.remote.connections import plain_transport
from parley.ids import RunId
from parley.runs.rules.content import text_of
from parley.runs.rules.events import ArtifactAdded
from parley.runs.streams import read_all
from parley.security.keys import ApiKeys
from parley.security.netguard import Guard, GuardedTransport
from parley.settings import Settings
from parley.telemetry import attach
from parley.testing.processes import until
from parley.testing.servers import serving
from tests.drivers.conftest import echo, remote, send, state, texts, words

from .chain_agents import STEPS, asker, ticker
from .sdk_agent import sdk_server

COUNTED = "".join(f"{number} " for number in range(STEPS))


class _Cut(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, after: int) -> None:
        self._stream = stream
        self._after = after

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._after
        async for chunk in self._stream:
            yield chunk[:left]
            left -= len(chunk)
            if left <= 0:
                raise httpx2.ReadError("cut")

    async def aclose(self) -> None:
        await self._stream.aclose()


class Flaky(httpx2.AsyncBaseTransport):
    """Cuts every stream after some bytes, in the middle of an event."""

    def __init__(self, after: int) -> None:
        self._transport = plain_transport()
        self._after = after
        self.cuts = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        reply = await self._transport.handle_async_request(request)
        if "text/event-stream" in reply.headers.get("content-type", ""):
            self.cuts += 1
            reply.stream = _Cut(reply.stream, self._after)
        return reply

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self


class Swallowing(httpx2.AsyncBaseTransport):
    """Delivers what is posted, and never brings an answer back."""

    def __init__(self) -> None:
        self._transport = plain_transport()
        self.delivered = asyncio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        reply = await self._transport.handle_async_request(request)
        if request.method == "POST":
            await reply.aclose()
            self.delivered.set()
            await asyncio.Event().wait()
        return reply

    async def aclose(self) -> None:
        await self._transport.aclose()

    async def __aenter__(self) -> Self:
        return self


def through(transport: httpx2.AsyncBaseTransport, slug: str, url: str, **options: Any) -> RemoteDriver:
    return RemoteDriver(blank_remote(slug), RemoteOptions(url, **options), OutboundConnections(lambda: transport))


def said(task: Json) -> list[str]:
    agent_said = [one for one in task["history"] if one["role"] == "ROLE_AGENT"]
    return [part["text"] for one in agent_said for part in one["parts"]]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
@pytest.mark.parametrize("after", [700, 5_000])
async def test_a_stream_that_breaks_again_and_again_is_whole(
    tmp_path: Path, binding: Any, version: Any, after: int
) -> None:
    async with serving(tmp_path / "back", [ticker]) as back, Flaky(after) as flaky:
        driver = through(flaky, "ticker", back.agent("ticker"), bindings=(binding,), version=version)
        async with serving(tmp_path / "front", [driver]) as front, Client(front.agent("ticker")) as client:
            task = await send(client, "go")
            events = await read_all(front.exchange.store, RunId(task["id"]))
    assert (state(task), words(task)) == ("completed", "counted")
    chunks = [event.payload.parts for event in events if isinstance(event.payload, ArtifactAdded)]
    assert "".join(text_of(parts) for parts in chunks) == COUNTED
    assert said(task) == [f"tick {number}" for number in range(STEPS)]
    assert flaky.cuts > 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
async def test_a_broken_stream_of_a_remote_without_numbers_is_whole(tmp_path: Path) -> None:
    async with sdk_server() as (url, executor), Flaky(3_000) as flaky:
        driver = through(flaky, "counter", url)
        async with serving(tmp_path, [driver]) as front, Client(front.agent("counter")) as client:
            task = await send(client, "count")
    assert (state(task), words(task)) == ("completed", "counted")
    assert texts(task) == {"ticks": "".join(f"{number} " for number in range(30))}
    assert said(task) == [f"tick {number}" for number in range(30)]
    assert executor.begun == 1
    assert flaky.cuts > 1


async def test_a_send_whose_answer_never_came_is_not_made_twice(tmp_path: Path) -> None:
    """As after a crash between the send and the note about it."""
    async with serving(tmp_path / "back", [asker]) as back, Swallowing() as swallowing:
        driver = through(swallowing, "asker", back.agent("asker"))
        async with serving(tmp_path / "front", [driver]) as front, Client(front.agent("asker")) as client:
            params = {"message": _with_metadata("go")}
            asking = asyncio.get_running_loop().create_task(client.call("SendMessage", params))
            await swallowing.delivered.wait()
            asking.cancel()
        async with (
            serving(tmp_path / "front", [remote("asker", back.agent("asker"))]) as front,
            Client(front.url + "/") as client,
            Client(back.url + "/") as behind,
        ):
            (task,) = (await client.call("ListTasks", {}))["tasks"]
            await until(lambda: _is(client, task["id"], "input_required"))
            assert len((await behind.call("ListTasks", {}))["tasks"]) == 1


async def test_a_remote_that_is_down_does_not_keep_us_from_starting(tmp_path: Path) -> None:
    driver = remote("echo", "http://127.0.0.1:9/agents/echo")
    async with serving(tmp_path, [driver]) as front:
        assert front.exchange.agent("echo").description == "The agent echo."
        async with Client(front.agent("echo")) as client:
            assert (await client.card())["skills"]


async def test_what_the_card_says_is_taken_over_when_the_remote_is_back(tmp_path: Path) -> None:
    async with serving(tmp_path / "back", [echo]) as back:
        url, driver = back.agent("echo"), remote("echo", "http://127.0.0.1:9/agents/echo")
        async with serving(tmp_path / "front", [driver]) as front:
            driver._options = RemoteOptions(url)  # pyright: ignore[reportPrivateUsage]
            async with Client(front.agent("echo")) as client:
                assert list(texts(await send(client, "hi")).values()) == ["hi"]
                assert (await client.card())["description"] == "Says what you said."
                assert (await client.card())["skills"][0]["description"] == "Says what you said."


async def test_a_circle_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, [echo]) as server:
        server.exchange.add(remote("loop", server.agent("loop")))
        async with Client(server.agent("loop")) as client, Client(server.url + "/") as anybody:
            task = await send(client, "round and round")
            assert state(task) == "rejected"
            assert task["status"]["message"]["metadata"]["code"] == "too_many_hops"
            assert len((await anybody.call("ListTasks", {"pageSize": 100}))["tasks"]) == 11


async def test_a_circle_through_an_agent_that_asks_is_refused(tmp_path: Path) -> None:
    @agent("asks")
    async def asks(turn: Turn):
        yield (await turn.ask("loop", turn.text)).state

    async with serving(tmp_path, [asks]) as server:
        server.exchange.add(remote("loop", server.agent("asks")))
        async with Client(server.agent("asks")) as client, Client(server.url + "/") as anybody:
            assert state(await send(client, "round and round")) == "completed"
            assert len((await anybody.call("ListTasks", {"pageSize": 100}))["tasks"]) == 22


async def test_the_credential_goes_out_and_is_never_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []
    detach = attach(lambda name, fields: told.append(f"{name} {fields!r}"))
    monkeypatch.setenv("BACK_TOKEN", "s3cret-that-is-wrong")
    async with serving(tmp_path / "back", [echo], auth="required") as back:
        driver = remote("echo", back.agent("echo"), token_from="BACK_TOKEN")
        async with serving(tmp_path / "front", [driver]) as front, Client(front.agent("echo")) as client:
            task = await send(client, "hi")
            assert state(task) == "failed"
            assert task["status"]["message"]["metadata"]["code"] == "remote_refused"
            assert "credentials" in words(task)
            events = await read_all(front.exchange.store, RunId(task["id"]))
    detach()
    everything = [str(task), *told, caplog.text, *(str(event.body) for event in events), repr(driver)]
    assert not [one for one in everything if "s3cret" in one]


async def test_the_credential_opens_the_remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(tmp_path / "back", [echo], auth="required") as back:
        async with open_records(Settings.model_validate({"data_dir": tmp_path / "back"})) as records:
            _, token = await ApiKeys(records).create("front", frozenset(("send", "read")))
        monkeypatch.setenv("BACK_TOKEN", token)
        drivers = [
            remote("bearer", back.agent("echo"), token_from="BACK_TOKEN"),
            remote("key", back.agent("echo"), token_from="BACK_TOKEN", header="X-API-Key"),
        ]
        async with serving(tmp_path / "front", drivers) as front:
            for slug in ("bearer", "key"):
                async with Client(front.agent(slug)) as client:
                    assert list(texts(await send(client, "hi")).values()) == ["hi"]


class CardOnly(httpx2.AsyncBaseTransport):
    """Gives out a card that names another place, and notes what it is asked."""

    def __init__(self, place: str) -> None:
        interface = {"url": place, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        self._card = {
            "name": "x", "description": "x", "version": "1", "capabilities": {}, "skills": [],
            "defaultInputModes": ["*/*"], "defaultOutputModes": [], "supportedInterfaces": [interface],
        }  # fmt: skip
        self.asked: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request.url.host)
        return httpx2.Response(200, json=self._card)


async def _told_code(directory: Path, driver: RemoteDriver) -> str:
    async with serving(directory, [driver]) as front, Client(front.agent(driver.agent.slug)) as client:
        task = await send(client, "hi")
        return task["status"]["message"]["metadata"]["code"]


async def test_a_card_that_leads_elsewhere_gets_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACK_TOKEN", "s3cret")
    transport = CardOnly("http://elsewhere.example/a2a")
    driver = through(transport, "echo", "http://here.example", token_from="BACK_TOKEN")
    assert await _told_code(tmp_path, driver) == "remote_refused"
    assert set(transport.asked) == {"here.example"}


async def test_a_card_that_leads_into_the_cellar_is_not_followed(tmp_path: Path) -> None:
    transport = CardOnly("http://169.254.169.254/latest")
    outside = OutboundConnections(lambda: transport, lambda: GuardedTransport(Guard()))
    driver = RemoteDriver(blank_remote("echo"), RemoteOptions("http://here.example"), outside)
    assert await _told_code(tmp_path, driver) == "outbound_refused"
    assert set(transport.asked) == {"here.example"}


def _with_metadata(text: str) -> Json:
    return {
        "messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": text}],
        "metadata": {name: number for number, name in enumerate("zyxwvutsrq")},
    }  # fmt: skip


async def _is(client: Client, task: str, wanted: str) -> bool:
    return state(await client.get(task)) == wanted
