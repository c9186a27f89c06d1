"""Large artifacts by an address of their own, `{agent}/tasks/{id}/artifacts/{sha256}`, for whoever may see the task."""

from urllib.parse import quote

from starlette.types import Receive, Scope, Send

from parley.core.artifacts import Part
from parley.errors import ParleyError
from parley.faces.a2a.operations import Operations
from parley.faces.a2a.serving import call_of
from parley.faces.http import Headers, answer
from parley.faces.refusals import refuse

FOLDER = "artifacts"
_MEDIA = "application/octet-stream"


def wanted(rest: str) -> tuple[str, str] | None:
    """The task and the digest that a path behind an agent's address names."""
    match rest.split("/"):
        case ["tasks", task, folder, digest] if folder == FOLDER:
            return task, digest
        case _:
            return None


class Downloads:
    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`path_params`: the agent's `slug`, and the `rest` of the path behind its address."""
        place = scope["path_params"]
        task, digest = wanted(place["rest"]) or ("", "")
        try:
            part = await self._operations.download(call_of(scope, place["slug"]), task, digest)
        except ParleyError as error:
            return await refuse(send, error)
        media = part.media_type or _MEDIA
        return await answer(send, 200, part.raw or b"", _headers(part), media.encode("latin-1", "replace"))


def _headers(part: Part) -> Headers:
    """What an agent made is nothing that a browser should run in our name."""
    name = quote(part.filename or "artifact", safe="")
    return [
        (b"content-disposition", f"attachment; filename*=UTF-8''{name}".encode()),
        (b"content-security-policy", b"sandbox"),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"private, max-age=31536000, immutable"),
    ]
