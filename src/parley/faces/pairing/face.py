"""Calls of paired runtimes: about themselves, and about the task runs that they hold."""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
from msgspec import Struct
from starlette.types import Receive

from parley.clock import iso, now_ms
from parley.errors import Invalid, InvalidArtifact, LeaseLost, ParleyError, Unauthenticated
from parley.execution.rules import Failed, NeedAuth, NeedInput, Output
from parley.faces.pairing import outputs
from parley.faces.pairing.messages import (
    ArtifactIn,
    Attached,
    AttachIn,
    Beat,
    ControlIn,
    Detached,
    Ended,
    EndIn,
    HeartbeatIn,
    HeldIn,
    Nothing,
    Platform,
    Progressed,
    ProgressIn,
    Pulled,
    PullIn,
    Released,
    ReleaseIn,
    Renewed,
    RuntimeFault,
    RuntimeRefusal,
    RuntimeStatus,
    Stops,
    TaskRun,
    held_lease,
    lease_id,
    lease_named,
    snapshot,
    task_type,
)
from parley.http.face import Face, Operation, Proof, Request, Response, decoded, operation
from parley.http.problems import status_of
from parley.http.requests import ClientGone, retry_headers
from parley.paired.claims import PairedClaim
from parley.paired.leases import Lease
from parley.paired.runtimes import Described, Runtime
from parley.paired.service import RuntimeService
from parley.runs.rules.state import Run
from parley.runs.store import LASTING, Key
from parley.security.credentials import bearer

C = TypeVar("C")
T = TypeVar("T")

PULL_INTERVAL_S = 1
SMALL = 64 * 1024

_SELF, _RUN = "/agent-runtimes/runtime", "/task-runs/{id}"
_REPORT = (404, 409, 413)
_INSTANCE = re.compile(r"[A-Za-z0-9._-]{1,64}")


class PairedFace(Face[C], Generic[C]):
    """Face with the error format of runtimes: `{"error": {"code", "message"}}`, with Parley's own error codes."""

    proof: ClassVar[Proof] = "runtime"

    def decode(self, body: bytes, type_: type[T]) -> T:
        """Decode a body; an empty body counts as an empty object."""
        return decoded(body or b"{}", type_, InvalidArtifact if type_ is ArtifactIn else Invalid)

    def refuse(self, request: Request[C], error: ParleyError) -> Response:
        status, _ = status_of(error)
        return Response(status, RuntimeRefusal(RuntimeFault(error.code, error.message)), retry_headers(error))


