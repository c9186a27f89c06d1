"""The organisation's server as operators and impatient clients meet it: who may ask, crashes, queues, log lines."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

from parley.testing.processes import until
from tests.a2a_server.embedded import Embedded
from tests.a2a_server.houses import running, start, strays, write_file
from tests.a2a_server.wire import Wire, state, texts, words
from tests.a2a_server.zero import Zero
from tests.drivers.agentzero.reports import report, write
from tests.drivers.test_command import alive
from tests.security.issuer import AUDIENCE, issuing

pytestmark = pytest.mark.slow
EMBEDDED: dict[str, Any] = {"agent_connection": {"method": "embedded"}}
HELLO = {"message": {"role": "user", "messageId": "m-1", "parts": [{"text": "How are you?"}]}}


async def refused(config: Path) -> tuple[int, str]:
    """Exit code and output of a server that does not start."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "a2a_server.run", "--config", str(config), stderr=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, err = await asyncio.wait_for(process.communicate(), 20)
    return process.returncode or 0, (out + err).decode()


async def asked(url: str, **headers: str) -> int:
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": HELLO}
    async with httpx2.AsyncClient(timeout=20, headers=headers) as http:
        reply = await http.post(url, json=body)
        assert reply.json()
        return reply.status_code


async def test_who_says_none_is_warned_and_who_says_nothing_is_refused(tmp_path: Path) -> None:
    async with running(write_file(tmp_path, **EMBEDDED, host="0.0.0.0", colour="red"), NO_COLOR="1") as (server, wire):
        assert server.url.startswith("http://localhost:")
        assert any("auth.none" in line for line in server.before)
        assert any("config.unknown" in line and "colour" in line for line in server.before)
        assert await asked(wire.url) == 200
    code, said = await refused(write_file(tmp_path, **EMBEDDED, host="0.0.0.0", authentication={}))
    assert code == 2
    assert "Set auth to required" in said
    code, said = await refused(write_file(tmp_path, enabled=False))
    assert (code, "is disabled" in said) == (0, True)
    code, said = await refused(tmp_path / "nowhere.json")
    assert (code, "cannot be read" in said) == (2, True)


async def test_a_key_of_the_file_opens_and_the_card_needs_none(tmp_path: Path) -> None:
    config = write_file(tmp_path, **EMBEDDED, authentication={"scheme": "api_key", "api_key": "open-sesame"})
    async with running(config) as (server, wire):
        card = await wire.card()
        assert set(card["authentication"]["schemes"]) == {"bearer", "apiKey"}
        assert await asked(wire.url) == 401
        assert await asked(wire.url, **{"X-API-Key": "open-barley"}) == 401
        assert await asked(wire.url, **{"X-API-Key": "open-sesame"}) == 200
        assert await asked(wire.url, Authorization="Bearer open-sesame") == 200
    assert not any("open-sesame" in line for line in server.said_all)


async def test_tokens_of_an_issuer_open_it_too(tmp_path: Path) -> None:
    async with issuing() as issuer:
        said = {"scheme": "oauth", "issuer": issuer.url, "audience": AUDIENCE}
        async with running(write_file(tmp_path, **EMBEDDED, authentication=said)) as (_, wire):
            assert "oidc" in (await wire.card())["authentication"]["schemes"]
            assert await asked(wire.url) == 401
            assert await asked(wire.url, Authorization=f"Bearer {issuer.token(aud='somebody')}") == 401
            assert await asked(wire.url, Authorization=f"Bearer {issuer.token()}") == 200


