"""Pages for orchestrations: the plan as a live graph, its steps, and controls to pause, resume, cancel and retry."""

from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec
from msgspec import Struct

from parley.console.layout import GraphLayout, layered
from parley.console.request import ConsoleContext, Form, Page, PageRequest
from parley.console.responses import PageReply, PageStream, path_of, redirect
from parley.errors import Invalid
from parley.execution.driver import Planner
from parley.http.requests import header, page_cursor, place_token
from parley.http.sse import KEEP_ALIVE_S, Chunk, frame
from parley.ids import new_id
from parley.orchestrations.rules.state import Orchestration
from parley.orchestrations.service import Creation, OrchestrationService
from parley.runs.listing import orchestrating
from parley.runs.rules.access import Principal
from parley.runs.rules.content import Message, text_of, text_part
from parley.runs.rules.view import View
from parley.runs.store import Listing
from parley.runs.streams import Follower

PAGE = 20

Steering = Callable[[str, Principal, Form], Awaitable[Orchestration]]


class OrchestrationRow(Struct, frozen=True):
    state: Orchestration
    about: str


class OrchestrationPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk
        self._engine = OrchestrationService(desk.exchange)

    def pages(self) -> list[Page]:
        at = "/orchestrations/{id:path}"
        ways: dict[str, Steering] = {
            "pause": lambda id_, who, _: self._engine.pause(id_, who),
            "resume": lambda id_, who, _: self._engine.resume(id_, who),
            "cancel": lambda id_, who, _: self._engine.cancel(id_, who),
            "retry": lambda id_, who, form: self._engine.retry_step(id_, who, form.get("step", "")),
        }
        return [
            Page("GET", "/orchestrations", self.list),
            Page("POST", "/orchestrations", self.begin, "send"),
            Page("GET", f"{at}/events", self.events),
            *(Page("POST", f"{at}/{name}", self._steering(steer), "send") for name, steer in ways.items()),
            Page("GET", at, self.show),
        ]

    async def list(self, visit: PageRequest) -> PageReply:
        after = page_cursor(visit.query.get("after", ""))
        planners = [one for one in self._desk.agents(visit.principal) if self._plans(one.slug)]
        listing = Listing(self._desk.owner(visit.principal), after=after, limit=PAGE)
        shelf = await orchestrating(self._desk.exchange.store, listing, [one.slug for one in planners])
        rows = [_row(await self._engine.read(run.id, visit.principal)) for run in shelf.runs if not run.gone]
        return visit.page(
            "orchestrations.html",
            title="Orchestrations",
            rows=rows,
            next=place_token(shelf.after),
            first=after is None,
            planners=planners,
            key=new_id(),
        )

    async def begin(self, visit: PageRequest) -> PageReply:
        form = await visit.form()
        agent, text = self._desk.agent(form.get("agent", ""), visit.principal), form.get("text", "").strip()
        if not text:
            raise Invalid("Describe the goal first.", field="text")
        rules = self._desk.exchange.agents.rules(agent.slug)
        creation = Creation(agent.slug, visit.principal, Message(new_id(), (text_part(text),)))
        creation = msgspec.structs.replace(creation, key=form.get("key") or None, rules=rules or creation.rules)
        state = await self._engine.create(creation)
        return redirect(path_of("orchestrations", state.id))

    async def show(self, visit: PageRequest) -> PageReply:
        state = await self._engine.read(visit.path["id"], visit.principal)
        return visit.page(
            "orchestration.html",
            title=_about(state) or f"Orchestration {state.id[-8:]}",
            state=state,
            graph=drawn(state),
            crumbs=[("Orchestrations", "/orchestrations")],
        )

    async def events(self, visit: PageRequest) -> PageStream:
        """Stream the state of an orchestration after each event, from a cursor."""
        state = await self._engine.read(visit.path["id"], visit.principal)
        cursor = header(visit.scope, b"last-event-id") or visit.query.get("after", "0")
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
            raise Invalid('"after" must be an event number.', field="after")
        after = min(int(cursor), state.version)
        follower = await self._desk.exchange.follow(state.run, after)
        view = await self._desk.exchange.view(state.run, upto=after) if after else View()
        return PageStream(_frames(visit, view, follower), follower)

    def _steering(self, steer: Steering) -> Callable[[PageRequest], Awaitable[PageReply]]:
        async def handle(visit: PageRequest) -> PageReply:
            form = await visit.form()
            before = await self._engine.read(visit.path["id"], visit.principal)
            state = await steer(visit.path["id"], visit.principal, form)
            # A script stays on its page as long as the run that it follows is the one that continues.
            if visit.wants_fragment and state.run == before.run:
                return PageReply(status=204)
            return redirect(path_of("orchestrations", state.id))

        return handle

    def _plans(self, slug: str) -> bool:
        return isinstance(self._desk.exchange.driver(slug), Planner)


def drawn(state: Orchestration) -> GraphLayout:
    steps = [one.step for one in state.steps]
    return layered([step.id for step in steps], [(before, step.id) for step in steps for before in step.depends_on])


async def _frames(visit: PageRequest, view: View, follower: Follower) -> AsyncGenerator[Chunk, None]:
    plan = view.orchestration.plan if view.orchestration else 0
    while view.orchestration is None or not view.orchestration.ended:
        events = await follower.next(KEEP_ALIVE_S)
        if not events:
            yield b"", False
            continue
        view.feed(events)
        state = view.orchestration
        if state is None:
            continue
        yield frame(events[-1].seq, msgspec.json.encode(_told(visit, state, anew=state.plan != plan))), False
        plan = state.plan
    yield b"event: end\ndata: {}\n\n", True


def _told(visit: PageRequest, state: Orchestration, *, anew: bool) -> dict[str, object]:
    """The update for the page. It includes the graph only if the plan changed; otherwise the colours are enough."""
    told: dict[str, object] = {
        "colours": {str(one.number): one.status for one in state.steps},
        "panel": visit.piece("_orchestration.html", state=state),
        "steps": visit.piece("_steps.html", state=state),
    }
    return told | ({"graph": visit.piece("_plan.html", state=state, graph=drawn(state))} if anew else {})


def _row(state: Orchestration) -> OrchestrationRow:
    return OrchestrationRow(state, _about(state))


def _about(state: Orchestration) -> str:
    return " ".join(text_of(state.message or state.words).split())[:120]
