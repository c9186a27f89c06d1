"""The actions of the mode orchestrate, handed to the engine's orchestrations."""

import hashlib
import uuid

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parley.clock import Clock, iso, now_ms
from parley.core.access import Principal, Reach
from parley.core.artifacts import text_part
from parley.core.conversations import Message
from parley.core.orchestrations import Orchestration
from parley.core.params import (
    CreateOrchestration,
    ListOrchestrations,
    OneOrchestration,
    OrchestrationConfig,
    RetryStep,
)
from parley.core.plans import Rules
from parley.core.results import (
    OrchestrationCancelled,
    OrchestrationDeleted,
    OrchestrationPaused,
    OrchestrationRead,
    OrchestrationResumed,
    Orchestrations,
    RetryStarted,
    StepRetried,
)
from parley.core.runs import Run
from parley.engine.commands import Outcome
from parley.engine.conversations import Conversations
from parley.engine.documents import Documents
from parley.engine.exchange import Exchange
from parley.engine.orchestrations import Creation
from parley.engine.orchestrations import Orchestrations as Engine
from parley.errors import ConversationNotFound, OrchestrationNotFound, PlanningFailed
from parley.faces.modes.orchestrated import begun, shown, summary
from parley.faces.modes.reading import Call
from parley.faces.modes.rows import Offer, Read, Row, Teller, of
from parley.ids import is_id, new_id

DEFAULT_LIST = 50


class _Created(Struct, frozen=True):
    orchestration: str


