"""Pages for orchestrations: the plan as a live graph, its steps, and controls to pause, resume, cancel and retry."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from functools import partial

import msgspec
from msgspec import Struct

from parley.clock import now_ms
from parley.console.layout import GraphLayout, layered
from parley.console.request import ConsoleContext, Form, Page, PageRequest
from parley.console.responses import PageReply, PageStream, off_loop, path_of, redirect
from parley.console.step_times import times_of
from parley.errors import Invalid
from parley.execution.driver import Planner
from parley.http.requests import header, page_cursor, place_token
from parley.http.sse import KEEP_ALIVE_S, Chunk, frame
from parley.ids import new_id
from parley.orchestrations.rules.state import Orchestration, StepState
from parley.orchestrations.service import Creation, OrchestrationService
from parley.runs.listing import orchestrating
from parley.runs.requests import Branch
from parley.runs.rules.access import Principal
from parley.runs.rules.content import Message, text_of, text_part
from parley.runs.rules.events import Stepped
from parley.runs.rules.view import View
from parley.runs.store import Listing
from parley.runs.streams import Follower

PAGE = 20
WIDEST = 8
"""Steps in one row of the graph."""
MOST_EVENTS = 2000
"""Events of steps that are read to find a step's first one."""
JUMPS = 8
"""Steps of a status that the panel links to."""

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
            Page("POST", f"{at}/rerun", self.rerun, "send"),
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
            graph=await off_loop(lambda: drawn(state)),
            times=times_of(state, now_ms()),
            jumps=jumps_of(state),
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

    async def rerun(self, visit: PageRequest) -> PageReply:
        """Start a copy of an orchestration from before a step: what was done until then is kept."""
        form, state = await visit.form(), await self._engine.read(visit.path["id"], visit.principal)
        step = form.get("step", "")
        events = await self._desk.exchange.store.read_types(state.run, ("step",), 0, MOST_EVENTS)
        begun = [one.seq for one in events if isinstance(one.payload, Stepped) and one.payload.step == step]
        if not begun:
            raise Invalid("This step was not started, or its events are not stored any more.", field="step")
        branch = Branch(state.run, visit.principal, at=begun[0] - 1, key=form.get("key") or None)
        outcome = await self._desk.exchange.fork(branch)
        return redirect(path_of("orchestrations", outcome.run.id))

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
    edges = [(before, step.id) for step in steps for before in step.depends_on]
    return layered([step.id for step in steps], edges, WIDEST)


async def _frames(visit: PageRequest, view: View, follower: Follower) -> AsyncGenerator[Chunk, None]:
    before = view.orchestration
    while view.orchestration is None or not view.orchestration.ended:
        events = await follower.next(KEEP_ALIVE_S)
        if not events:
            yield b"", False
            continue
        view.feed(events)
        state = view.orchestration
        if state is None:
            continue
        told = await off_loop(partial(_told, visit, state, before))
        yield frame(events[-1].seq, msgspec.json.encode(told)), False
        before = state
    yield b"event: end\ndata: {}\n\n", True


def _told(visit: PageRequest, state: Orchestration, before: Orchestration | None) -> dict[str, object]:
    """The update for the page: graph and steps if the plan is new, otherwise the steps that changed; at the end all,
    which can then be run again."""
    times = times_of(state, now_ms())
    panel = visit.piece("_orchestration.html", state=state, times=times, jumps=jumps_of(state))
    told: dict[str, object] = {"panel": panel}
    if before is None or before.plan != state.plan:
        graph = visit.piece("_plan.html", state=state, graph=drawn(state), times=times)
        return told | {"graph": graph, "steps": visit.piece("_steps.html", state=state, times=times)}
    known = {one.number: one for one in before.steps}
    changed = [one for one in state.steps if state.ended or known.get(one.number) != one]
    rows = {str(one.number): visit.piece("_step.html", one=one, state=state, times=times) for one in changed}
    bars = {str(number): [time.x, time.width, time.critical] for number, time in times.steps.items()}
    return told | {"colours": {str(one.number): one.status for one in changed}, "rows": rows, "bars": bars}


def jumps_of(state: Orchestration) -> list[tuple[str, list[StepState]]]:
    """The steps that a reader looks for first, by their status."""
    found = [
        ("Failed", [one for one in state.steps if one.status == "failed"]),
        ("Waiting", [one for one in state.steps if one.step.id in state.asked]),
        ("Running", state.running),
    ]
    return [(name, steps[:JUMPS]) for name, steps in found if steps]


def _row(state: Orchestration) -> OrchestrationRow:
    return OrchestrationRow(state, _about(state))


def _about(state: Orchestration) -> str:
    return " ".join(text_of(state.message or state.words).split())[:120]
