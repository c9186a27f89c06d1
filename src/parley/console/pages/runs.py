"""The list of runs: filtered, and read page by page."""

from parley.console.desk import Desk
from parley.console.pages.page import Page
from parley.console.rendering import run_path
from parley.console.replies import Reply, redirect
from parley.console.visits import Visit
from parley.core.runs import Run, State
from parley.engine.newest import newest, waiting
from parley.engine.ports import Listing
from parley.errors import Invalid, RunNotFound
from parley.faces.paging import page_cursor, place_token
from parley.ids import is_id

PAGE = 30
WAITS = "waiting"
"""The filter for whatever waits for a person, in whichever state that is."""


class RunsPages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [Page("GET", "/runs", self.list)]

    async def list(self, visit: Visit) -> Reply:
        query = visit.query
        state, agent, text = query.get("state", ""), query.get("agent", ""), query.get("id", "").strip()
        if text and (found := await self._named(visit, text)) is not None:
            return redirect(run_path(found.id))
        if text and not is_id(text):
            raise Invalid("The id of a run has letters, digits and ._:@/+=~-", field="id")
        listing = Listing(
            self._desk.owner(visit.principal), agent or None, state=_state(state),
            after=page_cursor(query.get("after", "")), limit=PAGE, prefix=text,
        )  # fmt: skip
        look = waiting if state == WAITS else newest
        shelf = await look(self._desk.exchange.store, listing)
        return visit.page(
            "runs.html", title="Runs", runs=shelf.runs, next=place_token(shelf.after), first=not query.get("after"),
            agents=self._desk.agents(visit.principal), states=[one.value for one in State],
            chosen={"state": state, "agent": agent, "id": text},
        )  # fmt: skip

    async def _named(self, visit: Visit, text: str) -> Run | None:
        """Whoever pastes a whole id wants to see that run."""
        try:
            return await self._desk.exchange.visible(text, visit.principal)
        except RunNotFound:
            return None


def _state(name: str) -> State | None:
    if name in ("", WAITS):
        return None
    try:
        return State(name)
    except ValueError:
        raise Invalid(f"The state is one of {', '.join(State)}, or {WAITS}.", field="state") from None
