"""The agents: their cards as people read them, how they fare, and a box to try them."""

from msgspec import Struct

from parley.console.desk import Desk
from parley.console.pages.page import Page
from parley.console.rendering import run_path
from parley.console.replies import Reply, path_of, redirect
from parley.console.visits import Visit
from parley.core.agents import Agent
from parley.core.artifacts import text_part
from parley.core.conversations import Message
from parley.core.runs import State
from parley.engine.newest import newest
from parley.engine.ports import Distant, Listing
from parley.engine.requests import Send
from parley.errors import Invalid
from parley.ids import new_id

MOST_COUNTED = 999
RECENT = 5


class Standing(Struct, frozen=True):
    """How an agent fares at the moment."""

    working: int
    queued: int
    runtime: str
    """In a word, for an agent that works elsewhere; empty for any other."""

    @property
    def kind(self) -> str:
        if self.runtime in ("not paired", "offline"):
            return "idle" if self.runtime == "not paired" else "bad"
        return "busy" if self.working else "good"

    @property
    def word(self) -> str:
        if self.runtime in ("not paired", "offline"):
            return self.runtime
        return "working" if self.working else "ready"


class AgentPages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/agents", self.list),
            Page("POST", "/agents/{slug}/try", self.ask, "send"),
            Page("GET", "/agents/{slug}", self.show),
        ]

    async def list(self, visit: Visit) -> Reply:
        agents = [(agent, await self._standing(agent)) for agent in self._desk.agents(visit.principal)]
        problems = self._desk.beside.problems() if visit.principal.may("admin") else []
        return visit.page("agents.html", title="Agents", agents=agents, problems=problems)

    async def show(self, visit: Visit) -> Reply:
        agent = self._desk.agent(visit.path["slug"], visit.principal)
        listing = Listing(self._desk.owner(visit.principal), agent.slug, limit=RECENT)
        recent = await newest(self._desk.exchange.store, listing)
        address = f"{self._desk.base_url}{path_of('agents', agent.slug)}"
        return visit.page(
            "agent.html", title=agent.name, crumbs=[("Agents", "/agents")], agent=agent, address=address,
            standing=await self._standing(agent), runs=recent.runs,
            added=agent.slug in self._desk.newcomers.added,
            distant=isinstance(self._desk.exchange.driver(agent.slug), Distant),
        )  # fmt: skip

    async def ask(self, visit: Visit) -> Reply:
        agent, form = self._desk.agent(visit.path["slug"], visit.principal), await visit.form()
        text = form.get("text", "").strip()
        if not text:
            raise Invalid("Write a message first.", field="text")
        sent = Send(agent.slug, visit.principal, Message(new_id(), (text_part(text),)), key=form.get("key") or None)
        outcome = await self._desk.exchange.send(sent)
        return redirect(run_path(outcome.run.id, *(["timeline"] if visit.wants_fragment else [])))

    async def _standing(self, agent: Agent) -> Standing:
        store = self._desk.exchange.store
        working = await store.runs_in(State.WORKING, agent=agent.slug, limit=MOST_COUNTED)
        queued = await store.runs_in(State.SUBMITTED, agent=agent.slug, limit=MOST_COUNTED)
        distant = isinstance(self._desk.exchange.driver(agent.slug), Distant)
        runtime = await self._desk.runtimes.word_for(agent.slug) if distant else ""
        return Standing(len(working), len([run for run in queued if run.ready]), runtime)
