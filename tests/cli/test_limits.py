"""Limits and stops from a terminal, at a running server."""

import json
from pathlib import Path

import pytest

from parley import NeedInput, Turn, agent
from parley.testing.servers import serving
from tests.cli.test_cli import parley

pytestmark = pytest.mark.slow


@agent("asker")
async def asker(turn: Turn):
    yield NeedInput("And now?")


async def test_limits_are_set_listed_and_removed_and_work_is_stopped(tmp_path: Path) -> None:
    async with serving(tmp_path, [asker]) as server:
        at = ("--url", server.url)
        assert (await parley("limits", "list", *at)).out == "No limits.\n"
        assert (await parley("limits", "set", "agent:asker", "--cost-day", "5", *at)).code == 0
        (one,) = json.loads((await parley("limits", "list", "--json", *at)).out)["limits"]
        assert (one["name"], one["limits"], one["budgets"][0]["left"]) == ("asker", {"costDay": 5.0}, 5)
        assert "agent:asker  cost_day  5.0      5" in (await parley("limits", "list", *at)).out
        wrong = await parley("limits", "set", "all:asker", "--cost-day", "5", *at)
        assert (wrong.code != 0, "kind must be one of: principal, group, agent, key." in wrong.err) == (True, True)

        task = json.loads((await parley("send", "asker", "hi", "--json", *at)).out.splitlines()[-1])
        assert "0 tokens, 0 USD" in (await parley("limits", "list", "--task", _id_of(task), *at)).out
        stopped = await parley("limits", "stop", "agent:asker", "--reason", "a loop", *at)
        assert stopped.out == "work of agent:asker is stopped; 1 tasks are canceled\n"
        assert "a loop" in (await parley("limits", "stops", *at)).out
        assert (await parley("limits", "allow", "agent:asker", *at)).code == 0
        assert (await parley("limits", "stops", *at)).out == "Nothing is stopped.\n"
        assert (await parley("limits", "remove", "agent:asker", *at)).code == 0
        assert (await parley("limits", "remove", "agent:asker", *at)).code != 0


def _id_of(found: dict[str, object]) -> str:
    """Return the id of the task in the last line that `send --json` prints."""
    text = json.dumps(found)
    for name in ('"taskId": "', '"id": "'):
        if name in text:
            return text.split(name)[1].split('"')[0]
    raise LookupError(text)
