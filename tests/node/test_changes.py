"""Behaviour of nodes when one is moved, restarted or killed."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from parley.client import RemoteError
from parley.node import A2A
from parley.testing.processes import until
from tests.faces.pairing.runtime import web
from tests.node.team import Member, Team, address, text_of

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def team(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Team]:
    async with web() as http:
        team = Team(http, tmp_path_factory.mktemp("changes"))
        try:
            await team.open()
            yield team
        finally:
            await team.close()


@pytest_asyncio.fixture(loop_scope="module")
async def moved(team: Team) -> AsyncIterator[Member]:
    """A node of the team that is moved below another node, and back again."""
    one = team["one"]
    yield one
    await team.move(one, team["lead"].seat)


async def lets_in(member: Member, token: str | None) -> bool:
    async with A2A(member.process.url, token=token) as a2a:
        try:
            await a2a.get("/tasks/none")
        except RemoteError as error:
            return error.status != 401
    raise AssertionError


async def test_a_move_cuts_a_pair_at_once_where_the_platform_is_asked(team: Team, moved: Member) -> None:
    two = team["two"]
    token = (await address(moved.speaks(), two.id)).token
    assert await lets_in(two, token)
    assert text_of(await team.ask("lead", moved, f"ask {two.id} hello")) == "completed: completed: hello"
    await team.move(moved, team.other)
    begun = time.monotonic()
    assert not await lets_in(two, token)
    assert time.monotonic() - begun < 1
    begun = time.monotonic()
    refused = await team.tell("one", f"ask {two.id} hello", by=team.other)
    assert time.monotonic() - begun < 1
    assert refused["status"] == "failed"
    assert "not authorized" in refused["message"]


async def test_a_move_cuts_a_pair_when_its_token_expires_where_nobody_is_asked(team: Team, moved: Member) -> None:
    lead = team["lead"]
    token = (await address(moved.speaks(), lead.id)).token
    await team.move(moved, team.other)
    assert await lets_in(lead, token)

    async def shut() -> bool:
        return not await lets_in(lead, token)

    await until(shut, 15)


async def test_a_platform_that_was_away_finds_its_nodes_and_they_find_each_other(team: Team, tmp_path: Path) -> None:
    gate, port = tmp_path / "gate", int(team.platform.url.rpartition(":")[2])
    async with team.caller("lead") as a2a:
        task = await team.begin(a2a, f"ask {team['two'].id} gate {gate}")
        (theirs,) = await team["lead"].at(team["two"]).since(())
        await team.platform.kill()
        gate.touch()
        await team.start_platform(port)
        answer = await team.until_ended(a2a, task)
        assert (text_of(answer), theirs) == ("completed: The gate is open.", theirs)
    await team.is_online("lead")
    await team.ask("lead", team["two"], "describe Paints on silk.")

    async def known() -> bool:
        return "Paints on silk." in text_of(await team.tell("lead", "peers"))

    await until(known, 15)


async def test_a_node_that_is_killed_goes_on_as_the_same(team: Team, tmp_path: Path) -> None:
    """Both ends of a call, one after the other: neither is begun anew."""
    one, lead, gate = team["one"], team["lead"], tmp_path / "gate"
    before = await lead.at(one).all()
    kept = (one.directory / "node.json").read_bytes()
    assert (one.directory / "node.json").stat().st_mode & 0o777 == 0o600
    async with team.caller("lead") as a2a:
        task = await team.begin(a2a, f"ask {one.id} gate {gate}")
        (theirs,) = await lead.at(one).since(before)
        await one.process.kill()
        await one.again()
        assert (one.directory / "node.json").read_bytes() == kept
        await lead.at(one).become(theirs, "WORKING")
        await lead.process.kill()
        await lead.again()
        gate.touch()
        answer = await team.until_ended(a2a, task)
    assert text_of(answer) == "completed: The gate is open."
    assert set(await lead.at(one).all()) - set(before) == {theirs}