class OrchestrationCalls:
    """What is asked is done and recorded as a task of its own; the orchestration goes on under its own id."""

    def __init__(
        self, exchange: Exchange, documents: Documents, conversations: Conversations, clock: Clock = now_ms
    ) -> None:
        self._exchange = exchange
        self._engine = Engine(exchange)
        self._documents = documents
        self._conversations = conversations
        self._clock = clock

    def offers(self) -> dict[Row, Offer]:
        return {
            ("orchestrate", "create"): Offer(self.create, self.created),
            ("orchestrate", "read"): Offer(self.read),
            ("orchestrate", "list"): Offer(self.list),
            ("orchestrate", "pause"): Offer(self.pause, _telling(OrchestrationPaused)),
            ("orchestrate", "resume"): Offer(self.resume, _telling(OrchestrationResumed)),
            ("orchestrate", "cancel"): Offer(self.cancel, _telling(OrchestrationCancelled)),
            ("orchestrate", "retry_step"): Offer(self.retry_step, _telling(RetryStarted)),
            ("orchestrate", "delete"): Offer(self.delete, _telling(OrchestrationDeleted)),
        }

    async def create(self, call: Call) -> Outcome:
        await self._check(call)
        if before := await self._documents.before(call.asking):
            return before
        params = of(call, CreateOrchestration)
        rules = _rules(params.config, self._exchange.agents.rules(params.agent_slug) or Rules())
        key, id_ = _once(call)
        message = Message(id_, (text_part(params.message),))
        state = await self._engine.create(
            Creation(params.agent_slug, call.principal, message, call.conversation, rules, key)
        )
        if not state.steps:
            raise PlanningFailed(state.reason or "There is no plan.", orchestration=state.id, reason=state.code)
        return await self._documents.record(call.asking, {"orchestration": state.id})

    async def created(self, run: Run, said: bytes) -> OrchestrationRead | None:
        """As it is by now; nothing if it was deleted since. Who reads this may read the run, whose record names it."""
        id_ = msgspec.json.decode(said, type=_Created).orchestration
        try:
            state = await self._engine.read(id_, Principal.parse(run.principal, Reach(admin=True)))
        except OrchestrationNotFound:
            return None
        return OrchestrationRead(begun(state, self._clock()))

    async def read(self, call: Call) -> Read:
        state = await self._chosen(call)
        return Read(OrchestrationRead(await shown(self._exchange, state, self._clock())))

    async def list(self, call: Call) -> Read:
        await self._check(call)
        params = of(call, ListOrchestrations)
        limit, offset = params.limit or DEFAULT_LIST, params.offset or 0
        page = await self._engine.list(
            call.conversation, call.principal, status=params.status, limit=limit, offset=offset
        )
        return Read(Orchestrations([*map(summary, page.orchestrations)], page.total, offset + limit < page.total))

    async def pause(self, call: Call) -> Outcome:
        if before := await self._documents.before(call.asking):
            return before
        state = await self._engine.pause((await self._chosen(call)).id, call.principal)
        paused = OrchestrationPaused(state.id, "paused", iso(state.steered_at), state.current)
        return await self._record(call, paused)

    async def resume(self, call: Call) -> Outcome:
        if before := await self._documents.before(call.asking):
            return before
        state = await self._engine.resume((await self._chosen(call)).id, call.principal)
        resumed = OrchestrationResumed(state.id, "running", iso(state.steered_at), state.current)
        return await self._record(call, resumed)

    async def cancel(self, call: Call) -> Outcome:
        if before := await self._documents.before(call.asking):
            return before
        state = await self._engine.cancel((await self._chosen(call)).id, call.principal)
        done, given_up = state.count("completed"), state.count("cancelled")
        return await self._record(
            call, OrchestrationCancelled(state.id, "cancelled", iso(state.ended_at), done, given_up)
        )

    async def retry_step(self, call: Call) -> Outcome:
        if before := await self._documents.before(call.asking):
            return before
        chosen, id_ = await self._chosen(call), of(call, RetryStep).step_id
        one = (await self._engine.retry_step(chosen.id, call.principal, id_)).step(id_)
        retries = chosen.step(id_).attempt
        status = one.status if one.status in ("completed", "failed") else "running"
        return await self._record(call, RetryStarted(chosen.id, StepRetried(id_, status, retries)))

    async def delete(self, call: Call) -> Outcome:
        if before := await self._documents.before(call.asking):
            return before
        id_ = await self._engine.delete((await self._chosen(call)).id, call.principal)
        return await self._record(call, OrchestrationDeleted(True, id_))

    async def _chosen(self, call: Call) -> Orchestration:
        """The one that is named, or else the current one of the conversation."""
        await self._check(call)
        id_ = of(call, OneOrchestration).orchestration_id
        if id_ is None:
            return await self._engine.current(call.conversation, call.principal)
        state = await self._engine.read(id_, call.principal) if is_id(id_) else None
        if state is None or state.conversation != call.conversation:
            raise OrchestrationNotFound("There is no such orchestration.")
        return state

    async def _check(self, call: Call) -> None:
        if await self._conversations.exists(call.principal, call.conversation) is None:
            raise ConversationNotFound("There is no such conversation.", conversation=call.conversation)

    async def _record(self, call: Call, told: Struct) -> Outcome:
        return await self._documents.record(call.asking, msgspec.to_builtins(told))


def _telling(type_: type[Struct]) -> Teller:
    async def told(run: Run, said: bytes) -> object:
        return msgspec.json.decode(said, type=type_)

    return told


def _rules(config: OrchestrationConfig | None, rules: Rules) -> Rules:
    """What a request says, and else what the agent's definition does."""
    if config is None:
        return rules
    asked = {
        "max_parallel": config.max_parallel_steps, "step_timeout_ms": config.step_timeout_ms,
        "auto_retry": config.auto_retry, "max_retries": config.max_retries,
    }  # fmt: skip
    if config.auto_retry and config.max_retries is None and not rules.max_retries:
        # A definition without retries must not undo what the request asks for.
        asked["max_retries"] = Rules().max_retries
    return replace(rules, **{name: one for name, one in asked.items() if one is not None})


def _once(call: Call) -> tuple[str | None, str]:
    """The key of the orchestration, which is another task than its creation, and the id of its message."""
    if call.key is None:
        return None, new_id()
    whose = f"{call.principal}\n{call.params.agent_slug}\n{call.conversation}\n{call.key}"
    return f"orchestrate:{hashlib.sha256(whose.encode()).hexdigest()}", str(uuid.uuid5(uuid.NAMESPACE_URL, whose))
