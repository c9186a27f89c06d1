"""Pages that show the OpenAPI documents: `/console/docs`; `/docs` redirects there."""

from functools import partial
from typing import Any

import msgspec
from starlette.responses import RedirectResponse
from starlette.routing import Route

from parley.console.request import ApiDocument, ConsoleContext, Page, PageRequest
from parley.console.responses import PREFIX, PageReply
from parley.errors import Unauthenticated

_METHODS = ("get", "post", "put", "patch", "delete")


class ApiPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        shown = [Page("GET", f"/docs/{one.name}", partial(self.show, one), None) for one in self._desk.beside.api]
        return [Page("GET", "/docs", self.list, None), *shown]

    async def list(self, visit: PageRequest) -> PageReply:
        return visit.page("api.html", title="API", documents=self._desk.beside.api)

    async def show(self, document: ApiDocument, visit: PageRequest) -> PageReply:
        """Show one document, with the same access rule as the document itself."""
        if not document.public and not visit.known:
            raise Unauthenticated("Sign in first.")
        return visit.page(
            "api_document.html",
            title=document.title,
            crumbs=[("API", "/docs")],
            served=document.path,
            **_read(document),
        )


def redirects() -> list[Route]:
    """Redirect from `/docs`, the usual address. The pages are below `/console` because the session cookie is."""

    async def moved(request: object) -> RedirectResponse:
        return RedirectResponse(f"{PREFIX}/docs")

    return [Route("/docs", moved, methods=["GET"])]


def _read(document: ApiDocument) -> dict[str, Any]:
    read = msgspec.json.decode(document.make())
    operations = [
        {"method": method.upper(), "path": path, **methods[method]}
        for path, methods in read["paths"].items()
        for method in _METHODS
        if method in methods
    ]
    return {
        "about": read["info"].get("description", ""),
        "edition": read["info"]["version"],
        "operations": operations,
        "actions": read.get("x-actions", ()),
        "schemas": sorted(read["components"]["schemas"].items()),
        "schemes": read["components"].get("securitySchemes", {}),
    }
