"""Agent-Zero over a session: messages, progress, follow-ups, files, cancel."""

import asyncio
import base64
from pathlib import Path

import pytest

from parley.runs.rules.agents import Limits
from parley.testing.processes import until

from .conftest import begin, code, driver, parley, said, send, settled, state, texts, words
from .server import Chat, Trouble, agent_zero


class Held:
    """An agent that says what it does, and works until it is let go or interrupted."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun = 0

    async def __call__(self, chat: Chat, text: str) -> str:
        self.begun += 1
        chat.log("agent", "icon://network_intelligence A0: Looking at it")
        waits = [asyncio.ensure_future(self.go.wait()), asyncio.ensure_future(chat.interventions.get())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return f"Told: {waits[1].result()}" if waits[1].done() else f"Done: {text}"
        finally:
            for wait in waits:
                wait.cancel()


@pytest.mark.parametrize("prefix", ["/api", ""])
async def test_a_message_is_answered_and_its_log_is_progress(tmp_path: Path, prefix: str) -> None:
    async with agent_zero(prefix=prefix) as zero, parley(tmp_path, zero) as (_, client):
        task = await send(client, "List the files in /tmp")
        assert (state(task), texts(task)) == ("completed", {"response-1": "Answer to: List the files in /tmp"})
        assert said(task) == ["A0: Thinking...", "A0: Using tool 'code_execution_tool'"]
        assert len(zero.called("message_async")) == len(zero.called("csrf_token")) == 1


async def test_a_stream_shows_what_the_agent_does_while_it_does_it(tmp_path: Path) -> None:
    held = Held()
    seen: list[str] = []
    async with agent_zero(held) as zero, parley(tmp_path, zero) as (_, client):
        async for result in client.stream("Fix it"):
            status = result.get("statusUpdate", {}).get("status", {})
            seen += [part["text"] for part in status.get("message", {}).get("parts", [])]
            if "A0: Looking at it" in seen:
                held.go.set()
        assert result["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_a_login_is_made_where_one_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZERO_PASSWORD", "p4ss word")
    async with agent_zero(user="admin", password="p4ss word") as zero:
        async with parley(tmp_path / "a", zero, user="admin", password_from="ZERO_PASSWORD") as (_, client):
            assert state(await send(client, "hi")) == "completed"
        monkeypatch.setenv("ZERO_PASSWORD", "wr0ng")
        async with parley(tmp_path / "b", zero, user="admin", password_from="ZERO_PASSWORD") as (_, client):
            task = await send(client, "hi")
            assert (state(task), code(task)) == ("failed", "agentzero_refused")
            assert "login" in words(task)
            assert "wr0ng" not in str(task)
        async with parley(tmp_path / "c", zero) as (_, client):
            assert code(await send(client, "hi")) == "agentzero_refused"
    assert len(zero.called("message_async")) == 1


@pytest.mark.parametrize("kind", ["stale", "unauthorized"])
async def test_a_stale_session_is_begun_anew(tmp_path: Path, kind: str) -> None:
    held = Held()
    async with agent_zero(held) as zero, parley(tmp_path, zero) as (_, client):
        task = await begin(client, "Fix it")
        await until(lambda: held.begun)
        zero.forget_sessions()
        zero.trouble("poll", Trouble(kind))  # pyright: ignore[reportArgumentType]
        await until(lambda: len(zero.called("csrf_token")) >= 2)
        held.go.set()
        assert texts(await settled(client, task)) == {"response-1": "Done: Fix it"}
    assert len(zero.called("message_async")) == 1


async def test_a_follow_up_to_work_under_way_is_an_intervention(tmp_path: Path) -> None:
    held = Held()
    async with agent_zero(held) as zero, parley(tmp_path, zero) as (_, client):
        task = await begin(client, "Fix it")
        await until(lambda: held.begun)
        ended = await send(client, "The other way", task=task)
        assert (state(ended), texts(ended)) == ("completed", {"response-2": "Told: The other way"})
    assert held.begun == 1
    assert len({body["context"] for body in zero.called("message_async")}) == 1


async def test_a_conversation_stays_in_its_chat_and_others_have_their_own(tmp_path: Path) -> None:
    async with agent_zero() as zero, parley(tmp_path, zero) as (_, client):
        first = await send(client, "one")
        await send(client, "two", context=first["contextId"])
        await send(client, "three")
        contexts = [body["context"] for body in zero.called("message_async")]
    assert contexts[0] == contexts[1] != contexts[2]
    assert all(context.isalnum() for context in contexts)


async def test_a_second_task_does_not_break_into_the_first_of_its_conversation(tmp_path: Path) -> None:
    held = Held()
    limits = Limits(max_concurrent=2)
    async with agent_zero(held) as zero, parley(tmp_path, zero, limits=limits) as (_, client):
        first = await begin(client, "one", context="talk")
        await until(lambda: held.begun == 1)
        second = await begin(client, "two", context="talk")
        await until(lambda: held.begun == 2)
        await client.cancel(second)
        await until(lambda: len(zero.called("chat_remove")) == 1)
        held.go.set()
        assert texts(await settled(client, first)) == {"response-1": "Done: one"}
    assert len(zero.chats) == 1


async def test_a_cancel_ends_the_work_over_there(tmp_path: Path) -> None:
    held = Held()
    async with agent_zero(held) as zero, parley(tmp_path, zero) as (_, client):
        task = await begin(client, "Fix it")
        await until(lambda: held.begun)
        assert state(await client.cancel(task)) == "canceled"
        await until(lambda: not zero.chats)
    assert zero.called("chat_remove") == [{"context": zero.called("message_async")[0]["context"]}]


async def test_a_task_that_waits_in_the_queue_is_canceled_without_a_word(tmp_path: Path) -> None:
    held = Held()
    async with agent_zero(held) as zero, parley(tmp_path, zero) as (_, client):
        await begin(client, "one")
        await until(lambda: held.begun)
        second = await begin(client, "two")
        assert state(await client.get(second)) == "submitted"
        assert state(await client.cancel(second)) == "canceled"
        assert len(zero.called("message_async")) == 1


async def test_a_chat_at_rest_is_kept_when_a_task_of_it_fails(tmp_path: Path) -> None:
    async def fails(chat: Chat, text: str) -> str:
        raise RuntimeError("the secret is 42")

    async with agent_zero(fails) as zero, parley(tmp_path, zero) as (_, client):
        task = await send(client, "hi")
        assert (state(task), code(task)) == ("failed", "agentzero_failed")
        assert "RuntimeError" in words(task)
        assert "secret" not in str(task)
        assert len(zero.chats) == 1


async def test_files_go_over_and_come_back(tmp_path: Path) -> None:
    async def reads(chat: Chat, text: str) -> str:
        return "Written to /a0/usr/workdir/out.md, /a0/usr/workdir/big.bin and /a0/usr/workdir/../.env."

    async with agent_zero(reads) as zero, parley(tmp_path, zero) as (_, client):
        zero.files = {
            "/a0/usr/workdir/out.md": b"# Out", "/a0/usr/workdir/big.bin": b"\0" * 1_000_001, "/a0/usr/.env": b"SECRET",
        }  # fmt: skip
        raw = base64.b64encode(b"\x00\x01").decode()
        task = await send(client, [{"text": "Read"}, {"raw": raw, "filename": "in.bin", "mediaType": "image/x"}])
        assert state(task) == "completed"
        ((name, content),) = zero.uploads.items()
        assert (name[8:], content) == ("-in.bin", b"\x00\x01")
        made = {one["name"]: one for one in task["artifacts"]}
        assert made["out.md"]["parts"][0]["text"] == "# Out"
        assert made["big.bin"]["metadata"]["size"] == 1_000_001
        assert set(made) == {"out.md", "big.bin", "response"}


async def test_a_blank_message_is_rejected(tmp_path: Path) -> None:
    async with agent_zero() as zero, parley(tmp_path, zero) as (_, client):
        task = await send(client, "  \n ")
        assert (state(task), code(task)) == ("rejected", "content_not_supported")


async def test_text_is_but_text(tmp_path: Path) -> None:
    texts_sent = ["$(rm -rf /); `id` && ../../etc/passwd", "x" * 1_000_000, '{"context": "other"}']
    async with agent_zero() as zero, parley(tmp_path, zero) as (_, client):
        for text in texts_sent:
            assert state(await send(client, text)) == "completed"
    assert [body["text"] for body in zero.called("message_async")] == texts_sent


def test_drivers_of_equal_definitions_are_equal() -> None:
    assert driver("http://127.0.0.1:1") == driver("http://127.0.0.1:1")
    assert driver("http://127.0.0.1:1") != driver("http://127.0.0.1:1", poll_s=1.0)
