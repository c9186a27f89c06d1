"""A platform in the test's own hands: it speaks the runtime's wire, remembers every call, and fails on demand."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any
from urllib.parse import unquote

from edge.tests.wire import Asked, Drop, Said, Wire

Json = dict[str, Any]
ORIGIN = {"name": "A2A", "origin": "example.test"}
_ROMAN = str.maketrans("OIL", "011")


@dataclass
class Run:
    id: str
    input: Json
    task_type: str = "chat"
    state: str = "queued"
    attempt: int = 0
    lease: str = ""
    lease_until: float = 0.0
    cancel: bool = False
    output: Json | None = None
    progress: list[Json] = field(default_factory=list)
    artifacts: list[Json] = field(default_factory=list)
    ended_with: Json | None = None


@dataclass
class Call:
    path: str
    body: Json
    headers: dict[str, str]
    at: float


@dataclass
class Fault:
    """What happens to the next calls whose path ends so: a status, or no answer at all, before or after the effect."""

    ending: str
    times: int
    status: int = 0
    after: bool = False
    skip: int = 0
    headers: dict[str, str] = field(default_factory=dict)


class Refusal(Exception):
    def __init__(self, status: int, code: str, message: str = "No.") -> None:
        super().__init__(code)
        self.said = Said(status, json.dumps({"error": {"code": code, "message": message}}).encode())


class Platform:
    def __init__(self, *, lease_s: float = 60.0, heartbeat_s: float = 30.0, agent: str = "worker") -> None:
        self.lease_s, self.heartbeat_s, self.agent = lease_s, heartbeat_s, agent
        self.wire = Wire(self._answer)
        self.codes: set[str] = set()
        self.token: str | None = None
        self.revoked: set[str] = set()
        self.runs: dict[str, Run] = {}
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.held: dict[str, asyncio.Event] = {}
        self.detached = 0
        self.clock_off = 0.0
        self._changed = asyncio.Event()

    @property
    def url(self) -> str:
        return self.wire.origin

    # What a test does

    def code(self) -> str:
        letters = "".join(secrets.choice("0123456789ABCDEFGHJKMNPQRSTVWXYZ") for _ in range(16))
        self.codes.add(letters)
        return "-".join(letters[at : at + 4] for at in range(0, 16, 4))

    def ask(self, text: str, **more: Any) -> Run:
        run = Run(f"run-{len(self.runs) + 1}", {"text": text}, **more)
        self.runs[run.id] = run
        self._change()
        return run

    def cancel(self, run: Run) -> None:
        run.cancel = True
        self._change()

    def expire(self, run: Run) -> None:
        """As when a lease runs out."""
        run.state, run.lease = "queued", ""
        self._change()

    def fault(self, ending: str, times: int = 1, **more: Any) -> None:
        self.faults.append(Fault(ending, times, **more))

    def hold(self, ending: str, until: asyncio.Event) -> None:
        """Calls whose path ends so are not answered before that."""
        self.held[ending] = until

    def called(self, ending: str) -> list[Call]:
        return [call for call in list(self.calls) if call.path.endswith(ending)]

    async def until(self, condition: Callable[[], object], timeout_s: float = 15.0) -> None:
        async with asyncio.timeout(timeout_s):
            while not condition():
                await self._changed.wait()

    async def ended(self, run: Run) -> Run:
        await self.until(lambda: run.state in ("completed", "failed"))
        return run

    # The wire

    async def _answer(self, asked: Asked) -> Said:
        body = json.loads(asked.body) if asked.body else {}
        self.calls.append(Call(asked.path, body, asked.headers, time.monotonic()))
        self._change()
        for held in [one for ending, one in self.held.items() if asked.path.endswith(ending)]:
            await held.wait()
        fault = self._fault(asked.path)
        if fault is not None and not fault.after:
            return _broken(fault)
        try:
            said = await self._routed(asked, body)
        except Refusal as refusal:
            said = refusal.said
        self._change()
        if fault is not None:
            return _broken(fault)
        said.headers["Date"] = formatdate(time.time() + self.clock_off, usegmt=True)
        return said

    def _fault(self, path: str) -> Fault | None:
        for fault in self.faults:
            if path.endswith(fault.ending) and fault.times:
                if fault.skip:
                    fault.skip -= 1
                    return None
                fault.times -= 1
                return fault
        return None

    async def _routed(self, asked: Asked, body: Json) -> Said:
        match asked.method, unquote(asked.path).split("/")[1:]:
            case "POST", ["agent-runtimes", "runtime", "attach-via-pairing"]:
                return _json(self.attach(str(body["pairing_token"])))
            case "POST", ["agent-runtimes", "runtime", what]:
                self._authenticate(asked)
                return await getattr(self, f"_{what}")(body)
            case "GET", ["agent-runtimes", "runtime", "status"]:
                self._authenticate(asked)
                return self._status()
            case "POST", ["agent-accounts", agent, "task-runs", "pull"]:
                self._authenticate(asked)
                if agent != self.agent:
                    raise Refusal(403, "permission_denied")
                return await self._pull(body, asked)
            case "POST", ["task-runs", run, what]:
                self._authenticate(asked)
                if run not in self.runs:
                    raise Refusal(404, "task_run_not_found")
                return getattr(self, f"_run_{what}")(self.runs[run], body)
            case _:
                raise Refusal(404, "not_found")

    def _authenticate(self, asked: Asked) -> None:
        token = asked.headers.get("x-runtime-token")
        if token in self.revoked:
            raise Refusal(401, "runtime_revoked", "This runtime was replaced by a newer pairing.")
        if token is None or token != self.token:
            raise Refusal(401, "unauthenticated", "No credential that holds.")

    def attach(self, pairing_token: str) -> Json:
        code = pairing_token.upper().replace("-", "").translate(_ROMAN)
        if code not in self.codes:
            raise Refusal(401, "invalid_pairing_token", "Invalid pairing token")
        self.codes.remove(code)
        self.revoke()
        self.token = secrets.token_urlsafe(32)
        return {
            "runtime_token": self.token, "runtime_id": f"runtime-{len(self.revoked) + 1}", "agent_id": self.agent,
            "agent_name": self.agent.title(), "platform": ORIGIN, "heartbeat_interval_seconds": self.heartbeat_s,
            "pull_interval_seconds": 1, "lease_seconds": self.lease_s,
        }  # fmt: skip

    def revoke(self) -> None:
        """What a newer pairing does to the one there was."""
        if self.token is not None:
            self.revoked.add(self.token)
            self.token = None
            self._hand_back()

    def _hand_back(self) -> None:
        for run in self.runs.values():
            if run.state == "claimed":
                run.state, run.lease, run.attempt = "queued", "", run.attempt - 1
        self._change()

    def _status(self) -> Said:
        queued = sum(run.state == "queued" for run in self.runs.values())
        return _json({
            "runtime_id": "runtime-1", "agent_id": self.agent, "agent_name": self.agent.title(), "platform": ORIGIN,
            "attached_at": _iso(time.time()), "last_seen_at": _iso(time.time()), "active": True, "queued": queued,
            "running": sum(run.state == "claimed" for run in self.runs.values()),
        })  # fmt: skip

    async def _heartbeat(self, body: Json) -> Said:
        renewed: list[Json] = []
        lost: list[str] = []
        for one in body["task_runs"]:
            run = self.runs.get(one["task_run_id"])
            if run is None or run.lease != one["lease_id"]:
                lost.append(one["task_run_id"])
            else:
                run.lease_until = time.time() + self.clock_off + self.lease_s
                renewed.append({**one, "lease_expires_at": _iso(run.lease_until)})
        canceled = [one["task_run_id"] for one in renewed if self.runs[one["task_run_id"]].cancel]
        return _json({
            "runtime_id": "runtime-1", "agent_id": self.agent, "server_time": _iso(time.time() + self.clock_off),
            "task_runs": renewed, "lost_task_run_ids": lost, "cancel_task_run_ids": canceled,
        })  # fmt: skip

    async def _control(self, body: Json) -> Said:
        runs = [self.runs[one] for one in body["task_run_ids"]]

        def found() -> tuple[list[str], list[str]]:
            return [run.id for run in runs if run.cancel], [run.id for run in runs if run.state != "claimed"]

        await self._wait(lambda: any(found()), body["wait_ms"])
        canceled, lost = found()
        return _json({"cancel_task_run_ids": canceled, "lost_task_run_ids": lost})

    async def _detach(self, body: Json) -> Said:
        self.detached += 1
        self._hand_back()
        return _json({"runtime_id": "runtime-1", "detached": True})

    async def _pull(self, body: Json, asked: Asked) -> Said:
        token = asked.headers["x-runtime-token"]

        def queued() -> list[Run]:
            return [run for run in self.runs.values() if run.state == "queued" and not run.cancel][: body["limit"]]

        await self._wait(lambda: queued() or asked.hung_up.is_set() or token != self.token, body["wait_ms"])
        self._authenticate(asked)
        return _json({"task_runs": [self._claim(run) for run in queued() if not asked.hung_up.is_set()]})

    def _claim(self, run: Run) -> Json:
        run.state, run.attempt, run.lease = "claimed", run.attempt + 1, secrets.token_hex(8)
        run.lease_until = time.time() + self.clock_off + self.lease_s
        return {
            "id": run.id, "conversation_id": "talk-1", "workspace_id": "talk-1", "task_type": run.task_type,
            "input_snapshot": run.input, "initiator_agent_id": "", "target_agent_id": self.agent, "platform": ORIGIN,
            "attempt": run.attempt, "lease_id": run.lease, "lease_expires_at": _iso(run.lease_until),
        }  # fmt: skip

    def _held(self, run: Run, body: Json) -> None:
        if run.lease != body["lease_id"]:
            raise Refusal(409, "lease_lost", "The lease is not held any more.")

    def _run_progress(self, run: Run, body: Json) -> Said:
        self._held(run, body)
        run.progress.append({name: value for name, value in body.items() if name != "lease_id"})
        return _json({"task_run_id": run.id, "lease_expires_at": _iso(run.lease_until), "cancel_requested": run.cancel})

    def _run_artifacts(self, run: Run, body: Json) -> Said:
        self._held(run, body)
        for made in run.artifacts:
            if (made["filename"], made["content_text"]) == (body["filename"], body["content_text"]):
                return _json(_written(made))
        made = {"artifact_id": f"artifact-{len(run.artifacts) + 1}", **body}
        run.artifacts.append(made)
        return _json(_written(made), 201)

    def _run_complete(self, run: Run, body: Json) -> Said:
        return self._end(run, body, "completed")

    def _run_fail(self, run: Run, body: Json) -> Said:
        return self._end(run, body, "failed")

    def _end(self, run: Run, body: Json, state: str) -> Said:
        if run.state in ("completed", "failed"):
            if run.ended_with == body:
                return _json({"task_run_id": run.id, "status": run.state, "idempotent": True})
            raise Refusal(409, "task_run_ended", "It has ended.")
        self._held(run, body)
        run.state, run.output, run.ended_with = state, body["output"], body
        return _json({"task_run_id": run.id, "status": state, "idempotent": False})

    def _run_release(self, run: Run, body: Json) -> Said:
        self._held(run, body)
        run.state, run.lease, run.attempt = "queued", "", run.attempt - 1
        return _json({})

    async def _wait(self, condition: Callable[[], object], wait_ms: int) -> None:
        try:
            await self.until(condition, wait_ms / 1000)
        except TimeoutError:
            return

    def _change(self) -> None:
        """Everybody who waits looks again."""
        before, self._changed = self._changed, asyncio.Event()
        before.set()


@asynccontextmanager
async def platform(**options: Any) -> AsyncIterator[Platform]:
    made = Platform(**options)
    await made.wire.start()
    try:
        yield made
    finally:
        await made.wire.stop()


def _broken(fault: Fault) -> Said:
    if not fault.status:
        raise Drop
    body = {"error": {"code": "internal", "message": "A defect."}}
    return Said(fault.status, json.dumps(body).encode(), headers=fault.headers)


def _written(made: Json) -> Json:
    known = ("artifact_id", "filename", "title", "mime_type", "artifact_type", "summary")
    size = len(made["content_text"].encode())
    return {**{name: made[name] for name in known}, "size_bytes": size, "url": f"/artifacts/{made['artifact_id']}"}


def _json(said: Json, status: int = 200) -> Said:
    return Said(status, json.dumps(said).encode())


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
