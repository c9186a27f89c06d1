"""A one-time code becomes a profile, or a message that says what to do."""

import asyncio
import json
from pathlib import Path

import pytest

from edge.tests import platform as platforms
from edge.tests.platform import ORIGIN, Platform
from edge.tests.programs import local_agent, run, runtime


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def broken(home: Path, content: str) -> Path:
    home.mkdir(mode=0o700, exist_ok=True)
    file = home / "runtime.json"
    file.write_text(content)
    return file


async def test_pairing_writes_a_profile_for_its_owner_alone(platform: Platform, home: Path) -> None:
    done = await run(home, "pair", "--code", platform.code(), "--api-base", platform.url, "--name", "attic", "--json")
    assert done.code == 0
    assert (mode(home / "runtime.json"), mode(home)) == (0o600, 0o700)
    said = json.loads((home / "runtime.json").read_text())
    assert said["active_profile"] == "default"
    profile = said["profiles"]["default"]
    assert profile.pop("paired_at").endswith("Z")
    assert profile == {
        "api_base": platform.url,
        "runtime_token": platform.token,
        "agent_id": "worker",
        "agent_name": "Worker",
        "runtime_id": "runtime-1",
        "runtime_name": "attic",
        "local_agent_endpoint": "http://localhost:18789/run-task",
        "platform": ORIGIN,
        "heartbeat_interval_seconds": 30.0,
        "pull_interval_seconds": 1.0,
    }
    assert done.json["profile"] == "default"
    assert platform.token is not None
    assert platform.token not in done.out + done.err
    asked = platform.called("/attach-via-pairing")[0]
    assert asked.body["runtime_name"] == "attic"
    assert "x-runtime-token" not in asked.headers


async def test_the_message_says_where_and_how_to_go_on(platform: Platform, home: Path) -> None:
    done = await run(home, "pair", "--code", platform.code(), A2A_API_BASE=platform.url)
    assert done.code == 0
    assert f"Pairing with {platform.url} (A2A_API_BASE)" in done.err
    assert "Worker" in done.out
    assert "a2a-runtime start" in done.out


async def test_the_default_platform_is_named(home: Path) -> None:
    done = await run(home, "pair", "--code", "AAAA-BBBB-CCCC-DDDD", "--api-base", "http://127.0.0.1:1")
    assert done.code == 3
    assert "http://127.0.0.1:1" in done.err
    assert "--api-base" in done.err
    assert not (home / "runtime.json").exists()
    unnamed = await run(home, "pair", "--code", "-", stdin="\n")
    assert unnamed.code == 2
    assert "Pairing with http://127.0.0.1:8200 (the default" in unnamed.err


async def test_a_code_may_come_from_standard_input(platform: Platform, home: Path) -> None:
    code = platform.code().lower().replace("-", "")
    done = await run(home, "pair", "--api-base", platform.url, stdin=f"{code}\n")
    assert done.code == 0


async def test_a_code_of_another_platform_is_invalid_here_and_it_is_said_where(platform: Platform, home: Path) -> None:
    async with platforms.platform() as other:
        done = await run(home, "pair", "--code", other.code(), "--api-base", platform.url)
    assert done.code == 4
    assert "Invalid pairing token" in done.err
    assert f"It was tried at {platform.url}" in done.err
    assert "--api-base" in done.err
    assert not (home / "runtime.json").exists()


async def test_a_code_works_once(platform: Platform, home: Path) -> None:
    code = platform.code()
    assert (await run(home, "pair", "--code", code, "--api-base", platform.url)).code == 0
    before = (home / "runtime.json").read_bytes()
    again = await run(home, "pair", "--code", code, "--api-base", platform.url, "--json")
    assert again.code == 4
    assert json.loads(again.err.splitlines()[-1])["error"]["code"] == "invalid_pairing_token"
    assert (home / "runtime.json").read_bytes() == before


async def test_pairing_again_keeps_the_profile_and_its_endpoint(platform: Platform, home: Path) -> None:
    base = ("--api-base", platform.url)
    await run(home, "pair", "--code", platform.code(), *base, "--preset", "openclaw")
    again = await run(home, "pair", "--code", platform.code(), *base, "--json")
    assert again.json["profile"] == "default"
    assert again.json["replaced"] is True
    assert again.json["local_agent_endpoint"] == "http://127.0.0.1:18789/execute"
    assert again.json["runtime_id"] == "runtime-2"


async def test_another_agent_gets_a_profile_of_its_own_and_is_the_active_one(platform: Platform, home: Path) -> None:
    await run(home, "pair", "--code", platform.code(), "--api-base", platform.url)
    async with platforms.platform(agent="other") as second:
        done = await run(home, "pair", "--code", second.code(), "--api-base", second.url, "--json")
    assert done.json["profile"] == "other"
    said = json.loads((home / "runtime.json").read_text())
    assert said["active_profile"] == "other"
    assert sorted(said["profiles"]) == ["default", "other"]


