"""The calls of a runtime about its work: it comes for task runs, and reports on those that it holds."""

import asyncio
import hashlib

import msgspec
from msgspec import Struct
from starlette.routing import Route
from starlette.types import Receive, Scope

from parley.clock import iso, now_ms
from parley.core.leases import Lease
from parley.core.runs import Run
from parley.core.turns import Failed, NeedAuth, NeedInput, Output
from parley.engine.elsewhere import LOOK_S, Claim, Elsewhere
from parley.engine.exchange import Exchange
from parley.engine.ports import LASTING, Key
from parley.errors import Forbidden, InvalidArtifact, LeaseLost, RunNotFound
from parley.faces.edge import files, outputs
from parley.faces.edge.claims import Platform, held_lease, lease_id, snapshot, task_type
from parley.faces.edge.operations import ARTIFACT, COMPLETE, FAIL, PROGRESS, PULL, RELEASE
from parley.faces.edge.replies import Ended, Progressed, Pulled, Released, TaskRun
from parley.faces.edge.runtimes import edge_agent
from parley.faces.edge.serving import Reply, body_of, decoded, instance_of, rung, token_of, watching
from parley.faces.edge.words import ArtifactIn, EndIn, ProgressIn, PullIn, ReleaseIn
from parley.faces.http import MAX_BODY, ClientGone, read_json
from parley.security.runtimes import Runtime, Runtimes

SMALL = 64 * 1024


class Report(Struct, frozen=True):
    """What a process of a runtime says about a run."""

    runtime: Runtime
    instance: str
    run: Run
    body: bytes

    def lease(self, name: str | None) -> Lease:
        return held_lease(self.runtime, self.run, name, self.instance)


