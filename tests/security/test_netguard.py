"""Outgoing requests reach only public addresses and hosts that the operator allows."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from parley.errors import ConfigurationError, OutboundRefused
from parley.push.hooks import public_form
from parley.security.netguard import LOOPBACK, Guard, Outbound, is_metadata, is_public, own_places

PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "64:ff9b::808:808"]
NOT_PUBLIC = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.255.255.254",
    "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
    "192.168.1.1", "198.18.0.1", "203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808", "100::1", "2001::1", "2001:db8::1",
    "2002:7f00:1::", "2002:808:808::1", "3fff::1", "4000::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0",
    "2606:4700:4700::1111%eth0", "fec0::1", "ff02::1", "ff0e::1",
]  # fmt: skip


@pytest.mark.parametrize("text", PUBLIC)
def test_public_addresses_may_be_called(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize("text", NOT_PUBLIC)
def test_addresses_that_only_we_can_reach_are_refused(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("169.254.169.254", "metadata_endpoint"),
        ("64:ff9b::a9fe:a9fe", "metadata_endpoint"),
        ("fd00:ec2::254", "metadata_endpoint"),
        ("100.100.100.200", "metadata_endpoint"),
        ("10.0.0.1", "private_address"),
        ("169.254.1.1", "private_address"),
        ("user:pass@example.org", "invalid_url"),
    ],
)
def test_a_refusal_says_why(text: str, why: str) -> None:
    with pytest.raises(OutboundRefused) as found:
        Guard().check_url(f"http://{f'[{text}]' if text.count(':') > 1 else text}/")
    assert found.value.details["why"] == why
    assert why == "invalid_url" or is_metadata(ip_address(text)) == (why == "metadata_endpoint")


@given(st.ip_addresses())
def test_what_python_calls_not_global_is_refused(address: object) -> None:
    found = ip_address(str(address))
    assert found.is_global or not is_public(found)
    assert not (found.is_multicast and is_public(found))


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_in_disguise_is_at_most_as_public_as_itself(address: object) -> None:
    plain = ip_address(str(address))
    number = int(plain)
    assert not is_public(ip_address(f"::ffff:{plain}"))
    assert not is_public(ip_address((0x2002 << 112) | (number << 80) | 1))
    assert is_public(ip_address((0x64FF9B << 96) | number)) == is_public(plain)


@pytest.mark.parametrize(
    ("allow", "host", "port", "address", "permitted"),
    [
        (["hooks.internal"], "hooks.internal", 80, "10.0.0.1", True),
        (["Hooks.Internal."], "hooks.INTERNAL", 8080, "10.0.0.1", True),
        (["hooks.internal"], "evil.internal", 80, "10.0.0.1", False),
        (["hooks.internal:8080"], "hooks.internal", 8080, "10.0.0.1", True),
        (["hooks.internal:8080"], "hooks.internal", 80, "10.0.0.1", False),
        (["10.0.0.1"], "10.0.0.1", 80, "10.0.0.1", True),
        (["10.0.0.1"], "named", 80, "10.0.0.1", True),
        (["10.0.0.1:81"], "named", 80, "10.0.0.1", False),
        (["10.0.0.0/8"], "named", 80, "10.9.9.9", True),
        (["10.0.0.0/8"], "named", 80, "11.0.0.1", True),
        (["10.0.0.0/8"], "named", 80, "172.16.0.1", False),
        (["fd00::/8"], "named", 80, "fd12::1", True),
        (["::1"], "localhost", 80, "::1", True),
        (["[::1]:80"], "localhost", 80, "::1", True),
        (["[::1]:80"], "localhost", 81, "::1", False),
        (LOOPBACK, "localhost", 80, "127.9.9.9", True),
        (LOOPBACK, "localhost", 80, "::ffff:127.0.0.1", False),
        (LOOPBACK, "localhost", 80, "10.0.0.1", False),
        (own_places("https://idp.internal/x"), "idp.internal", 443, "10.0.0.1", True),
        (own_places("https://idp.internal/x", None), "idp.internal", 80, "10.0.0.1", False),
        (own_places("http://[::1]:7/"), "::1", 7, "::1", True),
    ],
)
def test_what_an_operator_allows(allow: list[str], host: str, port: int, address: str, permitted: bool) -> None:
    assert Guard(allow).permits(host, port, ip_address(address)) is permitted


@pytest.mark.parametrize("text", ["", ":80", "a:b", "a:0", "a:99999", "http://a/", "10.0.0.0/99", "a b"])
def test_a_wrong_entry_is_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="allow_hosts"):
        Guard([text])


@pytest.mark.parametrize(
    "url",
    [
        "ftp://example.org/", "file:///etc/passwd", "example.org", "http://", "http://user:pass@example.org/",
        "http://user@example.org/", "http://127.0.0.1/", "https://[::1]/", "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:169.254.169.254]/", "http://[fe80::1%25eth0]/", "http://0.0.0.0/", "http://\x00/",
        "http://example.org:99999/",
    ],
)  # fmt: skip
def test_urls_that_are_refused_before_any_name_is_resolved(url: str) -> None:
    with pytest.raises(OutboundRefused):
        Guard().check_url(url)


def test_what_is_logged_of_an_address_holds_no_secrets() -> None:
    assert public_form("https://me:pw@Example.org:8443/a/b?token=1#x") == "https://example.org:8443/a/b"
    assert public_form("http://[::1]:9/x?y") == "http://[::1]:9/x"
    assert public_form("http://[::1") == "unreadable"


class Page:
    """A server that answers each path as it is told, and remembers what it was asked."""

    def __init__(self) -> None:
        self.port = 0
        self.replies: dict[str, bytes] = {}
        self.asked: list[str] = []

    def redirect(self, path: str, target: str, status: int = 302) -> None:
        self.replies[path] = b"HTTP/1.1 %d X\r\nlocation: %b\r\ncontent-length: 0\r\n\r\n" % (status, target.encode())

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.asked.append(head)
                path = head.split()[1]
                writer.write(self.replies.get(path, b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def paging(tls: ssl.SSLContext | None = None) -> AsyncIterator[Page]:
    page = Page()
    server = await asyncio.start_server(page.answer, "127.0.0.1", 0, ssl=tls)
    page.port = server.sockets[0].getsockname()[1]
    try:
        yield page
    finally:
        server.close()


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with paging() as page:
        yield page


@asynccontextmanager
async def outbound(allow: list[str], resolve: Callable[..., object] | None = None, **more: object):
    client = Outbound(Guard(allow), resolve=resolve, **more)  # type: ignore[arg-type]
    try:
        yield client
    finally:
        await client.close()


def answering(*rounds: list[str]):
    """A name server that says something else each time it is asked."""
    left = list(rounds)

    async def resolve(host: str, port: int) -> list[str]:
        return left.pop(0)

    return resolve


async def test_a_private_address_is_not_connected_to(page: Page) -> None:
    async with outbound([]) as client:
        for host in ("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001"):
            with pytest.raises(OutboundRefused) as refused:
                await client.send("GET", f"http://{host}:{page.port}/")
            assert refused.value.code == "outbound_refused"
    assert page.asked == []


async def test_an_allowed_address_is(page: Page) -> None:
    async with outbound(["127.0.0.1"]) as client:
        reply = await client.send("GET", f"http://127.0.0.1:{page.port}/")
        assert (reply.status, reply.body, reply.complete) == (200, b"ok", True)


async def test_a_name_that_answers_differently_the_second_time_gains_nothing(page: Page) -> None:
    """The first answer was checked and is the one used; the second, on a new connection, is checked as well."""
    page.replies["/"] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
    url = f"http://rebound.example:{page.port}/"
    async with outbound(["127.0.0.1"], answering(["127.0.0.1"], ["10.0.0.7"])) as client:
        assert (await client.send("GET", url)).status == 200
        with pytest.raises(OutboundRefused):
            await client.send("GET", url)
    assert f"host: rebound.example:{page.port}" in page.asked[0].lower()


async def test_only_the_permitted_addresses_of_a_name_are_tried(page: Page) -> None:
    async with outbound(["127.0.0.1"], answering(["10.0.0.7", "127.0.0.1"])) as client:
        assert (await client.send("GET", f"http://mixed.example:{page.port}/")).status == 200


async def test_a_name_without_an_address_is_a_failure_and_no_refusal() -> None:
    async with outbound([], answering([])) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.send("GET", "http://nobody.example/")


async def test_redirects_are_not_followed_unless_asked_for(page: Page) -> None:
    page.redirect("/a", "/b")
    async with outbound(["127.0.0.1"]) as client:
        assert (await client.send("GET", f"http://127.0.0.1:{page.port}/a")).status == 302
        assert (await client.send("GET", f"http://127.0.0.1:{page.port}/a", redirects=1)).status == 200


async def test_a_redirect_to_a_private_address_is_refused(page: Page) -> None:
    page.redirect("/a", "http://169.254.169.254/latest/meta-data")
    page.redirect("/b", "http://inside.example/")
    async with outbound(["127.0.0.1"]) as client:
        with pytest.raises(OutboundRefused):
            await client.send("GET", f"http://127.0.0.1:{page.port}/a", redirects=3)
    async with outbound(["127.0.0.1"], answering(["127.0.0.1"], ["10.0.0.7"])) as client:
        with pytest.raises(OutboundRefused):
            await client.send("GET", f"http://outside.example:{page.port}/b", redirects=3)


async def test_at_most_three_redirects(page: Page) -> None:
    page.redirect("/a", "/a")
    async with outbound(["127.0.0.1"]) as client:
        assert (await client.send("GET", f"http://127.0.0.1:{page.port}/a", redirects=99)).status == 302
    assert len(page.asked) == 4


async def test_another_origin_sees_no_credentials(page: Page) -> None:
    secrets = {"Authorization": "Bearer s3cret", "X-A2A-Notification-Token": "s3cret", "Cookie": "s3cret"}
    async with paging() as other, outbound(["127.0.0.1"]) as client:
        page.redirect("/same", "/end", 307)
        page.redirect("/other", f"http://127.0.0.1:{other.port}/end", 307)
        for path in ("/same", "/other"):
            await client.send("POST", f"http://127.0.0.1:{page.port}{path}", headers=secrets, content=b"", redirects=3)
        assert "s3cret" in page.asked[1]
        assert len(other.asked) == 1
        assert "s3cret" not in other.asked[0]


async def test_a_long_answer_is_cut(page: Page) -> None:
    page.replies["/"] = b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n" + b"x" * 5000
    async with outbound(["127.0.0.1"]) as client:
        reply = await client.send("GET", f"http://127.0.0.1:{page.port}/", max_bytes=1000)
        assert (len(reply.body), reply.complete) == (1000, False)


async def test_a_trickling_answer_ends_in_time(page: Page) -> None:
    page.replies["/"] = b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\nx"
    async with outbound(["127.0.0.1"]) as client:
        with pytest.raises((TimeoutError, httpx2.TimeoutException)):
            await client.send("GET", f"http://127.0.0.1:{page.port}/", timeout_s=0.2)


async def test_proxies_of_the_environment_and_cookies_are_not_used(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    page.replies["/"] = b"HTTP/1.1 200 OK\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\n"
    async with outbound(["127.0.0.1"]) as client:
        for _ in range(2):
            assert (await client.send("GET", f"http://127.0.0.1:{page.port}/")).status == 200
    assert "cookie" not in page.asked[1].lower()


async def test_any_client_can_be_guarded(page: Page) -> None:
    async with outbound(["127.0.0.1"]) as guarded:
        client = httpx2.AsyncClient(transport=guarded.transport, trust_env=False, follow_redirects=True)
        page.redirect("/a", "http://[::1]:1/")
        assert (await client.get(f"http://127.0.0.1:{page.port}/")).text == "ok"
        with pytest.raises(OutboundRefused):
            await client.get(f"http://127.0.0.1:{page.port}/a")


def certified(name: str, directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a certificate for a name, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject).issuer_name(subject).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    file = directory / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    certificate = made.public_bytes(serialization.Encoding.PEM)
    file.write_bytes(private + certificate)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(file)
    return server, ssl.create_default_context(cadata=certificate.decode())


async def test_the_certificate_is_still_the_names(tmp_path: Path) -> None:
    server, trusting = certified("hooks.example", tmp_path)

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with paging(server) as page, outbound(["127.0.0.1"], resolve, tls=trusting) as client:
        assert (await client.send("GET", f"https://hooks.example:{page.port}/")).status == 200
        with pytest.raises(httpx2.ConnectError):
            await client.send("GET", f"https://other.example:{page.port}/")
        page.redirect("/down", f"http://hooks.example:{page.port}/")
        with pytest.raises(OutboundRefused, match="https to http"):
            await client.send("GET", f"https://hooks.example:{page.port}/down", redirects=1)
