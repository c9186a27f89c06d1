"""Adding agents: by the address of a card, by a definition, or for a computer elsewhere; and removing them again."""

import re

import yaml

from parley.cards import NoCard, inspect
from parley.console.desk import Desk
from parley.console.pages.page import Page
from parley.console.replies import Reply, path_of, redirect
from parley.console.visits import Form, Visit
from parley.errors import Invalid, ParleyError
from parley.faces.refusals import status_of

_NOT_IN_A_SLUG = re.compile(r"[^a-z0-9]+")
MAX_SLUG = 63


class AddingPages:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/agents/new", self.choose, "admin"),
            Page("POST", "/agents/new/card", self.by_card, "admin"),
            Page("POST", "/agents/new/definition", self.by_definition, "admin"),
            Page("POST", "/agents/new/pairing", self.for_pairing, "admin"),
            Page("POST", "/agents/{slug}/remove", self.remove, "admin"),
        ]

    async def choose(self, visit: Visit) -> Reply:
        return self._form(visit, {})

    async def by_card(self, visit: Visit) -> Reply:
        """The card is read first: whoever mistyped an address learns it now and not with the first task."""
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

    async def by_definition(self, visit: Visit) -> Reply:
        form = await visit.form()
        try:
            agent = await self._desk.newcomers.added.add(form.get("definition", ""))
        except ParleyError as error:
            return self._form(visit, form, "definition", error)
        return redirect(path_of("agents", agent.slug))

    async def for_pairing(self, visit: Visit) -> Reply:
        form = await visit.form()
        name = form.get("name", "").strip()
        try:
            if not name:
                raise Invalid("Give the agent a name.", field="name")
            slug = form.get("slug", "").strip() or slug_of(name)
            about = form.get("description", "").strip() or f"{name}, on a computer elsewhere."
            written = _written({"name": name, "description": about, "driver": "edge"})
            agent = await self._desk.newcomers.added.add(written, slug)
        except ParleyError as error:
            return self._form(visit, form, "pairing", error)
        return redirect(path_of("agents", agent.slug, "pairing"))

    async def remove(self, visit: Visit) -> Reply:
        await visit.form()
        await self._desk.newcomers.added.remove(visit.path["slug"])
        return redirect("/agents")

    def _form(self, visit: Visit, form: Form, where: str = "", error: ParleyError | None = None) -> Reply:
        """The page again with what was typed, and what is wrong beside it."""
        status = 200 if error is None else 400 if isinstance(error, NoCard) else status_of(error)[0]
        return visit.page(
            "adding.html", title="Add an agent", crumbs=[("Agents", "/agents")], status=status, form=form,
            where=where, message=error.message if error else "", here=visit.here,
        )  # fmt: skip


def slug_of(name: str) -> str:
    """An address for a name, in the letters that an address may have."""
    return _NOT_IN_A_SLUG.sub("-", name.lower())[:MAX_SLUG].strip("-") or "agent"


def _written(value: object) -> str:
    return yaml.safe_dump(value, allow_unicode=True)
