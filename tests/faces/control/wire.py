"""Requests to `/internal/v1` in which every detail can be spoiled."""

from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qsl, unquote

import httpx2
import msgspec

from parley.client.control import RuntimeClient
from parley.clock import now_ms
from parley.ids import new_id
from parley.security.signatures import TTL_S, Claims, sign

SECRET = "dev-runtime-signature-secret"
THREAD = "thread_abc"

Json = dict[str, Any]
Shown = list[tuple[int, Json]]


class Wire:
    """`answered` is what was answered to everything that was sent: method, path and status."""

    def __init__(self, url: str) -> None:
        self._http = httpx2.AsyncClient(
            base_url=f"{url}/internal/v1", timeout=20, event_hooks={"response": [self._note]}
        )
        self.answered: list[tuple[str, str, int]] = []

    async def __aenter__(self) -> "Wire":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def send(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: object = 42,
        guest: str | None = None,
        claims: Claims | None = None,
        token: str | None = None,
        headers: dict[str, str] | None = None,
        signed: bool = True,
    ) -> httpx2.Response:
        """Signed for just what it carries, unless told otherwise."""
        content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        sent: dict[str, str] = {}
        if user is not None:
            sent["x-oa-user-id"] = str(user)
        if guest is not None:
            sent["x-oa-guest-scope"] = guest
        if signed:
            sent["X-OA-RUNTIME-SIGNATURE"] = token or sign(SECRET, claims or claims_of(path, body, user, guest))
        return await self._http.request(method, path, content=content, headers={**sent, **(headers or {})})

    async def _note(self, reply: httpx2.Response) -> None:
        self.answered.append((reply.request.method, reply.request.url.path, reply.status_code))

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        return await self.send("GET", path, **options)

    async def post(self, path: str, body: object, **options: Any) -> httpx2.Response:
        return await self.send("POST", path, body, **options)

    async def new_run(self, run: str = "run_123", agent: str = "echo", **options: Any) -> str:
        body = {"run_id": run, "thread_id": THREAD, "agent": agent}
        assert (await self.post("/runs", body, **options)).status_code == 202
        return run

    async def frame(self, run: str, frame: Json, **options: Any) -> httpx2.Response:
        body = {"thread_id": THREAD, "type": "user_message", "payload": {"text": "hi"}, **frame}
        return await self.post(f"/runs/{run}/frames", body, **options)


def claims_of(path: str, body: object = None, user: object = 42, guest: str | None = None) -> Claims:
    """The claims that a request needs to pass."""
    steps, _, query = path.partition("?")
    fields: Json = body if isinstance(body, dict) else {}
    nested = fields.get("request")
    named: Json = {**(nested if isinstance(nested, dict) else {}), **fields}
    asked = dict(parse_qsl(query, keep_blank_values=True))
    in_path = steps.removeprefix("/runs/").rpartition("/")[0] if steps.startswith("/runs/") else ""
    run = unquote(in_path) or asked.get("run_id") or named.get("run_id")
    thread = asked.get("thread_id", named.get("thread_id"))
    return Claims(
        now_ms() // 1000, now_ms() // 1000 + TTL_S, f"nonce-{new_id()}",
        run if isinstance(run, str) else None, thread if isinstance(thread, str) else None,
        user if isinstance(user, int) else None, guest,
    )  # fmt: skip


def undeclared(document: Json, answered: list[tuple[str, str, int]]) -> list[str]:
    """Answers of operations of which the document does not know that they can be given."""
    found: list[str] = []
    for method, path, status in answered:
        described = document["paths"].get(template(path), {}).get(method.lower())
        if described is not None and str(status) not in described["responses"]:
            found.append(f"{method} {path}: {status}")
    return found


def template(path: str) -> str:
    """The path of an operation as the document has it."""
    base, runs, rest = path.partition("/runs/")
    return f"{base}/runs/{{run_id}}/{rest.rpartition('/')[2]}" if runs else path


def error_of(reply: httpx2.Response) -> tuple[int, str, str]:
    error = reply.json()["error"]
    return reply.status_code, error["code"], error["message"]


async def until_done(client: RuntimeClient, run: str, cursor: int = 0) -> Shown:
    async with aclosing(client.follow(run, THREAD, cursor)) as events:
        return [event async for event in events]


async def until(client: RuntimeClient, run: str, event_type: str, cursor: int = 0) -> Shown:
    """Events up to the first of a kind."""
    seen: Shown = []
    async with aclosing(client.follow(run, THREAD, cursor)) as events:
        async for event in events:
            seen.append(event)
            if kind(event[1]) == event_type:
                break
    return seen


def kind(data: Json) -> str:
    return str(data["eventType"] if data["type"] == "event" else data["type"])


def kinds(shown: Shown) -> list[str]:
    return [kind(data) for _, data in shown]
