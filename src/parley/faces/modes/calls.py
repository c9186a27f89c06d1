"""One action after the other: understood, allowed, done, and told; whatever comes of it leaves a record."""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import UNSET, Struct
from msgspec.structs import replace
from starlette.types import Receive, Scope

from parley.clock import Clock, iso, now_ms
from parley.core.access import Principal, demand
from parley.core.actions import STATUSES, Action
from parley.core.agents import SLUG
from parley.core.documents import Operation
from parley.core.events import Completed
from parley.engine.commands import Outcome
from parley.engine.conversations import Conversations
from parley.engine.documents import Documents
from parley.engine.exchange import Exchange
from parley.engine.ledger import Ledger
from parley.errors import ConversationNotFound, ParleyError, RateLimited, Stopping
from parley.faces.http import ClientGone, Headers, read_json
from parley.faces.identity import demanded
from parley.faces.modes.able import unable
from parley.faces.modes.faults import Refusal, headers_of, refusal_of
from parley.faces.modes.reading import Call, action_of, key_of, params_of, wants_async
from parley.faces.modes.rows import Offer, Read, Row
from parley.faces.modes.tasks import Tasks
from parley.faces.modes.words import PREFIX, About, Envelope, envelope_of
from parley.ids import is_id, new_id


class Reply(NamedTuple):
    status: int
    envelope: Envelope
    headers: Headers | None = None


class _Asked(Struct):
    """How far a request has been understood: what is noted of it."""

    principal: Principal
    conversation: str
    started_at: int
    agent: str = ""
    mode: str = ""
    action: str = ""


class Calls:
    def __init__(
        self,
        exchange: Exchange,
        documents: Documents,
        conversations: Conversations,
        ledger: Ledger,
        tasks: Tasks,
        offers: Mapping[Row, Offer],
        max_body: int,
        clock: Clock = now_ms,
    ) -> None:
        self._exchange = exchange
        self._documents = documents
        self._conversations = conversations
        self._ledger = ledger
        self._tasks = tasks
        self._offers = offers
        self._max_body = max_body
        self._clock = clock

    async def answer(self, scope: Scope, receive: Receive, conversation: str) -> Reply:
        """The contract's one endpoint."""
        known = conversation if is_id(conversation) else ""
        asked = _Asked(demanded(scope), known, self._clock())
        try:
            call = self._understood(scope, await read_json(receive, self._max_body), asked)
            made = await self._made(call)
            if isinstance(made, Outcome):
                return await self._of_run(made, asked, later=wants_async(scope))
            return Reply(200, await self._of_read(made, call, asked))
        except (ClientGone, RateLimited, Stopping):
            # Who asks for too much is not kept in the books either.
            raise
        except Exception as error:  # noqa: BLE001 - the contract has an envelope for this too
            return self._refused(error, asked)

    def unable(self, principal: Principal, slug: str, action: Action | None = None) -> ParleyError | None:
        """Why an agent cannot be asked for an action, if it cannot."""
        return unable(self._exchange.agents, principal, slug, action)

    def _understood(self, scope: Scope, body: bytes, asked: _Asked) -> Call:
        action = action_of(scope, body, self._offered)
        asked.mode, asked.action = action.mode, action.name
        demand(asked.principal, "send" if action.changes else "read")
        params = params_of(action, body)
        if SLUG.fullmatch(params.agent_slug):
            asked.agent = params.agent_slug
        return Call(asked.principal, asked.conversation, action, params, key_of(scope))

    def _offered(self, action: Action) -> bool:
        return (action.mode, action.name) in self._offers

    async def _made(self, call: Call) -> Read | Outcome:
        """The conversation is looked for first, then the agent is, then what it is asked about. All that a good request
        costs is its own work: the engine refuses by itself what is about a conversation that is not there."""
        unable = self.unable(call.principal, call.params.agent_slug, call.action)
        needed = unable is not None and not call.action.begins
        if not call.conversation or (needed and not await self._exists(call)):
            raise ConversationNotFound("There is no such conversation.", conversation=call.conversation)
        if unable is not None:
            raise unable
        do = self._offers[call.action.mode, call.action.name].do
        try:
            return await do(call)
        except ConversationNotFound:
            if not await self._begun(call):
                raise
            return await do(call)

    async def _begun(self, call: Call) -> bool:
        """One that its owner knows from another face is begun when it is first used here; any by what begins one."""
        if not call.action.begins:
            return await self._exists(call)
        await self._conversations.begin(call.principal, call.params.agent_slug, call.conversation)
        return True

    async def _exists(self, call: Call) -> bool:
        return await self._conversations.exists(call.principal, call.conversation) is not None

    async def _of_read(self, made: Read, call: Call, asked: _Asked) -> Envelope:
        """Under a key a read is a run that is complete at once, so that a repetition is the same task."""
        if call.key is None:
            return self._noted(asked, result=made.result)
        run = (await self._documents.record(call.asking, {})).run
        return envelope_of(run, result=made.result, metadata=About(self._clock() - asked.started_at))

    async def _of_run(self, outcome: Outcome, asked: _Asked, *, later: bool) -> Reply:
        run, events = outcome.run, outcome.events
        if events and isinstance(ending := events[-1].payload, Completed):
            result = await self._tasks.told(run, ending.parts)
            about = About(self._clock() - asked.started_at)
            return Reply(200, envelope_of(run, result=result, metadata=about))
        if later and not run.settled:
            begun = envelope_of(run)
            envelope = begun if outcome.replayed else replace(begun, status="pending")
            return Reply(202, envelope, _later(run.id))
        envelope = await self._tasks.envelope(await self._exchange.settled(outcome))
        return Reply(200 if envelope.error is UNSET else STATUSES[envelope.error.code], envelope)

    def _refused(self, error: Exception, asked: _Asked) -> Reply:
        refusal = refusal_of(error)
        return Reply(refusal.status, self._noted(asked, refusal), headers_of(error))

    def _noted(self, asked: _Asked, refusal: Refusal | None = None, **members: object) -> Envelope:
        fault = refusal.fault if refusal is not None else None
        operation = Operation(
            new_id(), str(asked.principal), asked.conversation, asked.agent, asked.mode, asked.action,
            fault.code if fault else "", fault.message if fault else "", asked.started_at, self._clock(),
        )  # fmt: skip
        self._ledger.note(operation)
        return Envelope(
            operation.id, asked.conversation, "failed" if fault else "completed", iso(asked.started_at),
            error=fault or UNSET, completed_at=iso(operation.completed_at),
            metadata=About(operation.completed_at - asked.started_at), **members,
        )  # fmt: skip


def _later(run: str) -> Headers:
    return [(b"preference-applied", b"respond-async"), (b"location", f"{PREFIX}/tasks/{run}".encode())]
