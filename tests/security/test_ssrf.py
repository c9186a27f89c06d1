"""Whatever address somebody gives us, wherever they can: nothing is connected to that they could not reach themselves.

That is seen from the other side: a listener on every address of this machine counts who comes, and every connection
that this process tries to make is noted with where it leads."""

import asyncio
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpcore2
import pytest

from parley.security.netguard import is_public
from tests.security.hostile_urls import FRIEND, NAMES, OUTSIDE, hostile
from tests.security.url_places import PLACES, Given, Place

_ATTEMPTS: list[tuple[str, int]] = []


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(args[1], tuple):
        _ATTEMPTS.append((str(args[1][0]), int(args[1][1])))


sys.addaudithook(_audit)


class Watch:
    """Records all connections, intended or not."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.visits = 0
        self.asked: Counter[str] = Counter()
        """Number of lookups of each name."""
        self.outside = 0
        self._from = len(_ATTEMPTS)

    async def visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.visits += 1
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        writer.close()

    def attempts(self) -> list[tuple[str, int]]:
        """Connections that only we could make, but for those that the test itself makes to its servers."""
        tried = _ATTEMPTS[self._from :]
        return [
            (host, port)
            for host, port in tried
            if not is_public(ip_address(host)) and (host != "127.0.0.1" or port == self.port)
        ]

    def resolve(self, host: Any, port: Any, *args: Any, **more: Any) -> Any:
        """As the system's resolver does, with a name server that is not on our side."""
        name = str(host).rstrip(".").lower()
        answers = {**NAMES, FRIEND: (["127.0.0.1"],), "localhost": (["127.0.0.1", "::1"],)}.get(name)
        if answers is None:
            return _getaddrinfo(host, port, socket.AF_UNSPEC, socket.SOCK_STREAM, 0, socket.AI_NUMERICHOST)
        found = answers[min(self.asked[name], len(answers) - 1)]
        self.asked[name] += 1
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]


_getaddrinfo = socket.getaddrinfo
_connect = httpcore2.AnyIOBackend.connect_tcp


@pytest.fixture
async def watch(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Watch]:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        watch = Watch(listener.getsockname()[1])

        async def connect(self: Any, host: str, port: int, *args: Any, **more: Any) -> Any:
            """Nothing leaves this machine."""
            if host == OUTSIDE:
                watch.outside += 1
                raise httpcore2.ConnectError("There is no way out of a test.")
            return await _connect(self, host, port, *args, **more)

        monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", connect)
        monkeypatch.setattr(socket, "getaddrinfo", watch.resolve)
        server = await asyncio.start_server(watch.visited, sock=listener)
        yield watch
        server.close()


def test_the_table_is_long_and_holds_nothing_twice() -> None:
    urls = [one.url for one in hostile(1)]
    assert len(urls) == len(set(urls)) >= 160


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
async def test_no_address_leads_to_what_only_we_can_reach(place: Place, watch: Watch, tmp_path: Path) -> None:
    table = hostile(watch.port)
    outcomes = await place.give(Given(tmp_path, [one.url for one in table]))
    assert len(outcomes) == len(table)
    assert (watch.visits, watch.attempts()) == (0, [])
    if place.calls:
        assert watch.outside or place.strict, "the harmless half of an answer may be called"
        return
    taken = {one.url for one, said in zip(table, outcomes, strict=True) if said == "taken"}
    assert taken <= {one.url for one in table if one.first_harmless}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
async def test_an_address_that_is_allowed_is_taken_there(place: Place, watch: Watch, tmp_path: Path) -> None:
    """Else the table would show nothing."""
    url = f"http://127.0.0.1:{watch.port}/"
    outcomes = await place.give(Given(tmp_path, [url], ["127.0.0.1"]))
    assert (watch.visits > 0) == place.calls
    assert place.calls or outcomes == ["taken"]


class Signpost:
    """A server that sends everybody on: `/7` to the seventh address of the table."""

    def __init__(self, targets: list[str]) -> None:
        self._targets = targets
        self.asked = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.asked += 1
            target = self._targets[int(head.split(b"/")[1].split()[0])].encode()
            status = (301, 302, 303, 307, 308)[self.asked % 5]
            head = b"HTTP/1.1 %d Elsewhere\r\nlocation: %b\r\n" % (status, target)
            writer.write(head + b"content-length: 0\r\nconnection: close\r\n\r\n")
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()


CALLING = {name: place for name, place in PLACES.items() if place.calls}


@pytest.mark.slow
@pytest.mark.parametrize("place", CALLING.values(), ids=CALLING)
async def test_nobody_can_send_us_on(place: Place, watch: Watch, tmp_path: Path) -> None:
    targets = [one.url for one in hostile(watch.port) if one.url.isascii() and one.url.isprintable()]
    post = Signpost(targets)
    listening = await asyncio.start_server(post.answer, "127.0.0.1", 0)
    at = f"http://{FRIEND}:{listening.sockets[0].getsockname()[1]}"
    urls = [f"{at}/{number}" for number in range(len(targets))]
    await place.give(Given(tmp_path, urls, [FRIEND]))
    assert post.asked >= len(targets)
    assert (watch.visits, watch.attempts()) == (0, [])
    listening.close()
