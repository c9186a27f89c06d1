"""`doctor` and `status`: what is wrong, and what to do about it."""

import json
import re
from pathlib import Path
from typing import Any

from edge.tests.conftest import Pair
from edge.tests.platform import Platform
from edge.tests.programs import Ended, local_agent, run, runtime

Json = dict[str, Any]


async def examined(home: Path, *options: str) -> tuple[int, dict[str, Json]]:
    done = await run(home, "doctor", "--json", *options)
    return done.code, {check["name"]: check for check in done.json["checks"]}


async def test_all_is_well(platform: Platform, paired: Pair) -> None:
    async with local_agent({}) as agent:
        code, checks = await examined(await paired(agent.endpoint))
    assert code == 0
    assert {check["state"] for check in checks.values()} == {"ok"}
    assert set(checks) == {"profile file", "profile", "platform", "token", "clock", "local agent", "runtime"}
    assert agent.asked == []


async def test_for_people_it_is_lines(platform: Platform, paired: Pair) -> None:
    home = await paired("http://127.0.0.1:1/run-task")
    done = await run(home, "doctor")
    assert done.code == 1
    assert "ok       token" in done.out
    assert "failed   local agent: Nothing listens at http://127.0.0.1:1/run-task" in done.out
    assert "a2a-runtime adapter" in done.out
    assert platform.token is not None
    assert platform.token not in done.out


async def test_without_a_profile_there_is_little_to_check(home: Path) -> None:
    code, checks = await examined(home)
    assert code == 2
    assert "pair" in checks["profile"]["hint"]


async def test_a_file_that_others_can_read_is_reported(platform: Platform, paired: Pair) -> None:
    async with local_agent({}) as agent:
        home = await paired(agent.endpoint)
        (home / "runtime.json").chmod(0o644)
        code, checks = await examined(home)
        assert code == 1
        assert "chmod 600" in checks["profile file"]["what"]
        async with runtime(home) as program:
            assert "chmod 600" in (await program.says("warning"))["what"]


async def test_a_token_that_does_not_hold_is_told_from_a_platform_that_is_away(
    platform: Platform, paired: Pair
) -> None:
    async with local_agent({}) as agent:
        home = await paired(agent.endpoint)
        platform.revoke()
        code, checks = await examined(home)
        assert (code, checks["platform"]["state"], checks["token"]["state"]) == (1, "ok", "failed")
        assert "replaced by a newer pairing" in checks["token"]["what"]
        await platform.wire.stop()
        code, checks = await examined(home)
        assert (code, checks["platform"]["state"]) == (1, "failed")
        assert "token" not in checks


async def test_a_clock_that_is_off_is_reported(platform: Platform, paired: Pair) -> None:
    platform.clock_off = -300.0
    async with local_agent({}) as agent:
        code, checks = await examined(await paired(agent.endpoint))
    assert code == 0
    assert checks["clock"]["state"] == "warning"
    assert re.search(r"\+30[01] s", checks["clock"]["what"])


async def test_what_should_not_be_is_warned_of(platform: Platform, paired: Pair) -> None:
    home = await paired("http://127.0.0.1:1/run-task")
    _, checks = await examined(
        home, "--endpoint", "http://192.0.2.1:9/run-task", "--api-base", "http://platform.invalid"
    )
    assert checks["safety"]["state"] == "warning"


async def test_what_waits_to_be_delivered_is_seen(platform: Platform, paired: Pair) -> None:
    async with local_agent({"text": "ok"}) as agent:
        home = await paired(agent.endpoint)
        platform.fault("/complete", times=99, status=503)
        async with runtime(home) as program:
            platform.ask("hello")
            await program.says("delivery.waits")
            status = (await run(home, "status", "--json")).json
            assert status["running_pid"] == program.pid
            assert status["undelivered"] == 1
            assert (status["remote"]["queued"], status["remote"]["running"]) == (0, 1)
            await program.kill()
        _, checks = await examined(home)
    assert checks["runtime"]["state"] == "warning"


async def test_status_is_for_people_too(platform: Platform, paired: Pair) -> None:
    home = await paired("http://127.0.0.1:1/run-task")
    done = await run(home, "status")
    assert done.code == 0
    assert "Worker (worker)" in done.out
    assert "not running" in done.out


async def test_status_says_why_it_cannot_be_had(platform: Platform, paired: Pair) -> None:
    home = await paired("http://127.0.0.1:1/run-task")
    platform.revoke()
    assert said(await run(home, "status", "--json"))["code"] == "runtime_revoked"
    await platform.wire.stop()
    done = await run(home, "status", "--json")
    assert done.code == 3
    assert platform.url in said(done)["message"]


def said(done: Ended) -> Json:
    return json.loads(done.err)["error"]