class RuntimeFace(PairedFace[Runtime]):
    """Calls of a runtime about itself: attach, heartbeat, control, pull, status, detach."""

    max_body = 256 * 1024

    def __init__(self, service: RuntimeService, platform: Platform, lease_s: float) -> None:
        self._service = service
        self._runtimes = service.runtimes
        self._claims = service.claims
        self._platform = platform
        self._lease_s = lease_s

    async def authenticate(self, request: Request[Runtime], operation: Operation) -> Runtime:
        nobody: Any = None
        return nobody if operation.open else await self._service.runtimes.runtime_for(token_of(request))

    @operation(
        "POST",
        f"{_SELF}/attach-via-pairing",
        open=True,
        body=AttachIn,
        name="attach",
        summary="Exchange a pairing code for a runtime token.",
        answers={200: Attached},
        refusals=(413, 429),
    )
    async def attach(self, request: Request[Runtime], wanted: AttachIn) -> Response:
        described = Described(wanted.runtime_name or "", wanted.runtime_version or "", wanted.capabilities or {})
        runtime, token = await self._service.attach(wanted.pairing_token, described)
        attached = Attached(
            token,
            runtime.id,
            runtime.agent,
            self._service.agent(runtime.agent).name,
            self._platform,
            heartbeat_interval_seconds=_number(self._runtimes.heartbeat_s),
            pull_interval_seconds=PULL_INTERVAL_S,
            lease_seconds=_number(self._lease_s),
        )
        return Response(200, attached)

    @operation(
        "POST",
        f"{_SELF}/heartbeat",
        body=HeartbeatIn,
        name="heartbeat",
        summary="Renew the leases of the tasks that the runtime works on.",
        answers={200: Beat},
        refusals=(413,),
    )
    async def heartbeat(self, request: Request[Runtime], beat: HeartbeatIn) -> Response:
        runtime, instance = request.caller, instance_of(request)
        await self._runtimes.note(runtime, beat.status or "ready")
        listed = [(one.task_run_id, await self._lease(runtime, one, instance)) for one in beat.task_runs or ()]
        held = await self._claims.renew([lease for _, lease in listed if lease is not None])
        unknown = [run_id for run_id, lease in listed if lease is None]
        answered = Beat(
            runtime.id,
            runtime.agent,
            iso(now_ms()),
            [Renewed(one.lease.run, lease_id(one.lease), iso(one.until)) for one in held if one.standing == "held"],
            lost_task_run_ids=[*unknown, *(one.lease.run for one in held if one.standing == "lost")],
            cancel_task_run_ids=[one.lease.run for one in held if one.standing == "canceled"],
        )
        return Response(200, answered)

    @operation(
        "POST",
        f"{_SELF}/control",
        body=ControlIn,
        name="control",
        summary="Wait until one of these tasks has to stop.",
        answers={200: Stops},
        refusals=(413,),
    )
    async def control(self, request: Request[Runtime], asked: ControlIn) -> Response:
        async with watching(request.receive) as gone:
            found = await self._service.stops(request.caller, asked.task_run_ids or [], asked.wait_s, gone)
        return Response(200, Stops(found.canceled, found.lost))

    @operation(
        "POST",
        f"{_SELF}/detach",
        body=Nothing,
        name="detach",
        summary="Detach: release all tasks that this process holds.",
        answers={200: Detached},
        refusals=(413,),
    )
    async def detach(self, request: Request[Runtime], _: Nothing) -> Response:
        await self._service.detach(request.caller, instance_of(request))
        return Response(200, Detached(request.caller.id))

    @operation(
        "GET",
        f"{_SELF}/status",
        name="status",
        summary="Return the state of the runtime and of its agent's queue.",
        answers={200: RuntimeStatus},
        refusals=(404, 409),
    )
    async def status(self, request: Request[Runtime]) -> Response:
        runtime, service = request.caller, self._service
        seen, queued = await self._runtimes.last_seen(runtime), await service.queued(runtime)
        agent = service.agent(runtime.agent)
        status = RuntimeStatus(
            runtime.id,
            agent.slug,
            agent.name,
            self._platform,
            iso(runtime.attached_at),
            iso(seen.at),
            active=True,
            queued=queued,
            running=await self._claims.running(str(runtime.principal)),
        )
        return Response(200, status)

    @operation(
        "POST",
        "/agent-accounts/{agent}/task-runs/pull",
        body=PullIn,
        limit=SMALL,
        name="pull",
        summary="Pull tasks, or wait for the first one.",
        answers={200: Pulled},
        refusals=(403, 404, 409, 413),
    )
    async def pull(self, request: Request[Runtime], wanted: PullIn) -> Response:
        await self._service.check_in(request.caller, request.path["agent"])
        instance = instance_of(request)
        async with watching(request.receive) as gone:
            claims = await self._service.pull(request.caller, instance, wanted.most, wanted.wait_s, gone)
        return Response(200, Pulled([self._shown(claim) for claim in claims]))

    async def _lease(self, runtime: Runtime, held: HeldIn, instance: str) -> Lease | None:
        if held.lease_id is not None:
            return lease_named(runtime, held.task_run_id, held.lease_id, instance)
        return await self._service.last_claim(runtime, held.task_run_id, instance)

    def _shown(self, claim: PairedClaim) -> TaskRun:
        run = claim.run
        return TaskRun(
            run.id,
            conversation_id=run.conversation,
            workspace_id=run.conversation,
            task_type=task_type(claim.inputs),
            input_snapshot=snapshot(claim.inputs),
            initiator_agent_id=claim.asked_by,
            target_agent_id=run.agent,
            platform=self._platform,
            attempt=run.rescues + 1,
            lease_id=lease_id(claim.lease),
            lease_expires_at=iso(claim.until),
        )


class TaskRunReport(Struct, frozen=True):
    """A report of a runtime's process on a run."""

    runtime: Runtime
    instance: str
    run: Run

    def lease(self, name: str | None) -> Lease:
        return held_lease(self.runtime, self.run, name, self.instance)