async def test_two_pairings_at_once_lose_nothing(home: Path) -> None:
    async with platforms.platform(agent="one") as one, platforms.platform(agent="two") as two:
        pairings = [
            run(home, "pair", "--code", which.code(), "--api-base", which.url, "--profile", name)
            for which, name in ((one, "a"), (two, "b"), (one, "c"), (two, "d"))
        ]
        assert [done.code for done in await asyncio.gather(*pairings)] == [0, 0, 0, 0]
    assert sorted(json.loads((home / "runtime.json").read_text())["profiles"]) == ["a", "b", "c", "d"]
    assert list(names(home)) == ["runtime.json", "runtime.lock"]


@pytest.mark.parametrize("content", ["{", "[]", '{"profiles": []}', ""])
async def test_a_broken_file_is_reported_and_the_code_is_not_spent(
    platform: Platform, home: Path, content: str
) -> None:
    file = broken(home, content)
    done = await run(home, "pair", "--code", platform.code(), "--api-base", platform.url)
    assert done.code == 5
    assert "was not changed" in done.err
    assert file.read_text() == content
    assert platform.calls == []


async def test_a_folder_that_cannot_be_written_to_costs_no_code(platform: Platform, tmp_path: Path) -> None:
    home = broken(tmp_path, "this is a file")
    done = await run(home, "pair", "--code", platform.code(), "--api-base", platform.url)
    assert done.code == 5
    assert platform.calls == []


@pytest.mark.parametrize(
    "base", ["ftp://example.com", "example.com", "http://user:pw@example.com", "http://", "http://h:x"]
)
async def test_what_is_no_address_is_refused(home: Path, base: str) -> None:
    done = await run(home, "pair", "--code", "X", "--api-base", base)
    assert done.code == 2
    assert "API base" in done.err


@pytest.mark.parametrize(
    ("option", "reason"),
    [("--api-base", "the platform's paths are appended to it"), ("--endpoint", "shown in logs and lists")],
)
@pytest.mark.parametrize(("url", "what"), [("http://h/run?key=x", "query"), ("http://h/run#x", "fragment")])
async def test_an_address_with_more_than_a_path_is_refused_with_the_reason(
    home: Path, option: str, reason: str, url: str, what: str
) -> None:
    done = await run(home, "pair", "--code", "X", option, url)
    assert done.code == 2
    assert f"must not have a {what}: " in done.err
    assert reason in done.err
    assert "http://h/run" in done.err
    assert "key=x" not in done.err


async def test_a_slash_at_the_end_of_the_endpoint_is_kept(platform: Platform, home: Path) -> None:
    async with local_agent({"text": "ok"}) as agent:
        endpoint = f"{agent.wire.origin}/tasks/"
        done = await run(
            home, "pair", "--code", platform.code(), "--api-base", f"{platform.url}/", "--endpoint", endpoint, "--json"
        )
        assert (done.json["local_agent_endpoint"], done.json["api_base"]) == (endpoint, platform.url)
        async with runtime(home):
            assert (await platform.ended(platform.ask("hello"))).state == "completed"
        async with runtime(home, "--endpoint", f"{agent.wire.origin}/other/"):
            assert (await platform.ended(platform.ask("hello"))).state == "completed"
    assert [asked.path for asked in agent.asked] == ["/tasks/", "/other/"]


async def test_start_and_status_use_the_platform_that_was_paired(platform: Platform, home: Path) -> None:
    async with local_agent({"text": "ok"}) as agent:
        await run(
            home, "pair", "--code", platform.code(), "--api-base", f"{platform.url}/", "--endpoint", agent.endpoint
        )
        async with runtime(home, A2A_API_BASE="http://127.0.0.1:1"):
            assert (await platform.ended(platform.ask("hello"))).state == "completed"
        status = await run(home, "status", "--json", A2A_API_BASE="http://127.0.0.1:1")
    assert status.code == 0
    assert status.json["api_base"] == platform.url
    assert status.json["remote"]["agent_id"] == "worker"
    assert "runtime_token" not in status.json


async def test_a_platform_behind_a_path_is_asked_below_it(home: Path) -> None:
    async with local_agent(
        {"error": {"code": "invalid_pairing_token", "message": "Invalid pairing token"}}, status=401
    ) as agent:
        await run(home, "pair", "--code", "X", "--api-base", f"{agent.wire.origin}/a2a/")
    assert agent.asked[0].path == "/a2a/agent-runtimes/runtime/attach-via-pairing"


async def test_names_of_others_do_no_harm_to_a_terminal(home: Path) -> None:
    async with platforms.platform(agent="w\x1b[2J\u00f6rker") as platform:
        done = await run(home, "pair", "--code", platform.code(), "--api-base", platform.url, PYTHONIOENCODING="ascii")
    assert done.code == 0
    assert "\x1b" not in done.out
    assert "rker" in done.out


async def test_what_answers_but_is_no_platform_is_said_to_be_none(home: Path) -> None:
    async with local_agent({"hello": "world"}) as agent:
        done = await run(home, "pair", "--code", "X", "--api-base", agent.wire.origin)
    assert done.code == 3
    assert "not a platform" in done.err