async def test_requests_states_and_levels_are_logged_without_secrets(tmp_path: Path) -> None:
    async with Embedded.open(tmp_path, PARLEY_LOG_FORMAT="json") as house:
        text = "Fix the bug in /nonexistent/app.py, says ann@example.org with Bearer abcdefgh12345678\nand so on " * 3
        task = await house.wire.send(text)
        await house.wire.call("nothing/known", {})
        await house.server.said("request.refused")
        lines = [json.loads(line) for line in house.server.said_all if line.startswith("{")]
    told = {line["event"] for line in lines}
    assert {"request.made", "task.state", "org.pace", "request.refused"} <= told
    (request,) = [line for line in lines if line["event"] == "request.made"]
    assert request["method"] == "message/send"
    assert request["message"].startswith("Fix the bug in /nonexistent/app.py, says [REDACTED_EMAIL] with [REDACTED]")
    assert len(request["message"]) == 80
    states = [line["state"] for line in lines if line["event"] == "task.state" and line["run"] == task["id"]]
    assert states == ["submitted", "working", "input_required"]
    (level,) = [line for line in lines if line["event"] == "org.pace"]
    assert (level["before"], level["pace"], level["state"]) == ("primary", "contingent", "input-required")


async def test_every_error_is_an_answer_of_a2a(tmp_path: Path) -> None:
    async with running(write_file(tmp_path, **EMBEDDED)) as (_, wire):
        for content, code in ((b"{", -32700), (b"[]", -32600), (b'{"jsonrpc": "2.0", "id": 1}', -32600)):
            headers = {"Content-Type": "application/json"}
            reply = (await wire.http.post(wire.url, content=content, headers=headers)).json()
            assert (reply["jsonrpc"], reply["error"]["code"]) == ("2.0", code)
        assert (await wire.call("tasks/cancel", {"id": "nobody"}))["error"]["code"] == -32001
        assert (await wire.call("message/send", {"message": {"parts": []}}))["error"]["code"] == -32602
        assert (await wire.call("tasks/fly", {}))["error"]["code"] == -32601


@pytest.fixture(params=["sqlite", "postgres"])
def kept(request: pytest.FixtureRequest) -> dict[str, str]:
    """Where tasks are kept, as the environment says it."""
    if request.param == "sqlite":
        return {"PARLEY_STORE": "sqlite"}
    url: str = request.getfixturevalue("database")
    return {"PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": url, "PARLEY_LEASE_S": "1"}


async def test_a_step_broken_off_by_kill_9_is_done_again_and_nothing_of_it_goes_on_meanwhile(
    tmp_path: Path, kept: dict[str, str]
) -> None:
    async with Embedded.open(tmp_path, **kept) as house:
        task = (await house.wire.begin("Keep the night watch"))["id"]
        waiting = (await house.wire.begin(f"List the files in {house.shared}"))["id"]
        await house.begun(task)
        program = int((house.work(task) / "begun").read_text())
        await house.server.kill()
        await until(lambda: not alive(program))
        (house.work(task) / "begun").unlink()
        again = await start(tmp_path / "a2a_config.json", **kept)
        async with Wire(again.url) as wire:
            await house.begun(task)
            assert state(await wire.get(task)) == "working"
            assert state(await wire.get(waiting)) == "submitted"
            await house.dawn(task)
            assert state(await wire.reaches(task)) == "completed"
            assert state(await wire.reaches(waiting)) == "completed"
            await until(lambda: not house.work(task).exists())
        await again.stop()


async def test_an_agentzero_that_is_restarted_in_the_middle_is_an_honest_failure(tmp_path: Path) -> None:
    async with Zero.open(tmp_path, prefix="/api", keyed=False) as house:
        task = (await house.wire.begin("Keep the night watch"))["id"]
        await house.begun(task)
        await house.zero.restart()
        ended = await house.wire.reaches(task)
        assert (state(ended), "restarted" in words(ended)) == ("failed", True)
        await house.zero.stop()
        ended = await house.wire.send("Keep the night watch")
        assert (state(ended), "cannot be reached" in words(ended)) == ("failed", True)
        await house.zero.start()
        assert state(await house.wire.send(f"List the files in {house.shared}")) == "completed"


