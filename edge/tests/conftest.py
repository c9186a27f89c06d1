import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from edge.tests import platform as platforms
from edge.tests.platform import Platform

Pair = Callable[[str], Awaitable[Path]]


@pytest.fixture
async def platform() -> AsyncIterator[Platform]:
    async with platforms.platform() as made:
        yield made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "a2a"


@pytest.fixture
def paired(platform: Platform, home: Path) -> Pair:
    """A profile for an endpoint, as the contract lays it out; `pair` itself has its own tests."""

    async def pair(endpoint: str) -> Path:
        return write_profile(home, platform, endpoint)

    return pair


def write_profile(home: Path, platform: Platform, endpoint: str) -> Path:
    attached = platform.attach(platform.code())
    profile = {
        "api_base": platform.url, "runtime_token": attached["runtime_token"], "agent_id": attached["agent_id"],
        "runtime_id": attached["runtime_id"], "local_agent_endpoint": endpoint, "platform": attached["platform"],
        "paired_at": "2026-01-01T00:00:00Z", "heartbeat_interval_seconds": attached["heartbeat_interval_seconds"],
    }  # fmt: skip
    home.mkdir(mode=0o700)
    file = home / "runtime.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"active_profile": "default", "profiles": {"default": profile}}, indent=2))
    return home
