"""`parley-edge` for computers that do an agent's work: the wheel, and an index that pip reads (PEP 503, PEP 691)."""

from html import escape

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from parley.errors import NotFound, ParleyError, RuntimePackageMissing
from parley.faces.edge.serving import refuse
from parley.faces.edge.wheel import NAME, Wheel
from parley.faces.http import Endpoint, Headers, answer, header

AT = "/agent-runtimes/packages"
INDEX = f"{AT}/simple/"
_JSON = "application/vnd.pypi.simple.v1+json"
_FRESH: Headers = [(b"cache-control", b"public, max-age=300"), (b"vary", b"accept")]


class Packages:
    """Open to everyone, as pip has no credentials: the package is public, and says nothing about this server."""

    def __init__(self, wheel: Wheel | None, base_url: str) -> None:
        self._wheel = wheel
        self._base_url = base_url

    @property
    def address(self) -> str | None:
        """Where the wheel is to be had, with its hash; None if there is none here."""
        wheel = self._wheel
        return None if wheel is None else f"{self._base_url}{AT}/{wheel.filename}#sha256={wheel.sha256}"

    @property
    def install(self) -> str:
        """The command that installs the runtime."""
        return f"pip install {NAME}" if self.address is None else f'pip install "{self.address}"'

    def routes(self) -> list[Route]:
        return [
            Route(INDEX, Endpoint(self._projects), methods=["GET"]),
            Route(f"{INDEX}{NAME}/", Endpoint(self._files), methods=["GET"]),
            Route(f"{AT}/{{filename}}", Endpoint(self._download), methods=["GET"]),
        ]

    async def _projects(self, scope: Scope, receive: Receive, send: Send) -> None:
        named = [NAME] if self._wheel else []
        links = "".join(f'<a href="{name}/">{name}</a>\n' for name in named)
        await _index(scope, send, {"projects": [{"name": name} for name in named]}, links)

    async def _files(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._wheel is None:
            return await refuse(send, _missing())
        wheel, url = self._wheel, f"../../{self._wheel.filename}"
        file = {
            "filename": wheel.filename, "url": url, "hashes": {"sha256": wheel.sha256},
            "requires-python": wheel.requires_python, "size": len(wheel.content),
        }  # fmt: skip
        link = (
            f'<a href="{url}#sha256={wheel.sha256}" data-requires-python="{escape(wheel.requires_python)}">'
            f"{wheel.filename}</a>\n"
        )
        return await _index(scope, send, {"name": NAME, "versions": [wheel.version], "files": [file]}, link)

    async def _download(self, scope: Scope, receive: Receive, send: Send) -> None:
        wheel, asked = self._wheel, scope["path_params"]["filename"]
        if wheel is None:
            return await refuse(send, _missing())
        if asked != wheel.filename:
            return await refuse(send, NotFound(f"There is no {asked!r} here; there is {wheel.filename}."))
        return await answer(send, 200, wheel.content, _FRESH, b"application/octet-stream")


def _missing() -> ParleyError:
    return RuntimePackageMissing(
        f"{NAME} is not installed beside this server, so it cannot be had from here. "
        f"Install it from the package index, or ask the operator to install it beside the server."
    )


async def _index(scope: Scope, send: Send, shown: dict[str, object], links: str) -> None:
    """As JSON for those who prefer it, else as HTML."""
    if _JSON in (header(scope, b"accept") or ""):
        said = {"meta": {"api-version": "1.1"}, **shown}
        await answer(send, 200, said, _FRESH, _JSON.encode())
    else:
        page = f"<!DOCTYPE html>\n<html><head><title>{NAME}</title></head><body>\n{links}</body></html>\n"
        await answer(send, 200, page.encode(), _FRESH, b"text/html; charset=utf-8")