async def test_a_report_from_before_the_task_is_not_its_own_and_none_is_needed(tmp_path: Path) -> None:
    async with Zero.open(tmp_path, prefix="/api", keyed=False) as house:
        write(house.reports, report("emergency", state="aborted", ago_s=60), ago_s=60)
        house.put("figures.csv", "1")
        task = await house.wire.send(f"List the files in {house.shared}")
        assert state(task) == "completed"
        assert "figures.csv" in "".join(texts(task).values())


async def test_a_task_that_takes_too_long_fails_and_says_so(tmp_path: Path) -> None:
    async with Zero.open(tmp_path, prefix="", keyed=False, task_queue={"task_timeout_seconds": 0.5}) as house:
        task = await house.wire.send("Keep the night watch")
        assert state(task) == "failed"
        assert words(task).startswith("=== Task Failure Report ===\nTask: Keep the night watch\n")
        assert "Reason: The agent took longer than 0.5 s." in words(task)
        await house.at_rest(task["id"])


EVIL = "$(touch oops); `touch oops` && cat ../../../etc/passwd | tee ../oops > oops #äö\n"


async def test_ten_megabytes_of_shell_and_dots_are_text_and_survive_a_restart(
    tmp_path: Path, kept: dict[str, str]
) -> None:  # fmt: skip
    async with Embedded.open(tmp_path, **kept) as house:
        house.put("figures.csv", "1")
        text = (f"List the files in {house.shared}\n" + EVIL * 130_000)[:10_000_000]
        task = await house.wire.send(text)
        assert state(task) == "completed"
        assert "figures.csv" in "".join(texts(task).values())
        await house.server.stop()
        again = await start(tmp_path / "a2a_config.json", **kept)
        async with Wire(again.url) as wire:
            assert await wire.get(task["id"]) == task
        await again.stop()
    assert task["history"][0]["parts"][0]["text"] == text
    assert not strays(tmp_path)


@pytest.mark.parametrize("keyed", [False, True])
async def test_ten_megabytes_reach_an_agentzero_as_they_are(tmp_path: Path, keyed: bool) -> None:
    async with Zero.open(tmp_path, prefix="/api", keyed=keyed) as house:
        house.put("figures.csv", "1")
        text = (f"List the files in {house.shared}\n" + EVIL * 130_000)[:10_000_000]
        task = await house.wire.send(text)
        assert state(task) == "completed"
        assert "figures.csv" in "".join(texts(task).values())
        assert await house.wire.get(task["id"]) == task
        (sent,) = [one for name in ("message_async", "api_message") for one in house.zero.called(name)]
    assert task["history"][0]["parts"][0]["text"] == text
    assert text in (sent.get("text"), sent.get("message"))
    assert not strays(tmp_path)


async def test_a_client_that_hangs_up_leaves_the_work_alone(tmp_path: Path) -> None:
    async with Embedded.open(tmp_path) as house:
        stream = house.wire.stream("Keep the night watch")
        task = (await anext(stream))["id"]
        await house.begun(task)
        await stream.aclose()
        assert state(await house.wire.get(task)) == "working"
        await house.dawn(task)
        assert state(await house.wire.reaches(task)) == "completed"


async def test_beyond_the_queue_a_task_is_rejected_and_a_queued_one_can_be_canceled(tmp_path: Path) -> None:
    async with Embedded.open(tmp_path) as house:
        first = (await house.wire.begin("Keep the night watch"))["id"]
        await house.begun(first)
        queued = [await house.wire.begin("Keep the night watch") for _ in range(10)]
        assert {state(one) for one in queued} == {"submitted"}
        assert words(queued[-1]) == "Waiting for its turn: number 10 in the queue."
        over = await house.wire.begin("Keep the night watch")
        assert state(over) == "rejected"
        assert "10 tasks waiting" in words(over)
        assert state(await house.wire.cancel(queued[0]["id"])) == "canceled"
        assert state(await house.wire.begin("Keep the night watch")) == "submitted"
        assert not house.work(queued[0]["id"]).exists()
        await house.dawn(first)
        await house.begun(queued[1]["id"])
        assert state(await house.wire.get(queued[1]["id"])) == "working"
