"""Tasks of MCP: calls whose result is fetched later. A task is a run, so it survives sessions, restarts and replicas.

Revision 2025-11-25 has tasks in its core; since 2026-07-28 they are the extension `io.modelcontextprotocol/tasks`. The
question of an agent is an elicitation, whose id says which question of which run is answered."""

from typing import Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from parley.clock import iso
from parley.errors import Invalid, InvalidState, NotCancelable, RunNotFound
from parley.faces.mcp.calls import Following
from parley.faces.mcp.contents import Block, result_of
from parley.http.requests import page_cursor, page_token
from parley.ids import is_id
from parley.json_values import Fields, fields_of
from parley.runs.requests import Send
from parley.runs.rules.access import Principal, demand
from parley.runs.rules.answers import Expected, answer_form, schema_in
from parley.runs.rules.content import Message, Part, Parts, text_of, text_part
from parley.runs.rules.state import WAITING, Run, State
from parley.runs.rules.view import View
from parley.runs.service import Exchange
from parley.runs.store import Listing

EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
TASKS: Block = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
POLL_MS = 1000
PAGE = 50
_ANSWER = "answer"
"""Member of the content of an elicitation, for a question whose answer is not an object."""

_STATUSES = {
    State.INPUT_REQUIRED: "input_required",
    State.AUTH_REQUIRED: "input_required",
    State.COMPLETED: "completed",
    State.FAILED: "failed",
    State.REJECTED: "failed",
    State.CANCELED: "cancelled",
}


class McpTaskParams(Struct, frozen=True, rename="camel"):
    task_id: str


class McpListParams(Struct, frozen=True):
    cursor: str = ""


class Elicited(Struct, frozen=True):
    """The answer of a client to an elicitation."""

    action: Literal["accept", "decline", "cancel"]
    content: Raw | UnsetType = UNSET


class UpdateParams(Struct, frozen=True, rename="camel"):
    task_id: str
    input_responses: dict[str, Elicited]


class RpcResponse(Struct, frozen=True):
    """A client's response to a request of this server."""

    id: str | int
    result: Elicited | UnsetType = UNSET
    error: Raw | UnsetType = UNSET


def response_in(body: bytes) -> RpcResponse | None:
    """Return the response to an elicitation that a body is; None if it is anything else."""
    try:
        response = msgspec.json.decode(body, type=RpcResponse)
    except (msgspec.MsgspecError, RecursionError):
        return None
    return response if (response.result is UNSET) != (response.error is UNSET) else None


def status_of(run: Run) -> str:
    return _STATUSES.get(run.state, "working")


def shown_task(run: Run, *, modern: bool) -> Block:
    """Return a run as a task. It is kept as long as the server keeps runs, which has no limit from the beginning."""
    unit = "Ms" if modern else ""
    return {
        "taskId": run.id,
        "status": _modern_status(run) if modern else status_of(run),
        "createdAt": iso(run.created_at),
        "lastUpdatedAt": iso(run.updated_at),
        f"ttl{unit}": None,
        f"pollInterval{unit}": POLL_MS,
    }


def _modern_status(run: Run) -> str:
    """Return the status since 2026-07-28, where a call that fails is complete: its result says that it failed."""
    return "completed" if run.state in (State.FAILED, State.REJECTED) else status_of(run)


def related(run: Run) -> Block:
    return {RELATED: {"taskId": run.id}}


def question_id(run: Run) -> str:
    """Return the id of the elicitation of a waiting run. An id of a run contains no `#`."""
    return f"{run.id}#{run.version}"


