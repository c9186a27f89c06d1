"""The client of HTTP: connections that are kept, broken, encrypted, or go through a proxy."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from edge.tests.programs import local_agent
from edge.tests.wire import Asked, Drop, Said
from parley_edge.net.http import BrokenOff, CannotConnect, Http, TimedOut, TooLarge
from parley_edge.net.proxies import Proxies, is_loopback


async def get(http: Http, url: str, timeout_s: float = 10.0) -> bytes:
    return (await http.ask("POST", url, headers={}, timeout_s=timeout_s)).body


async def test_a_connection_is_kept_for_the_next_request() -> None:
    http = Http()
    async with local_agent({"text": "ok"}) as agent:
        for _ in range(3):
            await get(http, agent.endpoint)
        assert agent.wire.connections == 1
        await asyncio.gather(*(get(http, agent.endpoint) for _ in range(3)))
        assert agent.wire.connections == 3
        http.close()


async def test_a_kept_connection_that_died_meanwhile_is_replaced() -> None:
    http = Http()
    async with local_agent({"text": "ok"}) as agent:
        await get(http, agent.endpoint)
        await agent.wire.stop()
        await agent.wire.start()
        assert await get(http, agent.endpoint) == b'{"text": "ok"}'
        http.close()


async def test_a_connection_that_dies_under_a_request_is_replaced_once() -> None:
    """The other side gave the kept connection up in the moment in which it was used."""
    left = [Said(body=b"1"), None, Said(body=b"2")]

    async def answer(asked: Asked) -> Said:
        said = left.pop(0)
        if said is None:
            raise Drop
        return said

    http = Http()
    async with local_agent(answering=answer) as agent:
        assert [await get(http, agent.endpoint), await get(http, agent.endpoint)] == [b"1", b"2"]
        http.close()


async def test_what_breaks_on_a_new_connection_is_broken() -> None:
    async def answer(asked: Asked) -> Said:
        raise Drop

    async with local_agent(answering=answer) as agent:
        with pytest.raises(BrokenOff):
            await get(Http(), agent.endpoint)
        assert len(agent.asked) == 1


async def test_time_and_size_are_limited() -> None:
    async def never(asked: Asked) -> Said:
        await asked.hung_up.wait()
        raise Drop

    async with local_agent(answering=never) as agent:
        with pytest.raises(TimedOut, match=r"0\.05 s"):
            await get(Http(), agent.endpoint, 0.05)
        await asyncio.wait_for(agent.asked[0].hung_up.wait(), 5)
    async with local_agent(b"x" * 101) as agent:
        with pytest.raises(TooLarge):
            await get(Http(max_body=100), agent.endpoint)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "http://no-such-name.invalid/", "http://[::1]:1/"])
async def test_nobody_there_is_said_plainly(url: str) -> None:
    with pytest.raises(CannotConnect, match="connection"):
        await get(Http(), url)


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "certificate.pem"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    secret = folder / "key.pem"
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, secret)
    return file, context


ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@asynccontextmanager
async def encrypted(context: ssl.SSLContext) -> AsyncIterator[str]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


async def test_a_certificate_has_to_be_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, context = certificate(tmp_path)
    async with encrypted(context) as url:
        with pytest.raises(CannotConnect, match="secure connection"):
            await get(Http(), url)
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        assert await get(Http(), url) == b"{}"


class Relay:
    """A proxy for both kinds of requests."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self.refuses = False

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.asked.append(head)
        method, target = head.split(b" ")[:2]
        if self.refuses:
            writer.write(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n")
        elif method == b"CONNECT":
            _, port = target.decode().split(":")
            there = await asyncio.open_connection("127.0.0.1", int(port))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(self._pipe(reader, there[1]), self._pipe(there[0], writer))
        else:
            writer.write(ANSWER)
        writer.close()

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                writer.write(data)
        except OSError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def relay() -> AsyncIterator[tuple[Relay, str]]:
    made = Relay()
    server = await asyncio.start_server(made, "127.0.0.1", 0)
    try:
        yield made, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_plain_requests_go_to_the_proxy_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    async with relay() as (proxy, address):
        monkeypatch.setenv("HTTP_PROXY", f"http://user:p%40ss@{address}")
        http = Http(proxies=Proxies.from_environment())
        assert await get(http, "http://platform.test/a?b=1") == b"{}"
        http.close()
    assert proxy.asked[0].startswith(b"POST http://platform.test/a?b=1 HTTP/1.1\r\n")
    assert b"Basic dXNlcjpwQHNz" in proxy.asked[0]


async def test_encrypted_requests_go_through_the_proxy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, context = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    monkeypatch.setattr("parley_edge.net.proxies.is_loopback", lambda host: False)
    async with encrypted(context) as url, relay() as (proxy, address):
        monkeypatch.setenv("https_proxy", address)
        http = Http(keep=False, proxies=Proxies.from_environment())
        assert await get(http, url) == b"{}"
        assert proxy.asked[0].startswith(b"CONNECT 127.0.0.1:")
        proxy.refuses = True
        with pytest.raises(CannotConnect, match=r"proxy 127\.0\.0\.1 refused"):
            await get(http, url)


@pytest.mark.parametrize(
    ("no_proxy", "host", "proxied"),
    [
        ("", "platform.test", True),
        ("platform.test", "platform.test", False),
        (".test, other", "platform.test", False),
        ("form.test", "platform.test", True),
        ("*", "platform.test", False),
        ("", "localhost", False),
        ("", "127.0.0.1", False),
        ("", "::1", False),
    ],
)
def test_who_is_asked_without_the_proxy(
    monkeypatch: pytest.MonkeyPatch, no_proxy: str, host: str, proxied: bool
) -> None:
    monkeypatch.setenv("ALL_PROXY", "proxy.test:3128")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    name = f"[{host}]" if ":" in host else host
    found = Proxies.from_environment().of(urlsplit(f"https://{name}/"))
    assert (found is not None) == proxied


@pytest.mark.parametrize(
    ("host", "is_it"),
    [("localhost", True), ("127.0.0.53", True), ("::1", True), ("a.localhost", True), ("localhost.evil.test", False),
     ("0.0.0.0", False), ("10.0.0.1", False), ("", False), ("::ffff:10.0.0.1", False)],
)  # fmt: skip
def test_what_is_this_machine(host: str, is_it: Any) -> None:
    assert is_loopback(host) is is_it