class TaskRunFace(PairedFace[TaskRunReport]):
    """Calls of a runtime about the task runs that it holds."""

    def __init__(self, service: RuntimeService, base_url: str, max_body: int) -> None:
        self._service = service
        self._claims = service.claims
        self._base_url = base_url
        self.max_body = max_body

    async def authenticate(self, request: Request[TaskRunReport], operation: Operation) -> TaskRunReport:
        """Return the report's runtime, process and run. The body is read before the run is looked up, and decoded
        after."""
        runtime = await self._service.runtimes.runtime_for(token_of(request))
        await request.body(self.max_body)
        run = await self._service.run(runtime, request.path["id"])
        return TaskRunReport(runtime, instance_of(request), run)

    @operation(
        "POST",
        f"{_RUN}/progress",
        body=ProgressIn,
        name="progress",
        summary="Report progress of the agent, and renew the lease.",
        answers={200: Progressed},
        refusals=_REPORT,
    )
    async def progress(self, request: Request[TaskRunReport], progress: ProgressIn) -> Response:
        """Report progress and renew the lease; without content, only renew the lease."""
        run, lease = request.caller.run, request.caller.lease(progress.lease_id)
        status = outputs.progressed(progress)
        if status is not None:
            run = (await self._claims.say(lease, status)).run
        held = (await self._claims.renew([lease]))[0]
        if status is None and held.standing in ("lost", "over"):
            raise LeaseLost("The lease was lost; this runtime no longer holds the task.")
        until, canceled = iso(held.until or now_ms()), held.standing == "canceled"
        return Response(200, Progressed(run.id, until, cancel_requested=canceled))

    @operation(
        "POST",
        f"{_RUN}/artifacts",
        body=ArtifactIn,
        name="writeArtifact",
        summary="Write a file as an artifact of the task.",
        answers={200: outputs.File, 201: outputs.File},
        refusals=_REPORT,
    )
    async def artifact(self, request: Request[TaskRunReport], wanted: ArtifactIn) -> Response:
        run, lease = request.caller.run, request.caller.lease(wanted.lease_id)
        file = outputs.written(run, wanted, self._base_url)
        digest = outputs.digest_of(file, wanted)
        key = Key(f"{LASTING}{run.id}", f"file/{lease.epoch}/{digest.hex()}", digest)
        outcome = await self._claims.say(lease, outputs.chunk(file, wanted), key)
        return Response(200 if outcome.replayed else 201, file)

    @operation(
        "POST",
        f"{_RUN}/complete",
        body=EndIn,
        name="complete",
        summary="End the turn with an answer, or with a question.",
        answers={200: Ended},
        refusals=_REPORT,
    )
    async def complete(self, request: Request[TaskRunReport], end: EndIn) -> Response:
        replies = self._service.exchange.agent(request.caller.run.agent).replies
        return await self._finish(request.caller, end, outputs.completed(end.output, replies))

    @operation(
        "POST",
        f"{_RUN}/fail",
        body=EndIn,
        name="fail",
        summary="End the turn with a failure; also used to end a canceled task.",
        answers={200: Ended},
        refusals=_REPORT,
    )
    async def fail(self, request: Request[TaskRunReport], end: EndIn) -> Response:
        return await self._finish(request.caller, end, outputs.failed(end.output))

    @operation(
        "POST",
        f"{_RUN}/release",
        body=ReleaseIn,
        name="release",
        summary="Return the task to the queue; this does not count as an attempt.",
        answers={200: Released},
        refusals=_REPORT,
    )
    async def release(self, request: Request[TaskRunReport], released: ReleaseIn) -> Response:
        run = await self._claims.release(request.caller.lease(released.lease_id))
        return Response(200, Released(run.id, run.state.value if run.ended else "queued"))

    async def _finish(self, report: TaskRunReport, end: EndIn, ending: list[Output]) -> Response:
        asked = _asked(ending)
        outcome = await self._claims.finish(report.lease(end.lease_id), ending, _digest(asked, end))
        status = outcome.run.state.value if outcome.run.ended else asked
        return Response(200, Ended(report.run.id, status, outcome.replayed))


def token_of(request: Request[Any]) -> str:
    token = request.header(b"x-runtime-token")
    if token is None and (authorization := request.header(b"authorization")) is not None:
        token = bearer(authorization)
    if not token:
        raise Unauthenticated("The runtime token is required: send X-Runtime-Token.")
    return token


def instance_of(request: Request[Any]) -> str:
    """Return the name of the calling process of the runtime; empty without the header."""
    name = request.header(b"x-runtime-instance")
    if name is not None and _INSTANCE.fullmatch(name) is None:
        raise Invalid("X-Runtime-Instance must have 1 to 64 characters: letters, digits, '.', '_' or '-'.")
    return name or ""


@asynccontextmanager
async def watching(receive: Receive) -> AsyncGenerator["asyncio.Task[None]", None]:
    """Yield a task that fails with `ClientGone` when the client disconnects."""
    gone = asyncio.get_running_loop().create_task(_disconnected(receive))
    try:
        yield gone
    finally:
        if not gone.cancel() and not gone.cancelled():
            # Retrieve the exception, or asyncio logs it as never retrieved.
            gone.exception()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    raise ClientGone


def _digest(asked: str, end: EndIn) -> bytes:
    """Return a digest that is the same for the same output, whatever the order of its members."""
    output: object = msgspec.json.decode(msgspec.json.encode(end.output))
    return hashlib.sha256(asked.encode() + msgspec.json.encode(output, order="sorted")).digest()


def _asked(ending: list[Output]) -> str:
    """Return the status with which the runtime asks to end the turn."""
    match ending[-1]:
        case NeedInput():
            return "input_required"
        case NeedAuth():
            return "auth_required"
        case Failed():
            return "failed"
        case _:
            return "completed"


def _number(seconds: float) -> float | int:
    return int(seconds) if seconds.is_integer() else seconds
