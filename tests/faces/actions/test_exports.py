"""A file for whoever has the link, on every replica and after a restart."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import pytest

from parley.app.actions import ConversationServices, open_conversations
from parley.clock import now_ms
from parley.documents.service import DocumentRequest, Documents
from parley.faces.actions.face import EXPORTS as PREFIX
from parley.runs.log import Outcome
from parley.runs.requests import Send
from parley.runs.rules.access import LOCAL
from parley.runs.rules.content import Message, text_part
from parley.security.secrets import Links, Secrets
from parley.settings import Settings
from parley.testing.servers import Server, serving
from tests.faces.conftest import echo


class Place:
    """A server, and what makes exports beside it on the same data."""

    def __init__(self, server: Server, talks: ConversationServices, secrets: Secrets) -> None:
        self.server, self.talks, self.secrets = server, talks, secrets
        self.http = httpx2.AsyncClient(base_url=server.url)

    async def export(self, format_: str = "markdown") -> tuple[Outcome, str]:
        """The export, and its link without the host."""
        asking = DocumentRequest(LOCAL, "talk", "echo", "converse", "export_conversation")
        outcome = await self.talks.conversations.export(asking, format_, artifacts=True)
        url = self.talks.exports.address(outcome.run.id, await self.talks.conversations.exported(outcome.run.id))
        assert url.startswith(self.server.url + PREFIX)
        return outcome, url.removeprefix(self.server.url)

    async def say(self, text: str) -> None:
        send = Send("echo", LOCAL, Message(text, (text_part(text),)), conversation="talk")
        await self.server.exchange.settled(await self.server.exchange.send(send))


@asynccontextmanager
async def place(directory: Path, **settings: object) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(serving(directory, [echo], auth="required", **settings))
        values = Settings.model_validate({"data_dir": directory, **settings})
        secrets = Secrets(values.secret_key_file or directory / "secret.key")
        talks = await stack.enter_async_context(
            open_conversations(server.exchange, Documents(server.exchange), values, secrets, server.url)
        )
        made = Place(server, talks, secrets)
        await stack.enter_async_context(made.http)
        yield made


MEDIA = {
    "json": "application/json",
    "markdown": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "pdf": "application/pdf",
}


async def test_a_link_needs_no_other_credentials_and_says_what_it_leads_to(tmp_path: Path) -> None:
    async with place(tmp_path / "data") as here:
        await here.say("hello <script>")
        for format_, media in MEDIA.items():
            _, link = await here.export(format_)
            got = await here.http.get(link)
            assert got.status_code == 200
            assert got.headers["content-type"] == media
            how = "inline" if format_ == "html" else "attachment"
            extension = {"markdown": "md"}.get(format_, format_)
            expected = f"{how}; filename*=UTF-8''conversation-talk.{extension}"
            assert got.headers["content-disposition"] == expected
            assert got.headers["x-content-type-options"] == "nosniff"
            assert got.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
            assert got.headers["referrer-policy"] == "no-referrer"
            assert len(got.content) == int(got.headers["content-length"])
            head = await here.http.head(link)
            assert (head.status_code, head.content) == (200, b"")
            assert head.headers["content-length"] == got.headers["content-length"]
        assert (await here.http.post(link)).status_code == 401


async def test_whoever_changes_a_byte_of_a_link_gets_nothing(tmp_path: Path) -> None:
    async with place(tmp_path / "data") as here:
        await here.say("hello")
        outcome, link = await here.export()
        start = len(PREFIX)
        changed = [link[:at] + ("x" if link[at] != "x" else "y") + link[at + 1 :] for at in range(start, len(link))]
        for one in (*changed, f"{PREFIX}{outcome.run.id}", f"{PREFIX}nothing"):
            refused = await here.http.get(one)
            assert refused.status_code == 403, one
            assert refused.json()["error"]["code"] == "LINK_REFUSED"


async def test_a_link_that_expired_or_leads_nowhere_says_so(tmp_path: Path) -> None:
    async with place(tmp_path / "data") as here:
        await here.say("hello")
        outcome, link = await here.export()
        links = Links(here.secrets, PREFIX)
        expired = await here.http.get(links.link(outcome.run.id, "conversation-talk.md", now_ms() - 1000))
        assert (expired.status_code, expired.json()["error"]["code"]) == (410, "LINK_EXPIRED")
        for unknown in ("nothing", "not an id!", "a/b"):
            nowhere = await here.http.get(links.link(unknown, "x", now_ms() + 60_000))
            assert nowhere.status_code in (403, 404), unknown
        nowhere = await here.http.get(links.link("nothing", "x", now_ms() + 60_000))
        assert (nowhere.status_code, nowhere.json()["error"]["code"]) == (404, "EXPORT_NOT_FOUND")
        asking = DocumentRequest(LOCAL, "talk", "echo", "converse", "delete_conversation")
        await here.talks.conversations.delete(asking, documents=True)
        assert (await here.http.get(link)).status_code == 404


async def test_a_damaged_file_is_not_handed_out(tmp_path: Path) -> None:
    async with place(tmp_path / "data") as here:
        await here.say("hello")
        outcome, link = await here.export()
        sha256 = (await here.talks.conversations.exported(outcome.run.id)).sha256
        (path,) = (tmp_path / "data" / "blobs" / "exports").rglob(sha256)
        path.write_bytes(path.read_bytes().replace(b"hello", b"olleh"))
        assert (await here.http.get(link)).status_code == 503
        path.unlink()
        assert (await here.http.get(link)).status_code == 404


async def test_a_link_is_good_after_a_restart(tmp_path: Path) -> None:
    async with place(tmp_path / "data") as here:
        await here.say("hello")
        _, link = await here.export()
    async with place(tmp_path / "data") as again:
        got = await again.http.get(link)
        assert got.status_code == 200
        assert "hello" in got.text


@pytest.mark.slow
async def test_a_link_is_good_on_every_replica(tmp_path: Path, database: str) -> None:
    shared = {
        "store": "postgres", "postgres_url": database, "blobs": str(tmp_path / "blobs"),
        "secret_key_file": tmp_path / "secret.key",
    }  # fmt: skip
    async with place(tmp_path / "a", **shared) as one, place(tmp_path / "b", **shared) as other:
        await one.say("hello")
        _, link = await one.export()
        got = await other.http.get(link)
        assert got.status_code == 200
        assert "hello" in got.text
