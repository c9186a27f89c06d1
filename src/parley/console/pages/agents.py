"""Pages for agents: list, details with current load, a box to try them, pairing, adding and removing."""

import re
from collections.abc import Sequence
from typing import Any

import yaml
from msgspec import Struct

from parley.client.cards import NoCard, inspect
from parley.clock import now_ms
from parley.console.figures import AgentFigures, latest_figures
from parley.console.pages.conversations import message_in
from parley.console.request import ConsoleContext, Form, Page, PageRequest
from parley.console.responses import PageReply, path_of, redirect, run_path
from parley.definitions.watcher import DefinitionProblem
from parley.errors import Invalid, ParleyError
from parley.execution.driver import PairedWork, kind_of
from parley.http.problems import status_of
from parley.ids import new_id
from parley.paired.runtimes import Code
from parley.paired.service import edge_agent
from parley.runs.listing import newest
from parley.runs.requests import Send
from parley.runs.rules.agents import Agent
from parley.runs.rules.state import State
from parley.runs.store import Listing

MOST_COUNTED = 999
RECENT = 5
SHOWN = 100
"""Agents on one page."""
SAMPLE = 20
"""Latest runs of which the list of agents shows figures."""
MOST_READ = 500
"""Latest runs of which an agent's page shows figures."""
MAX_SEARCH = 200


class Standing(Struct, frozen=True):
    """Current load and runtime state of an agent."""

    working: int
    queued: int
    runtime: str
    """State of a paired agent's runtime; empty for all other agents."""

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


class AgentRow(Struct, frozen=True):
    """An agent in the list."""

    agent: Agent
    standing: Standing
    kind: str
    """Name of its driver."""
    place: str
    """File and line of its definition."""
    figures: AgentFigures


class AgentPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/agents", self.list),
            Page("POST", "/agents/{slug}/try", self.ask, "send"),
            Page("GET", "/agents/{slug}", self.show),
        ]

    async def list(self, visit: PageRequest) -> PageReply:
        asked = visit.query.get("q", "").strip()[:MAX_SEARCH]
        known = self._desk.agents(visit.principal)
        found = [agent for agent in known if self._fits(agent, asked)]
        problems = self._problems() if visit.principal.may("admin") else ()
        return visit.page(
            "agents.html",
            title="Agents",
            rows=[await self._row(visit, agent) for agent in found[:SHOWN]],
            found=len(found),
            known=len(known),
            asked=asked,
            problems=problems,
            sample=SAMPLE,
        )

    async def show(self, visit: PageRequest) -> PageReply:
        agent = self._desk.agent(visit.path["slug"], visit.principal)
        listing = Listing(self._desk.owner(visit.principal), agent.slug, limit=RECENT)
        recent = await newest(self._desk.exchange.store, listing)
        address = f"{self._desk.base_url}{path_of('agents', agent.slug)}"
        return visit.page(
            "agent.html",
            title=agent.name,
            crumbs=[("Agents", "/agents")],
            agent=agent,
            kind=self._kind(agent),
            place=self._place(visit, agent),
            problems=[one for one in self._problems() if agent.slug in one.serving]
            if visit.principal.may("admin")
            else [],
            figures=await latest_figures(self._desk.exchange.store, listing, MOST_READ),
            key=new_id(),
            address=address,
            standing=await self._standing(agent),
            runs=recent.runs,
            added=agent.slug in self._desk.newcomers.added,
            distant=isinstance(self._desk.exchange.driver(agent.slug), PairedWork),
        )

    async def ask(self, visit: PageRequest) -> PageReply:
        """Send a message. With the conversation of an earlier one, the agent remembers what was said in it."""
        agent, form = self._desk.agent(visit.path["slug"], visit.principal), await visit.upload()
        key, conversation = form.fields.get("key") or None, form.fields.get("conversation") or None
        sent = Send(agent.slug, visit.principal, message_in(form), conversation=conversation, key=key)
        outcome = await self._desk.exchange.send(sent)
        return redirect(run_path(outcome.run.id, *(["timeline"] if visit.wants_fragment else [])))

    def _fits(self, agent: Agent, asked: str) -> bool:
        """True if each word is in the agent's name, slug, driver, model, description or skills."""
        skills = " ".join(f"{one.name} {one.description} {' '.join(one.tags)}" for one in agent.skills)
        text = f"{agent.name} {agent.slug} {self._kind(agent)} {agent.model or ''} {agent.description} {skills}".lower()
        return all(word in text for word in asked.lower().split())

    def _kind(self, agent: Agent) -> str:
        driver = self._desk.exchange.driver(agent.slug)
        return kind_of(driver) if driver is not None else ""

    def _place(self, visit: PageRequest, agent: Agent) -> str:
        """Where the agent is defined. Only administrators see paths of the server."""
        if not visit.principal.may("admin"):
            return ""
        added = "added in the console" if agent.slug in self._desk.newcomers.added else "application code"
        definitions = self._desk.beside.definitions
        return definitions.places().get(agent.slug, added) if definitions else added

    def _problems(self) -> Sequence[DefinitionProblem]:
        definitions = self._desk.beside.definitions
        return definitions.problems() if definitions else []

    async def _row(self, visit: PageRequest, agent: Agent) -> AgentRow:
        listing = Listing(self._desk.owner(visit.principal), agent.slug)
        figures = await latest_figures(self._desk.exchange.store, listing, SAMPLE)
        standing = await self._standing(agent)
        return AgentRow(agent, standing, self._kind(agent), self._place(visit, agent), figures)

    async def _standing(self, agent: Agent) -> Standing:
        store = self._desk.exchange.store
        working = await store.runs_in(State.WORKING, agent=agent.slug, limit=MOST_COUNTED)
        queued = await store.runs_in(State.SUBMITTED, agent=agent.slug, limit=MOST_COUNTED)
        distant = isinstance(self._desk.exchange.driver(agent.slug), PairedWork)
        runtime = await self._desk.runtimes.word_for(agent.slug) if distant else ""
        return Standing(len(working), len([run for run in queued if run.ready]), runtime)


