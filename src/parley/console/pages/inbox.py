"""The inbox: what waits for a person, with the place to answer it."""

from msgspec import Struct

from parley.console.desk import Desk
from parley.console.pages.page import Page
from parley.console.replies import Reply
from parley.console.visits import Visit
from parley.core.access import Principal
from parley.core.artifacts import text_of
from parley.core.runs import Run
from parley.engine.newest import waiting
from parley.engine.ports import Listing
from parley.faces.paging import page_cursor, place_token

PAGE = 15
MOST_COUNTED = 99
MAX_QUESTION = 4000


class Question(Struct, frozen=True):
    run: Run
    text: str
    asked: str
    """What it was asked to do, at the beginning."""


async def count_waiting(desk: Desk, principal: Principal) -> int:
    shelf = await waiting(desk.exchange.store, Listing(desk.owner(principal), limit=MOST_COUNTED))
    return len(shelf.runs) + (shelf.after is not None)


class InboxPages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [Page("GET", "/inbox", self.list)]

    async def list(self, visit: Visit) -> Reply:
        after = page_cursor(visit.query.get("after", ""))
        listing = Listing(self._desk.owner(visit.principal), after=after, limit=PAGE)
        shelf = await waiting(self._desk.exchange.store, listing)
        return visit.page(
            "inbox.html", title="Inbox", questions=[await self._question(run) for run in shelf.runs],
            next=place_token(shelf.after), first=after is None, served=self._desk.exchange.agents,
        )  # fmt: skip

    async def _question(self, run: Run) -> Question:
        view = await self._desk.exchange.view(run.id, told=True)
        asked = next((text_of(said.parts) for said in view.history if said.role == "user"), "")
        said = view.status.said
        return Question(run, text_of(said.parts)[:MAX_QUESTION] if said else "", asked)
