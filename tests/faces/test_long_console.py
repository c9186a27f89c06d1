"""The page of a long run reads the events that it shows, and leaves the event loop to others in between."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from parley import Text, Turn, agent
from parley.console.pages.runs import ENTRIES
from parley.console.timeline import WINDOW
from parley.ids import RunId
from parley.runs.rules.content import text_part
from parley.runs.rules.events import ArtifactAdded, Completed, Event, InputRequired, Started
from parley.runs.streams import PAGE
from parley.testing.logs import LogWriter, put
from parley.testing.servers import Server, serving

LONG = 3 * WINDOW
KEY = re.compile(r'<li[^>]* id="([a-z]+-[0-9a-f]+)"')
EARLIER = re.compile(r'class="earlier"><a class="button quiet" href="([^"]+)"')


@agent("agent")
async def quiet(turn: Turn):
    yield Text("done")


class Watched:
    def __init__(self, server: Server, log: LogWriter) -> None:
        self.log, self.store = log, server.exchange.store
        self.page = f"{server.url}/console/runs/{log.run_id}"
        self.read: list[int] = []
        self._read = self.store.read
        self.store.read = self._counted  # type: ignore[method-assign]

    async def _counted(self, run: RunId, after: int, limit: int) -> list[Event]:
        events = await self._read(run, after, limit)
        self.read.append(len(events))
        return events


@pytest.fixture
async def long(tmp_path: Path) -> AsyncIterator[Watched]:
    async with serving(tmp_path / "data", [quiet]) as server:
        log, store = LogWriter(), server.exchange.store
        await put(store, log.start())
        await put(store, log.append(Started(1)))
        await put(store, log.progress(LONG))
        yield Watched(server, log)


async def test_a_page_reads_one_window_of_the_log_in_small_steps(long: Watched) -> None:
    await put(long.store, long.log.append(InputRequired((text_part("Which name?"),))))
    async with httpx2.AsyncClient() as http:
        page = (await http.get(long.page)).text
        assert "Which name?" in page
        assert len(KEY.findall(page)) == ENTRIES
        assert sum(long.read) <= WINDOW + PAGE
        assert max(long.read) <= PAGE
        long.read.clear()
        await http.get(f"{long.page}?before={LONG // 2}")
        assert 0 < sum(long.read) <= WINDOW + PAGE


async def test_its_pages_lead_through_all_of_its_entries_once(long: Watched) -> None:
    await put(long.store, long.log.append(InputRequired((text_part("Which name?"),))))
    seen: list[str] = []
    async with httpx2.AsyncClient() as http:
        at = long.page
        while at:
            page = (await http.get(at)).text
            seen = [*KEY.findall(page), *seen]
            more = EARLIER.search(page)
            at = httpx2.URL(long.page).join(more[1].replace("&amp;", "&")) if more else ""
    assert seen == [f"event-{seq}" for seq in range(2, LONG + 5) if seq != 3]


async def test_a_text_that_grew_for_long_is_shown_in_parts(long: Watched) -> None:
    await put(long.store, long.log.append(ArtifactAdded("made", (text_part("opening "),), "response")))
    for _ in range(WINDOW // 100):
        chunk = ArtifactAdded("made", tuple(text_part("more ") for _ in range(3)), "response", append=True)
        await put(long.store, long.log.append(*[chunk] * 100))
    await put(long.store, long.log.append(Completed()))
    async with httpx2.AsyncClient() as http:
        latest = (await http.get(long.page)).text
        assert "more more" in latest
        assert "opening" not in latest
        earlier = EARLIER.search(latest)
        assert earlier is not None
        before = (await http.get(httpx2.URL(long.page).join(earlier[1]))).text
        assert "opening" in before


async def test_a_reader_who_comes_back_is_told_all_that_happened_and_how_it_ended(long: Watched) -> None:
    after = LONG
    await put(long.store, long.log.append(Completed((text_part("That is all."),))))
    async with httpx2.AsyncClient(timeout=30) as http:
        stream = (await http.get(f"{long.page}/events", headers={"Last-Event-ID": str(after)})).text
    assert "That is all." in stream
    assert '"state":"completed"' in stream
    assert stream.count('"key":"event-') == 4
    assert stream.endswith("event: end\ndata: {}\n\n")
