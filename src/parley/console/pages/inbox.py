"""The inbox: runs that wait for input, each with a form to answer."""

from msgspec import Struct

from parley.console.request import ConsoleContext, Page, PageRequest
from parley.console.responses import PageReply
from parley.http.requests import page_cursor, place_token
from parley.runs.listing import waiting
from parley.runs.rules.access import Principal
from parley.runs.rules.answers import AnswerForm, answer_form
from parley.runs.rules.content import text_of
from parley.runs.rules.state import Run
from parley.runs.store import Listing

INBOX_PAGE = 15
MOST_COUNTED = 99
MAX_QUESTION = 4000


class Question(Struct, frozen=True):
    run: Run
    text: str
    asked: str
    """First message of the run."""
    form: AnswerForm


async def count_waiting(desk: ConsoleContext, principal: Principal) -> int:
    shelf = await waiting(desk.exchange.store, Listing(desk.owner(principal), limit=MOST_COUNTED))
    return len(shelf.runs) + (shelf.after is not None)


class InboxPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [Page("GET", "/inbox", self.list)]

    async def list(self, visit: PageRequest) -> PageReply:
        after = page_cursor(visit.query.get("after", ""))
        listing = Listing(self._desk.owner(visit.principal), after=after, limit=INBOX_PAGE)
        shelf = await waiting(self._desk.exchange.store, listing)
        return visit.page(
            "inbox.html",
            title="Inbox",
            questions=[await self._question(run) for run in shelf.runs],
            next=place_token(shelf.after),
            first=after is None,
            served=self._desk.exchange.agents,
        )

    async def _question(self, run: Run) -> Question:
        view = await self._desk.exchange.view(run.id, told=True)
        asked = next((text_of(said.parts) for said in view.history if said.role == "user"), "")
        said = view.status.said
        form = answer_form(await self._desk.exchange.expected_answer(run))
        return Question(run, text_of(said.parts)[:MAX_QUESTION] if said else "", asked, form)
