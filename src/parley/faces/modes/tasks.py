"""What has become of a task: the envelope of a run, or of what was asked without one."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import UNSET, Struct, UnsetType

from parley.clock import iso
from parley.core.access import Principal, may_see
from parley.core.actions import Code
from parley.core.artifacts import Artifact, Parts, text_of
from parley.core.documents import Operation
from parley.core.events import RESPONSE
from parley.core.results import Answered, Waiting
from parley.core.runs import WAITING, Run, State
from parley.core.views import View
from parley.engine.exchange import Exchange
from parley.engine.ledger import Ledger
from parley.errors import RunNotFound
from parley.faces.modes.rows import Offer, Row
from parley.faces.modes.words import About, Envelope, Fault, envelope_of
from parley.ids import is_id


class _Usage(Struct, frozen=True, rename="camel"):
    input_tokens: int = 0
    output_tokens: int = 0


class _Maker(Struct, frozen=True):
    """What the metadata of an answer says of how it was made, if a model made it."""

    model: str = ""
    usage: _Usage = _Usage()


_maker = msgspec.json.Decoder(_Maker).decode


class Tasks:
    def __init__(self, exchange: Exchange, ledger: Ledger, offers: Mapping[Row, Offer]) -> None:
        self._exchange = exchange
        self._ledger = ledger
        self._offers = offers

    async def find(self, principal: Principal, id_: str) -> Run | Operation:
        """Whatever has this id and exists for the principal."""
        if not is_id(id_):
            raise RunNotFound("There is no such task.")
        operation = await self._ledger.find(id_)
        if operation is None:
            return await self._exchange.visible(id_, principal)
        if not may_see(principal, operation.principal):
            raise RunNotFound("There is no such task.")
        return operation

    async def read(self, principal: Principal, id_: str) -> Envelope:
        found = await self.find(principal, id_)
        if isinstance(found, Operation):
            return operation_envelope(found)
        return await self.envelope(await self._exchange.view(found.id))

    async def envelope(self, view: View) -> Envelope:
        run = view.run
        if run.beside:
            view = await self._exchange.view(run.id, told=True)
        result = await self._result(view) if run.state is State.COMPLETED or run.state in WAITING else UNSET
        error = fault_of(view) if run.ended and run.state is not State.COMPLETED else UNSET
        return envelope_of(run, result=result, error=error, metadata=_about(view))

    async def _result(self, view: View) -> Any | UnsetType:
        run = view.run
        if run.state in WAITING:
            return _waiting(view) if view.status.said is not None else UNSET
        if run.assignment is None:
            return Answered(_answer(view))
        return await self.told(run, view.status.said.parts if view.status.said else ())

    async def told(self, run: Run, said: Parts) -> Any | UnsetType:
        """The result of a run that was made for an action and has completed with these words. A read has none: what
        it showed then may have changed."""
        made_for = run.assignment
        offer = self._offers.get((made_for.mode, made_for.action)) if made_for is not None else None
        if offer is None or offer.tell is None:
            return UNSET
        data = next((bytes(part.data) for part in said if part.data is not UNSET), b"")
        return await offer.tell(run, data)


def operation_envelope(one: Operation) -> Envelope:
    """Of what was asked without a run only that it was, and what came of it, is known."""
    return Envelope(
        one.id, one.conversation, "failed" if one.code else "completed", iso(one.started_at),
        error=Fault(cast("Code", one.code), one.message) if one.code else UNSET, completed_at=iso(one.completed_at),
        metadata=About(one.completed_at - one.started_at),
    )  # fmt: skip


def fault_of(view: View) -> Fault:
    """Why a run did not complete. What the agent's author or the exchange said about it is meant for its caller."""
    said = view.status.said
    words = text_of(said.parts) if said else ""
    details: dict[str, Any] = {"state": view.run.state.value}
    if said is not None and said.metadata is not UNSET:
        details |= {"reason": msgspec.json.decode(said.metadata).get("code")}
    match view.run.state:
        case State.CANCELED:
            return Fault("TASK_CANCELED", words or "The task was canceled.", details)
        case State.REJECTED:
            return Fault("TASK_REJECTED", words, details)
        case _ if is_tool(view.run):
            return Fault("TOOL_EXECUTION_FAILED", words, {**details, "executionId": view.run.id})
        case _:
            return Fault("LLM_EXECUTION_FAILED", words, details)


def is_tool(run: Run) -> bool:
    """Whether it is the call of a tool, and no agent has worked on it."""
    return run.assignment is not None and run.assignment.mode == "tool"


def _waiting(view: View) -> Waiting:
    said = view.status.said
    needs = "auth" if view.run.state is State.AUTH_REQUIRED else "input"
    return Waiting(text_of(said.parts) if said else "", needs)


def _answer(view: View) -> str:
    said = view.status.said
    made = "".join(text_of(artifact.parts) for artifact in view.artifacts)
    return made or (text_of(said.parts) if said else "")


def _about(view: View) -> About | UnsetType:
    run = view.run
    if not run.ended:
        return UNSET
    took = run.status_at - run.created_at
    maker = _made_by(view)
    if maker is None:
        return About(took)
    return About(took, maker.model or None, maker.usage.input_tokens + maker.usage.output_tokens or None)


def _made_by(view: View) -> _Maker | None:
    """The model of the last answer, as its metadata tells."""
    told = [one.metadata for one in view.artifacts if _is_answer(one)]
    if view.reply is not None:
        told.append(view.reply.metadata)
    for metadata in reversed(told):
        if metadata is not UNSET:
            try:
                return _maker(metadata)
            except msgspec.MsgspecError:
                continue
    return None


def _is_answer(artifact: Artifact) -> bool:
    return artifact.name == RESPONSE