class TaskRunCalls:
    def __init__(
        self, exchange: Exchange, elsewhere: Elsewhere, runtimes: Runtimes, platform: Platform, base_url: str,
        max_body: int = MAX_BODY,
    ) -> None:  # fmt: skip
        self._exchange = exchange
        self._elsewhere = elsewhere
        self._runtimes = runtimes
        self._platform = platform
        self._base_url = base_url
        self._max_body = max_body

    def routes(self) -> list[Route]:
        return [
            PULL.served_by(self.pull),
            PROGRESS.served_by(self.progress),
            ARTIFACT.served_by(self.artifact),
            COMPLETE.served_by(self.complete),
            FAIL.served_by(self.fail),
            RELEASE.served_by(self.release),
        ]

    async def pull(self, scope: Scope, receive: Receive) -> Reply:
        """Answers at once, or as soon as there is something; with nothing when the time is up."""
        runtime = await self._runtimes.runtime_for(token_of(scope))
        wanted = await body_of(receive, PullIn, SMALL)
        if scope["path_params"]["agent"] != runtime.agent:
            raise Forbidden("This runtime works for another agent.")
        edge_agent(self._exchange, runtime.agent)
        await self._runtimes.note(runtime)
        async with watching(receive) as gone:
            claims = await self._pulled(runtime, instance_of(scope), wanted, gone)
        return 200, Pulled([self._shown(claim) for claim in claims])

    async def progress(self, scope: Scope, receive: Receive) -> Reply:
        """With nothing to show it only renews the lease."""
        report = await self._addressed(scope, receive)
        told = decoded(report.body, ProgressIn)
        run, lease, status = report.run, report.lease(told.lease_id), outputs.progressed(told)
        if status is not None:
            run = (await self._elsewhere.say(lease, status)).run
        held = (await self._elsewhere.renew([lease]))[0]
        if status is None and held.standing in ("lost", "over"):
            raise LeaseLost("The lease was lost; the task is not this runtime's any more.")
        return 200, Progressed(run.id, iso(held.until or now_ms()), cancel_requested=held.standing == "canceled")

    async def artifact(self, scope: Scope, receive: Receive) -> Reply:
        report = await self._addressed(scope, receive)
        wanted = decoded(report.body, ArtifactIn, InvalidArtifact)
        run, lease = report.run, report.lease(wanted.lease_id)
        file = files.written(run, wanted, self._base_url)
        digest = files.digest_of(file, wanted)
        key = Key(f"{LASTING}{run.id}", f"file/{lease.epoch}/{digest.hex()}", digest)
        outcome = await self._elsewhere.say(lease, files.chunk(file, wanted), key)
        return 200 if outcome.replayed else 201, file

    async def complete(self, scope: Scope, receive: Receive) -> Reply:
        report = await self._addressed(scope, receive)
        told = decoded(report.body, EndIn)
        ending = outputs.completed(told.output, self._exchange.agent(report.run.agent).replies)
        return await self._finish(report, told, ending)

    async def fail(self, scope: Scope, receive: Receive) -> Reply:
        report = await self._addressed(scope, receive)
        told = decoded(report.body, EndIn)
        return await self._finish(report, told, outputs.failed(told.output))

    async def release(self, scope: Scope, receive: Receive) -> Reply:
        report = await self._addressed(scope, receive)
        run = await self._elsewhere.release(report.lease(decoded(report.body, ReleaseIn).lease_id))
        return 200, Released(run.id, run.state.value if run.ended else "queued")

    async def _pulled(self, runtime: Runtime, instance: str, wanted: PullIn, gone: "asyncio.Task[None]") -> list[Claim]:
        loop = asyncio.get_running_loop()
        until = loop.time() + wanted.wait_s
        with self._exchange.offers.hung([runtime.agent]) as bell:
            while True:
                bell.clear()
                claims = await self._elsewhere.claim(str(runtime.principal), runtime.agent, wanted.most, instance)
                await self._confirm(claims, runtime, gone)
                if claims or loop.time() >= until:
                    return claims
                await rung(bell, min(until - loop.time(), LOOK_S), gone)

    async def _confirm(self, claims: list[Claim], runtime: Runtime, gone: "asyncio.Task[None]") -> None:
        """What was taken for one who is gone, or who was replaced in this moment, goes back at once."""
        try:
            await self._runtimes.check(runtime)
            if gone.done():
                raise ClientGone
        except BaseException:
            await self._elsewhere.release_each(claim.lease for claim in claims)
            raise

    async def _addressed(self, scope: Scope, receive: Receive) -> Report:
        runtime = await self._runtimes.runtime_for(token_of(scope))
        body = await read_json(receive, self._max_body)
        run_id: str = scope["path_params"]["id"]
        run = await self._exchange.commands.stored(run_id)
        if run is None or run.agent != runtime.agent:
            raise RunNotFound("Task run not found.")
        return Report(runtime, instance_of(scope), run, body)

    async def _finish(self, report: Report, told: EndIn, ending: list[Output]) -> Reply:
        asked = _asked(ending)
        outcome = await self._elsewhere.finish(report.lease(told.lease_id), ending, _digest(asked, told))
        status = outcome.run.state.value if outcome.run.ended else asked
        return 200, Ended(report.run.id, status, outcome.replayed)

    def _shown(self, claim: Claim) -> TaskRun:
        run = claim.run
        return TaskRun(
            run.id, conversation_id=run.conversation, workspace_id=run.conversation,
            task_type=task_type(claim.inputs), input_snapshot=snapshot(claim.inputs),
            initiator_agent_id=claim.asked_by, target_agent_id=run.agent, platform=self._platform,
            attempt=run.rescues + 1, lease_id=lease_id(claim.lease), lease_expires_at=iso(claim.until),
        )  # fmt: skip


def _digest(asked: str, told: EndIn) -> bytes:
    """The same for the same output, in whatever order a program writes it down."""
    output: object = msgspec.json.decode(msgspec.json.encode(told.output))
    return hashlib.sha256(asked.encode() + msgspec.json.encode(output, order="sorted")).digest()


def _asked(ending: list[Output]) -> str:
    """How the turn ends, as far as the runtime has a say in it."""
    match ending[-1]:
        case NeedInput():
            return "input_required"
        case NeedAuth():
            return "auth_required"
        case Failed():
            return "failed"
        case _:
            return "completed"
