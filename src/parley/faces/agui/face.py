"""Routes of AG-UI at an agent's address: start a run or answer its question, follow it, and resume."""

from parley.errors import Conflict, InvalidState, NotCancelable, RunNotFound
from parley.faces.agui.messages import (
    NamedQuestion,
    RunAgentInput,
    answered_in,
    check_ids,
    latest,
    message_of,
    tool_result,
)
from parley.faces.agui.streams import AguiStreams, Cursor
from parley.http.face import Face, Request, Streamed, operation
from parley.http.openapi import EventStream, Parameter
from parley.runs.requests import Send
from parley.runs.rules.access import Principal
from parley.runs.rules.state import WAITING, Run, State
from parley.runs.service import Exchange
from parley.runs.store import Listing

AGUI = "/agents/{slug}/agui"
_KEY = "agui:"
"""Prefix of the idempotency key of an answer, before the id of the run of AG-UI that gave it."""
_LAST_EVENT = Parameter(
    "Last-Event-ID", "header", {"type": "string"}, "Id of the last event received, to resume after it."
)


class AguiFace(Face[Principal]):
    def __init__(self, exchange: Exchange, max_body: int) -> None:
        self._exchange = exchange
        self._streams = AguiStreams(exchange)
        self.max_body = max_body

    @operation(
        "POST",
        AGUI,
        permission="send",
        body=RunAgentInput,
        name="runAgent",
        summary="Start a run or answer its question, and stream its events; with Last-Event-ID, resume the stream.",
        answers={200: EventStream(dict)},
        refusals=(404, 409),
        parameters=(_LAST_EVENT,),
    )
    async def run(self, request: Request[Principal], given: RunAgentInput) -> Streamed:
        check_ids(given)
        cursor, slug = Cursor.parse(request.header(b"last-event-id")), request.path["slug"]
        self._exchange.usable(slug, request.caller)
        known = await self._known(request.caller, slug, given)
        if known is None and cursor is not None:
            raise RunNotFound("Task not found.")
        run = known or await self._begun(request.caller, slug, given)
        return await self._streams.open(run, cursor or await self._streams.beginning(run, given.run_id))

    @operation(
        "GET",
        f"{AGUI}/{{run:id}}",
        permission="read",
        name="followRun",
        summary="Stream the events of a run from its beginning, or after Last-Event-ID.",
        answers={200: EventStream(dict)},
        refusals=(404, 410),
        parameters=(_LAST_EVENT,),
    )
    async def follow(self, request: Request[Principal]) -> Streamed:
        cursor = Cursor.parse(request.header(b"last-event-id"))
        run = await self._exchange.visible(request.path["run"], request.caller, request.path["slug"])
        return await self._streams.open(run, cursor or Cursor(), snapshot=True)

    # Commands. A run of AG-UI is known again by its id: that of a run, or of the message that answered a question.

    async def _known(self, caller: Principal, slug: str, given: RunAgentInput) -> Run | None:
        """Return the run of an input that was accepted before."""
        run = await self._exchange.commands.stored(given.run_id)
        if run is not None:
            if run.agent != slug or run.conversation != given.thread_id or not self._exchange.permits(run, caller):
                raise Conflict("There is another run with this id: choose a new runId.", field="runId")
            return run
        named = _named(given)
        if named is not None:
            run = await self._exchange.visible(named.run, caller, slug)
            return run if await self._streams.input_of(run, given.run_id) else None
        stored = await self._exchange.store.find_key(f"{caller}>{slug}", _KEY + given.run_id)
        return None if stored is None else await self._exchange.visible(stored.run, caller, slug)

    async def _begun(self, caller: Principal, slug: str, given: RunAgentInput) -> Run:
        """Start a run, or answer the question that the input is the answer to."""
        asked = await self._question(caller, slug, given)
        if asked is not None and _declines(given):
            return await self._canceled(caller, asked)
        message = message_of(given)
        if asked is None:
            send = Send(slug, caller, message, conversation=given.thread_id, id=given.run_id)
        else:
            send = Send(slug, caller, message, asked.id, given.thread_id, _KEY + given.run_id)
        return (await self._exchange.send(send)).run

    async def _question(self, caller: Principal, slug: str, given: RunAgentInput) -> Run | None:
        """Return the run that the input answers: the one that it names, or else the last one of the thread if that
        waits, because a front end without interrupts answers with a message."""
        named = _named(given)
        if named is None:
            return await self._waiting(caller, slug, given.thread_id)
        run = await self._exchange.visible(named.run, caller, slug)
        if not (run.ended and _declines(given)) and (run.state not in WAITING or run.version != named.seq):
            raise InvalidState("This question was answered already.", state=run.state.value)
        return run

    async def _waiting(self, caller: Principal, slug: str, thread: str) -> Run | None:
        listing = Listing(str(caller), slug, thread, limit=1, newest=True, counted=False)
        runs, _ = await self._exchange.store.list_runs(listing)
        return next((run for run in runs if run.state is State.INPUT_REQUIRED and not run.open), None)

    async def _canceled(self, caller: Principal, run: Run) -> Run:
        try:
            return (await self._exchange.cancel(run.id, caller, reason="The question was not answered.")).run
        except NotCancelable:
            return await self._exchange.commands.state(run.id)


def _named(given: RunAgentInput) -> NamedQuestion | None:
    """Return the question that an input names: by an interrupt, or by the call of a front-end tool."""
    if given.resume:
        return answered_in(given.resume[0].interrupt_id, "resume[0].interruptId")
    result = tool_result(latest(given))
    return answered_in(result.tool_call_id or "", "messages.toolCallId") if result else None


def _declines(given: RunAgentInput) -> bool:
    return bool(given.resume) and given.resume[0].status == "cancelled"