class McpTasks:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def visible(self, principal: Principal, task: str) -> Run:
        try:
            return await self._exchange.visible(task, principal)
        except RunNotFound:
            raise Invalid("Task not found.", field="taskId") from None

    async def get(self, principal: Principal, task: str, *, modern: bool) -> Block:
        demand(principal, "read")
        run = await self.visible(principal, task)
        return await self.detailed(run) if modern else shown_task(run, modern=False)

    async def detailed(self, run: Run) -> Block:
        """Return a task with its question or its result, as it is polled since 2026-07-28."""
        shown = shown_task(run, modern=True)
        if not run.settled:
            return shown
        view = await self._exchange.view(run.id)
        if view.run.state in WAITING:
            request = {"method": "elicitation/create", "params": await self.elicitation(view)}
            return shown | {"inputRequests": {question_id(view.run): request}}
        result = await result_of(self._exchange, view, None)
        return shown if view.run.state is State.CANCELED else shown | {"result": result | {"resultType": "complete"}}

    async def list(self, principal: Principal, cursor: str) -> Block:
        demand(principal, "read")
        listing = Listing(str(principal), after=page_cursor(cursor), limit=PAGE, counted=False)
        runs, _ = await self._exchange.store.list_runs(listing)
        shown: Block = {
            "tasks": [shown_task(run, modern=False) for run in runs if self._exchange.permits(run, principal)]
        }
        token = page_token(runs, PAGE)
        return shown | {"nextCursor": token} if token else shown

    async def cancel(self, principal: Principal, task: str) -> Run:
        demand(principal, "send")
        run = await self.visible(principal, task)
        try:
            return (await self._exchange.cancel(run.id, principal)).run
        except NotCancelable:
            raise Invalid(f"The task is {status_of(run)} and cannot be cancelled.", field="taskId") from None

    async def follow(self, principal: Principal, task: str) -> Following:
        """Follow a task for its result."""
        demand(principal, "read")
        view = await self._exchange.view((await self.visible(principal, task)).id)
        return Following(view, await self._exchange.follow(view.run.id, view.run.version))

    async def elicitation(self, view: View) -> Block:
        """Return the question of a waiting run as the params of an elicitation."""
        said = view.status.said
        text = text_of(await self._exchange.attachments.loaded(said.parts)) if said is not None else ""
        schema = _requested(await self._exchange.expected_answer(view.run))
        about = {"message": text or "The agent waits for an answer.", "requestedSchema": schema}
        return {"mode": "form", **about, "_meta": related(view.run)}

    async def answer(self, principal: Principal, id_: str, given: Elicited) -> None:
        """Pass the answer to the run that asked. A declined question cancels the run; a dismissed one stays open."""
        demand(principal, "send")
        run = await self._asked(principal, id_)
        if given.action == "decline":
            await self._exchange.cancel(run.id, principal, reason="The user declined to answer.")
        elif given.action == "accept":
            parts = _parts(await self._exchange.expected_answer(run), given.content)
            send = Send(run.agent, principal, Message(id_, parts), run.id, None, f"mcp:{id_}")
            await self._exchange.send(send)

    async def update(self, principal: Principal, update: UpdateParams) -> None:
        """Take the answers to the questions of a task."""
        demand(principal, "send")
        for id_, given in update.input_responses.items():
            if id_.partition("#")[0] != update.task_id:
                raise Invalid("This is not the id of a question of this task.", field="inputResponses")
            await self.answer(principal, id_, given)

    async def _asked(self, principal: Principal, id_: str) -> Run:
        task, _, seq = id_.partition("#")
        if not is_id(task) or not (seq.isascii() and seq.isdigit()):
            raise Invalid("This is not the id of a question of this server.", field="id")
        run = await self.visible(principal, task)
        if run.state not in WAITING or str(run.version) != seq:
            raise InvalidState("This question was answered already.", state=run.state.value)
        return run


def _requested(wanted: Expected | None) -> Fields:
    """Return the schema of the form: an object with simple members, as an elicitation requires."""
    if wanted is not None and answer_form(wanted).fields:
        return _plain(fields_of(schema_in(wanted)))
    answer: Fields = {"type": "string", "title": "Answer"}
    if wanted is not None and wanted.choices:
        answer["enum"] = list(wanted.choices)
    elif wanted is not None and wanted.schema is not UNSET:
        answer["description"] = f"JSON that matches this schema: {bytes(wanted.schema).decode()}"
    return {"type": "object", "properties": {_ANSWER: answer}, "required": [_ANSWER]}


def _plain(schema: Fields) -> Fields:
    """Return the members of a form without keywords that clients do not expect."""
    return {name: schema[name] for name in ("type", "properties", "required") if name in schema}


def _parts(wanted: Expected | None, content: Raw | UnsetType) -> Parts:
    if content is UNSET:
        raise Invalid("An accepted question needs content.", field="content")
    if wanted is not None and answer_form(wanted).fields:
        return (Part(data=content),)
    answer = fields_of(msgspec.json.decode(content)).get(_ANSWER)
    if not isinstance(answer, str):
        raise Invalid(f"The content of an answer must have the text `{_ANSWER}`.", field=f"content.{_ANSWER}")
    return (text_part(answer),)