# Pairing an agent with another computer: the instruction for the assistant there, and the state of the runtime.


class PairingPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        at = "/agents/{slug}/pairing"
        return [
            Page("GET", at, self.show, "admin"),
            Page("POST", at, self.pair, "admin"),
            Page("GET", f"{at}/state", self.state, "admin"),
            Page("POST", f"{at}/revoke", self.revoke, "admin"),
        ]

    async def show(self, visit: PageRequest) -> PageReply:
        return await self._page(visit)

    async def pair(self, visit: PageRequest) -> PageReply:
        """Create a pairing code. The code is only in this response."""
        await visit.form()
        agent = edge_agent(self._desk.exchange, visit.path["slug"])
        code, words = await self._desk.newcomers.pairing.new_code(agent)
        return await self._page(visit, code, words)

    async def state(self, visit: PageRequest) -> PageReply:
        """The state of the runtime, for a page that waits until one attaches."""
        return visit.fragment("_runtime.html", **await self._state(visit))

    async def revoke(self, visit: PageRequest) -> PageReply:
        await visit.form()
        agent = edge_agent(self._desk.exchange, visit.path["slug"])
        await self._desk.newcomers.pairing.take_away(agent)
        return redirect(path_of("agents", agent.slug, "pairing"))

    async def _page(self, visit: PageRequest, code: Code | None = None, words: str = "") -> PageReply:
        agent = edge_agent(self._desk.exchange, visit.path["slug"])
        return visit.page(
            "pairing.html",
            title="Pair runtime",
            agent=agent,
            code=code,
            words=words,
            now=now_ms(),
            crumbs=[("Agents", "/agents"), (agent.name, path_of("agents", agent.slug))],
            **await self._state(visit),
        )

    async def _state(self, visit: PageRequest) -> dict[str, Any]:
        agent = edge_agent(self._desk.exchange, visit.path["slug"])
        runtimes = self._desk.runtimes
        runtime = await runtimes.of(agent.slug)
        seen = await runtimes.last_seen(runtime) if runtime else None
        return {"runtime": runtime, "seen": seen, "online": seen is not None and runtimes.online(seen)}


# Adding agents: by a card's URL, by a definition, or for a runtime on another computer; and removing them.

_NOT_IN_A_SLUG = re.compile(r"[^a-z0-9]+")
MAX_SLUG = 63


class AddingPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/agents/new", self.choose, "admin"),
            Page("POST", "/agents/new/card", self.by_card, "admin"),
            Page("POST", "/agents/new/definition", self.by_definition, "admin"),
            Page("POST", "/agents/new/pairing", self.for_pairing, "admin"),
            Page("POST", "/agents/{slug}/remove", self.remove, "admin"),
        ]

    async def choose(self, visit: PageRequest) -> PageReply:
        return self._form(visit, {})

    async def by_card(self, visit: PageRequest) -> PageReply:
        """Add a remote agent. The card is read first, so that a mistyped URL fails now and not with the first task."""
        form = await visit.form()
        url = form.get("url", "").strip()
        try:
            async with self._desk.newcomers.open_client() as http:
                report = await inspect(url, http=http)
            slug = form.get("slug", "").strip() or slug_of(str(report.card.get("name", "")))
            agent = await self._desk.newcomers.added.add(_written({"driver": "remote", "remote": {"url": url}}), slug)
        except ParleyError as error:
            return self._form(visit, form, "card", error)
        return redirect(path_of("agents", agent.slug))

    async def by_definition(self, visit: PageRequest) -> PageReply:
        form = await visit.form()
        try:
            agent = await self._desk.newcomers.added.add(form.get("definition", ""))
        except ParleyError as error:
            return self._form(visit, form, "definition", error)
        return redirect(path_of("agents", agent.slug))

    async def for_pairing(self, visit: PageRequest) -> PageReply:
        form = await visit.form()
        name = form.get("name", "").strip()
        try:
            if not name:
                raise Invalid("Give the agent a name.", field="name")
            slug = form.get("slug", "").strip() or slug_of(name)
            about = form.get("description", "").strip() or f"{name}, on another computer."
            written = _written({"name": name, "description": about, "driver": "edge"})
            agent = await self._desk.newcomers.added.add(written, slug)
        except ParleyError as error:
            return self._form(visit, form, "pairing", error)
        return redirect(path_of("agents", agent.slug, "pairing"))

    async def remove(self, visit: PageRequest) -> PageReply:
        await visit.form()
        await self._desk.newcomers.added.remove(visit.path["slug"])
        return redirect("/agents")

    def _form(self, visit: PageRequest, form: Form, where: str = "", error: ParleyError | None = None) -> PageReply:
        """Show the form; after an error, with the values typed and the error next to its section."""
        status = 200 if error is None else 400 if isinstance(error, NoCard) else status_of(error)[0]
        return visit.page(
            "adding.html",
            title="Add agent",
            crumbs=[("Agents", "/agents")],
            status=status,
            form=form,
            where=where,
            message=error.message if error else "",
            here=visit.here,
        )


def slug_of(name: str) -> str:
    """A slug for a name, with only the characters that a slug may have."""
    return _NOT_IN_A_SLUG.sub("-", name.lower())[:MAX_SLUG].strip("-") or "agent"


def _written(value: object) -> str:
    return yaml.safe_dump(value, allow_unicode=True)
