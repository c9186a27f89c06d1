"""A provider that fails is left alone for a while, and an integration keeps to its limit per minute."""

import asyncio
from typing import Any

import pytest

from parley.app import open_records
from parley.app.tools import open_tools
from parley.cache import MAX_KEPT
from parley.errors import ConfigurationError
from parley.security.netguard import LOOPBACK, Guard
from parley.settings import Settings
from parley.telemetry import attach
from parley.tools.calls import ToolLimits
from tests.tools.conftest import OTHER, World, summary
from tests.tools.github import TOKEN, Reply
from tests.tools.rules.test_packs import MANIFEST

FAILED, OPEN = "coding_failed.provider_error", "coding_failed.provider_circuit_open"
GUARD = Guard(LOOPBACK)
EXHAUSTED = "policy_denied.budget_exhausted"


async def codes(world: World, times: int, **changes: Any) -> list[Any]:
    return [summary(await world.tools.execute(world.ask(**changes)))[2] for _ in range(times)]


async def test_after_three_failures_the_provider_is_left_alone(small: World) -> None:
    small.hub.always = Reply(503)
    assert await codes(small, 5) == [FAILED, FAILED, FAILED, OPEN, OPEN]
    assert len(small.hub.asked) == 3
    opened = await small.tools.execute(small.ask())
    assert summary(opened) == ("failed", "denied", OPEN)


async def test_after_a_rest_one_call_finds_out_whether_it_is_well_again(small: World) -> None:
    small.hub.always = Reply(503)
    await codes(small, 3)
    small.clock.pass_s(10)
    assert await codes(small, 2) == [FAILED, OPEN]
    small.clock.pass_s(10)
    small.hub.always = None
    small.hub.replies.append(Reply(hold=True, done=True))
    small.hub.began.clear()
    trying = asyncio.create_task(small.tools.execute(small.ask()))
    await small.hub.began.wait()
    assert await codes(small, 1) == [OPEN]
    small.hub.release.set()
    assert summary(await trying)[0] == "succeeded"
    assert await codes(small, 3) == ["policy_allowed.default"] * 3


async def test_what_a_provider_refuses_is_no_sign_of_illness(small: World) -> None:
    for reply in (Reply(404), Reply(401), Reply(422), Reply(429), Reply(301)):
        small.hub.always = reply
        await codes(small, 4)
    small.hub.always = None
    assert await codes(small, 1) == ["policy_allowed.default"]


async def test_each_integration_has_a_circuit_of_its_own(small: World) -> None:
    small.hub.always = Reply(503)
    await codes(small, 3)
    other = {**MANIFEST, "integration_id": "github.other"}
    assert await codes(small, 1, manifest=other, integration_id="github.other") == [FAILED]


async def test_a_canceled_call_says_nothing_about_the_provider(small: World) -> None:
    small.hub.always = Reply(503)
    await codes(small, 2)
    run = await small.run()
    small.hub.always = Reply(hold=True)
    small.hub.began.clear()
    call = asyncio.create_task(small.tools.execute(small.ask(run_id=run.id)))
    await small.hub.began.wait()
    await small.exchange.cancel(run.id, small.ask().principal)
    await call
    small.hub.always = Reply(503)
    assert await codes(small, 2) == [FAILED, OPEN]


async def test_an_integration_keeps_to_its_limit_per_minute(small: World) -> None:
    manifest = {**MANIFEST, "policy": {**MANIFEST["policy"], "max_requests_per_minute": 2}}
    assert await codes(small, 3, manifest=manifest) == ["policy_allowed.default"] * 2 + [EXHAUSTED]
    limited = await small.tools.execute(small.ask(manifest=manifest))
    assert summary(limited) == ("blocked", "denied", EXHAUSTED)
    assert await codes(small, 1, manifest=manifest, principal=OTHER) == ["policy_allowed.default"]
    small.clock.pass_s(60)
    assert await codes(small, 1, manifest=manifest) == ["policy_allowed.default"]
    assert len(small.hub.asked) == 4


def test_what_is_remembered_of_integrations_is_bounded() -> None:
    gates = ToolLimits()
    for number in range(MAX_KEPT + 10):
        gates._circuits.get(("x", str(number)))
    assert len(gates._circuits._entries) == MAX_KEPT


async def test_an_end_is_told_without_ids_and_content(small: World) -> None:
    told: list[tuple[str, dict[str, Any]]] = []
    detach = attach(lambda name, fields: told.append((name, fields)))
    run = await small.run()
    await small.tools.execute(small.ask(run_id=run.id, tool_call_id="the-call"))
    small.hub.always = Reply(404)
    await small.tools.execute(small.ask())
    detach()
    ended = [fields for name, fields in told if name == "tool.ended"]
    assert [sorted(fields) for fields in ended] == [["code", "ended_at", "started_at", "state", "tool"]] * 2
    assert [(fields["tool"], fields["state"], fields["code"]) for fields in ended] == [
        ("get_issue", "succeeded", "policy_allowed.default"), ("get_issue", "failed", FAILED),
    ]  # fmt: skip
    assert TOKEN not in str(told)


async def test_the_server_opens_its_tools_from_its_settings(small: World) -> None:
    settings = Settings(store="memory", github_api=small.hub.url, github_token=TOKEN)  # type: ignore[arg-type]
    async with open_records(settings) as records, open_tools(small.exchange, settings, records, GUARD, None) as tools:
        assert summary(await tools.execute(small.ask()))[0] == "succeeded"
    assert small.hub.asked[0].token == TOKEN
    assert TOKEN not in repr(settings)


async def test_two_tokens_are_one_too_many(small: World, tmp_path: Any) -> None:
    settings = Settings(store="memory", github_token=TOKEN, github_token_file=tmp_path / "token")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="not both"):
        async with open_tools(small.exchange, settings, small.records, GUARD, None):
            pass
