"""The page of limits: what holds, what is left, and the stops."""

from pathlib import Path

import httpx2

from parley import NeedInput, Turn, agent
from parley.testing.servers import serving


@agent("asker")
async def asker(turn: Turn):
    yield NeedInput("And now?")


async def test_the_page_shows_limits_what_is_left_and_stops(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, [asker], store="memory", limits={"agent:*": {"tree_depth": 3}}) as server,
        httpx2.AsyncClient(base_url=server.url) as http,
    ):
        await http.put("/admin/limits/agent/asker", json={"costDay": 5, "tokensMonth": 1000})
        await http.post("/admin/stops", json={"kind": "principal", "name": "user:mallory", "reason": "a loop"})
        page = await http.get("/console/limits")
        assert page.status_code == 200, page.text
        for words in ("USD a day: 5.0 of 5.0", "Tokens a month: 1000 of 1000", "Depth of a tree: 3",
                      "from the settings", "user:mallory", "a loop", "Set limits", "Stop all work"):  # fmt: skip
            assert words in page.text, words
