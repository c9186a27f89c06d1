"""Orchestrations: the plan as a graph that changes its colours while it is carried out, and how it goes on."""

from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec
from msgspec import Struct

from parley.console.desk import Desk
from parley.console.graphs import Graph, layered
from parley.console.pages.page import Page
from parley.console.replies import Reply, Stream, path_of, redirect
from parley.console.visits import Form, Visit
from parley.core.access import Principal
from parley.core.artifacts import text_of, text_part
from parley.core.conversations import Message
from parley.core.orchestrations import Orchestration
from parley.core.views import View
from parley.engine.newest import orchestrating
from parley.engine.orchestrations import Creation, Orchestrations
from parley.engine.planning import Planner
from parley.engine.ports import Listing
from parley.engine.streams import Follower
from parley.errors import Invalid
from parley.faces.http import header
from parley.faces.paging import page_cursor, place_token
from parley.faces.sse import KEEP_ALIVE_S, Chunk, frame
from parley.ids import new_id

PAGE = 20

Steering = Callable[[str, Principal, Form], Awaitable[Orchestration]]


class Row(Struct, frozen=True):
    state: Orchestration
    about: str


class OrchestrationPages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._engine = Orchestrations(desk.exchange)

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

    async def list(self, visit: Visit) -> Reply:
        after = page_cursor(visit.query.get("after", ""))
        planners = [one for one in self._desk.agents(visit.principal) if self._plans(one.slug)]
        listing = Listing(self._desk.owner(visit.principal), after=after, limit=PAGE)
        shelf = await orchestrating(self._desk.exchange.store, listing, [one.slug for one in planners])
        rows = [_row(await self._engine.read(run.id, visit.principal)) for run in shelf.runs if not run.gone]
        return visit.page(
            "orchestrations.html", title="Orchestrations", rows=rows, next=place_token(shelf.after),
            first=after is None, planners=planners, key=new_id(),
        )  # fmt: skip

    async def begin(self, visit: Visit) -> Reply:
        form = await visit.form()
        agent, text = self._desk.agent(form.get("agent", ""), visit.principal), form.get("text", "").strip()
        if not text:
            raise Invalid("Write what it is about first.", field="text")
        rules = self._desk.exchange.agents.rules(agent.slug)
        creation = Creation(agent.slug, visit.principal, Message(new_id(), (text_part(text),)))
        creation = msgspec.structs.replace(creation, key=form.get("key") or None, rules=rules or creation.rules)
        state = await self._engine.create(creation)
        return redirect(path_of("orchestrations", state.id))

    async def show(self, visit: Visit) -> Reply:
        state = await self._engine.read(visit.path["id"], visit.principal)
        return visit.page(
            "orchestration.html", title=_about(state) or f"Orchestration {state.id[-8:]}", state=state,
            graph=drawn(state), crumbs=[("Orchestrations", "/orchestrations")],
        )  # fmt: skip

    async def events(self, visit: Visit) -> Stream:
        """Where it stands, after each of its events from a cursor on."""
        state = await self._engine.read(visit.path["id"], visit.principal)
        cursor = header(visit.scope, b"last-event-id") or visit.query.get("after", "0")
        if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
            raise Invalid("An event is named by its number.", field="after")
        after = min(int(cursor), state.version)
        follower = await self._desk.exchange.follow(state.run, after)
        view = await self._desk.exchange.view(state.run, upto=after) if after else View()
        return Stream(_frames(visit, view, follower), follower)

    def _steering(self, steer: Steering) -> Callable[[Visit], Awaitable[Reply]]:
        async def handle(visit: Visit) -> Reply:
            form = await visit.form()
            before = await self._engine.read(visit.path["id"], visit.principal)
            state = await steer(visit.path["id"], visit.principal, form)
            # A script stays where it is as long as what it follows is what goes on.
            if visit.wants_fragment and state.run == before.run:
                return Reply(status=204)
            return redirect(path_of("orchestrations", state.id))

        return handle

    def _plans(self, slug: str) -> bool:
        return isinstance(self._desk.exchange.driver(slug), Planner)


def drawn(state: Orchestration) -> Graph:
    steps = [one.step for one in state.steps]
    return layered([step.id for step in steps], [(before, step.id) for step in steps for before in step.depends_on])


async def _frames(visit: Visit, view: View, follower: Follower) -> AsyncGenerator[Chunk, None]:
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


def _told(visit: Visit, state: Orchestration, *, anew: bool) -> dict[str, object]:
    """The graph only when there is another plan: else its colours are enough."""
    told: dict[str, object] = {
        "colours": {str(one.number): one.status for one in state.steps},
        "panel": visit.piece("_orchestration.html", state=state),
        "steps": visit.piece("_steps.html", state=state),
    }
    return told | ({"graph": visit.piece("_plan.html", state=state, graph=drawn(state))} if anew else {})


def _row(state: Orchestration) -> Row:
    return Row(state, _about(state))


def _about(state: Orchestration) -> str:
    return " ".join(text_of(state.message or state.words).split())[:120]
