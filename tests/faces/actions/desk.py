"""Requests of contract 002, and a check of every answer against the contract's own document."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import msgspec
from jsonschema import Draft202012Validator

PREFIX = "/api/agent2agent"
Json = dict[str, Any]
Headers = dict[str, str]


class Answer:
    """An answer of the endpoint."""

    def __init__(self, reply: httpx2.Response) -> None:
        self.reply = reply
        self.status = reply.status_code
        self.body: Json = reply.json()

    @property
    def task(self) -> str:
        return self.body["taskId"]

    @property
    def result(self) -> Any:
        assert "error" not in self.body, self.body
        return self.body["result"]

    @property
    def refusal(self) -> tuple[int, str]:
        assert self.body["status"] == "failed", self.body
        return self.status, self.body["error"]["code"]


class Desk:
    """One caller of one server."""

    def __init__(self, http: httpx2.AsyncClient, document: Json, who: Headers | None = None) -> None:
        self.http = http
        self.document = document
        self.who = who or {}
        self._schemas: dict[str, Draft202012Validator] = {}

    @staticmethod
    async def open(http: httpx2.AsyncClient, who: Headers | None = None) -> "Desk":
        return Desk(http, (await http.get(f"{PREFIX}/openapi.json", headers=who or {})).json(), who)

    def of(self, who: Headers) -> "Desk":
        """The same server, as somebody else sees it."""
        return Desk(self.http, self.document, who)

    async def begin(self, agent: str = "writer", id_: str | None = None) -> str:
        answer = await self.send("POST", "/conversations", {"agentSlug": agent, **({"id": id_} if id_ else {})})
        return answer.body["conversationId"]

    async def ask(
        self, conversation: str, mode: Any, action: Any, agent: Any = "writer", headers: Headers | None = None,
        **params: object,
    ) -> Answer:  # fmt: skip
        """`...` leaves a parameter out."""
        asked = {"mode": mode, "action": action, "agentSlug": agent, **params}
        body = {name: one for name, one in asked.items() if one is not ...}
        answer = await self.send("POST", f"/conversations/{conversation}/tasks", body, headers)
        if "error" not in answer.body and answer.body["status"] == "completed":
            self._check_result(mode, action, answer.result)
        return answer

    async def send(self, method: str, path: str, body: object = None, headers: Headers | None = None) -> Answer:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body) if body is not None else None
        sent = {"Content-Type": "application/json", **self.who, **(headers or {})}
        reply = await self.http.request(method, PREFIX + path, content=content, headers=sent)
        answer = Answer(reply)
        self.check("Envelope", answer.body)
        return answer

    async def task(self, id_: str) -> Answer:
        return await self.send("GET", f"/tasks/{id_}")

    async def events(self, id_: str, last: int | None = None) -> AsyncIterator[tuple[int, Json]]:
        """A task's events as they come; each is of the document's types."""
        headers = {**self.who, **({"Last-Event-ID": str(last)} if last is not None else {})}
        number = 0
        async with self.http.stream("GET", f"{PREFIX}/tasks/{id_}/stream", headers=headers) as reply:
            assert reply.status_code == 200, await reply.aread()
            async for line in reply.aiter_lines():
                if line.startswith("id: "):
                    number = int(line[4:])
                elif line.startswith("data: "):
                    event: Json = msgspec.json.decode(line[6:])
                    self.check("TaskStreamEvent", event)
                    yield number, event

    async def planned(self, mode: str = "plan", conversation: str | None = None) -> tuple[str, str, str]:
        """A conversation with a document of two versions: its id and theirs; the second is the current one."""
        conversation = conversation or await self.begin()
        first = await self.ask(conversation, mode, "create", message="Write about tides")
        assert first.status == 200, first.body
        second = await self.ask(conversation, mode, "edit", editedContent="# Tides\n\nThey come and go.")
        return conversation, first.task, second.task

    def check(self, schema: str, value: object) -> None:
        if schema not in self._schemas:
            whole = {"$ref": f"#/components/schemas/{schema}", "components": self._strict()}
            checker = Draft202012Validator.FORMAT_CHECKER
            self._schemas[schema] = Draft202012Validator(whole, format_checker=checker)
        problems = [error.message for error in self._schemas[schema].iter_errors(value)]
        assert problems == [], (schema, value)

    def _strict(self) -> Json:
        """The document's components; metadata has no other members than those it lists, unless it says so."""
        schemas: Json = self.document["components"]["schemas"]
        closed = [name for name in schemas if name.endswith("Metadata") and "additionalProperties" not in schemas[name]]
        return {"schemas": {**schemas, **{name: {**schemas[name], "additionalProperties": False} for name in closed}}}

    def _check_result(self, mode: str, action: str, result: object) -> None:
        row = next(row for row in self.document["x-actions"] if (row["mode"], row["action"]) == (mode, action))
        if result is not None or not row["nullable"]:
            self.check(row["result"], result)
