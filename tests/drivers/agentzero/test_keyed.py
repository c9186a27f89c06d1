"""Agent-Zero with an API key: blocking calls, the log of a chat that is known, files, terminate."""

import base64
from pathlib import Path

import pytest

from parley.testing.processes import until

from .conftest import begin, code, parley, said, send, settled, state, texts, words
from .server import KEY, Chat, Trouble, agent_zero
from .test_sessions import Held


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ZERO_KEY", KEY)
    return "ZERO_KEY"


@pytest.mark.parametrize("prefix", ["/api", ""])
async def test_a_message_is_answered(tmp_path: Path, key: str, prefix: str) -> None:
    async with agent_zero(prefix=prefix) as zero, parley(tmp_path, zero, key_from=key, lifetime_hours=2) as (_, client):
        task = await send(client, "hi")
        assert (state(task), texts(task)) == ("completed", {"response-1": "Answer to: hi"})
    assert zero.called("api_message") == [{"message": "hi", "lifetime_hours": 2}]
    assert not zero.called("csrf_token")


async def test_a_key_is_read_from_its_file_for_each_call(tmp_path: Path) -> None:
    path = tmp_path / "zero.key"
    path.write_text("0ld\n")
    async with agent_zero() as zero, parley(tmp_path / "data", zero, key_file=str(path)) as (_, client):
        refused = await send(client, "hi")
        assert (state(refused), code(refused)) == ("failed", "agentzero_refused")
        assert "API key" in words(refused)
        assert "0ld" not in str(refused)
        path.write_text(KEY + "\n")
        assert state(await send(client, "hi")) == "completed"


async def test_a_chat_that_is_known_shows_its_log_and_takes_interventions(tmp_path: Path, key: str) -> None:
    held = Held()
    async with agent_zero(held) as zero, parley(tmp_path, zero, key_from=key) as (_, client):
        held.go.set()
        first = await send(client, "one")
        held.go.clear()
        task = await begin(client, "two", context=first["contextId"])
        await until(lambda: held.begun == 2)
        ended = await send(client, "Stop that", task=task)
        assert texts(ended) == {"response-2": "Told: Stop that"}
        assert "A0: Looking at it" in said(ended)
    assert (held.begun, len(zero.chats)) == (2, 1)


async def test_a_cancel_terminates_a_chat_that_is_known(tmp_path: Path, key: str) -> None:
    held = Held()
    async with agent_zero(held) as zero, parley(tmp_path, zero, key_from=key) as (_, client):
        held.go.set()
        first = await send(client, "one")
        held.go.clear()
        task = await begin(client, "two", context=first["contextId"])
        await until(lambda: held.begun == 2)
        await client.cancel(task)
        await until(lambda: not zero.chats)
    assert len(zero.called("api_terminate_chat")) == 1


async def test_a_chat_that_is_forgotten_begins_anew_with_a_new_task(tmp_path: Path, key: str) -> None:
    async with agent_zero() as zero, parley(tmp_path, zero, key_from=key) as (_, client):
        first = await send(client, "one")
        zero.chats.clear()
        assert state(await send(client, "two", context=first["contextId"])) == "completed"


async def test_an_error_of_the_agent_is_told_without_its_words(tmp_path: Path, key: str) -> None:
    async def fails(chat: Chat, text: str) -> str:
        raise RuntimeError("the secret is 42")

    async with agent_zero(fails) as zero, parley(tmp_path, zero, key_from=key) as (_, client):
        task = await send(client, "hi")
        assert (state(task), code(task)) == ("failed", "agentzero_failed")
        assert "secret" not in str(task)


async def test_a_connection_that_breaks_is_made_good_by_the_log_of_a_known_chat(tmp_path: Path, key: str) -> None:
    held = Held()
    async with agent_zero(held) as zero, parley(tmp_path, zero, key_from=key) as (_, client):
        held.go.set()
        first = await send(client, "one")
        zero.trouble("api_message", Trouble("drop", done=True))
        task = await send(client, "two", context=first["contextId"])
        assert (state(task), texts(task)) == ("completed", {"response-1": "Done: two"})
        zero.trouble("api_message", Trouble("drop", done=True))
        lost = await send(client, "three")
        assert (state(lost), code(lost)) == ("failed", "agentzero_lost")
        assert "may still have started" in words(lost) or "was lost" in words(lost)
    assert held.begun == 3


async def test_files_go_over_and_come_back(tmp_path: Path, key: str) -> None:
    async def reads(chat: Chat, text: str) -> str:
        return "See /a0/usr/workdir/out.bin and /a0/usr/workdir/none.txt"

    async with agent_zero(reads) as zero, parley(tmp_path, zero, key_from=key) as (_, client):
        zero.files = {"/a0/usr/workdir/out.bin": b"\xff\x00"}
        task = await send(client, [{"raw": base64.b64encode(b"abc").decode(), "filename": "in.txt"}])
        made = {one["name"]: one for one in task["artifacts"]}
        assert base64.b64decode(made["out.bin"]["parts"][0]["raw"]) == b"\xff\x00"
        assert set(made) == {"out.bin", "response"}
    assert list(zero.uploads.values()) == [b"abc"]
    assert zero.called("api_message")[0]["message"] == "See the attached files."


async def test_a_restart_of_ours_finds_a_known_chat_again_and_no_other(tmp_path: Path, key: str) -> None:
    held = Held()
    async with agent_zero(held) as zero:
        async with parley(tmp_path, zero, key_from=key) as (_, client):
            held.go.set()
            first = await send(client, "one")
            held.go.clear()
            known = await begin(client, "two", context=first["contextId"])
            await until(lambda: held.begun == 2)
        async with parley(tmp_path, zero, key_from=key) as (_, client):
            held.go.set()
            assert texts(await settled(client, known)) == {"response-1": "Done: two"}
            held.go.clear()
            unknown = await begin(client, "three")
            await until(lambda: held.begun == 3)
        async with parley(tmp_path, zero, key_from=key) as (_, client):
            task = await settled(client, unknown)
            assert (state(task), code(task)) == ("failed", "agentzero_lost")
            assert "API key" in words(task)
    assert held.begun == 3
