"""Client of the platform: all calls of the runtime API, and the interpretation of answers."""

from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from parley_edge import __version__
from parley_edge.errors import NotAccepted, Refused, Unreachable
from parley_edge.json_values import Json, as_list, as_object, encoded, read_object
from parley_edge.net.http import Answer, Http, HttpFault

CALL_S = 15.0
WAIT_S = 25.0
MAX_PULL = 32
_LATER = (408, 425, 429)


@dataclass(frozen=True, slots=True)
class TaskRun:
    """A task run claimed under a lease."""

    id: str
    lease_id: str
    lease_expires_at: float
    """Lease end by the platform's clock; 0 if not given."""
    payload: Json
    """Request for the local agent: these fields and no others."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Answer to a heartbeat: the state of the leases that the runtime holds."""

    server_time: float
    renewed: dict[str, float]
    lost: frozenset[str]
    canceled: frozenset[str]


@dataclass(frozen=True, slots=True)
class Control:
    lost: frozenset[str]
    canceled: frozenset[str]


class Platform:
    def __init__(self, http: Http, api_base: str, token: str = "", agent_id: str = "", instance: str = "") -> None:
        self._http = http
        self._base = api_base
        self._agent = quote(agent_id, safe="")
        self._headers = {"Accept": "application/json", "User-Agent": f"a2a-runtime/{__version__}"}
        if token:
            self._headers["X-Runtime-Token"] = token
        if instance:
            self._headers["X-Runtime-Instance"] = instance

    def speaking_for(self, instance: str) -> "Platform":
        """A copy that calls in the name of another instance."""
        other = copy(self)
        other._headers = {**self._headers, "X-Runtime-Instance": instance}
        return other

    async def attach(self, code: str, name: str) -> Json:
        asked: Json = {"pairing_token": code, "runtime_name": name, "runtime_version": __version__, "capabilities": {}}
        return await self._post("/agent-runtimes/runtime/attach-via-pairing", asked)

    async def status(self) -> Answer:
        """The complete answer: its headers contain the platform's time."""
        answer = await self._ask("GET", "/agent-runtimes/runtime/status", None, CALL_S)
        _meant(answer, self._base)
        return answer

    async def heartbeat(self, held: Iterable[tuple[str, str]], *, draining: bool = False) -> Beat:
        runs = [{"task_run_id": run, "lease_id": lease} for run, lease in held]
        asked = {"task_runs": runs, "status": "draining" if draining else "ready"}
        said = await self._post("/agent-runtimes/runtime/heartbeat", asked)
        renewed = {
            str(one.get("task_run_id")): moment(one.get("lease_expires_at")) for one in _objects(said, "task_runs")
        }
        lost, canceled = _ids(said, "lost_task_run_ids"), _ids(said, "cancel_task_run_ids")
        return Beat(moment(said.get("server_time")), renewed, lost, canceled)

    async def control(self, runs: Iterable[str], wait_s: float = WAIT_S) -> Control:
        asked = {"wait_ms": int(wait_s * 1000), "task_run_ids": list(runs)}
        said = await self._post("/agent-runtimes/runtime/control", asked, wait_s + CALL_S)
        return Control(_ids(said, "lost_task_run_ids"), _ids(said, "cancel_task_run_ids"))

    async def detach(self) -> None:
        await self._post("/agent-runtimes/runtime/detach", {}, timeout_s=3.0)

    async def pull(self, limit: int, wait_s: float = WAIT_S) -> list[TaskRun]:
        asked = {"limit": min(limit, MAX_PULL), "wait_ms": int(wait_s * 1000)}
        said = await self._post(f"/agent-accounts/{self._agent}/task-runs/pull", asked, wait_s + CALL_S)
        return [_task_run(one) for one in _objects(said, "task_runs")]

    async def progress(self, run: str, lease: str, note: Json) -> bool:
        """Report progress; True if the task is to be canceled."""
        said = await self._about(run, "progress", {"lease_id": lease, **note})
        return said.get("cancel_requested") is True

    async def write_artifact(self, run: str, lease: str, index: int, request: Json) -> Json:
        written = await self._about(run, "artifacts", {"lease_id": lease, "index": index, **request}, timeout_s=60.0)
        if not isinstance(written.get("artifact_id"), str):
            raise Refused(200, "no_artifact_id", "The platform returned no artifact id.")
        asked = {name: value for name, value in request.items() if name != "content_text"}
        return {**asked, **written}

    async def complete(self, run: str, lease: str, output: Json) -> None:
        await self._about(run, "complete", {"lease_id": lease, "output": output}, timeout_s=60.0)

    async def fail(self, run: str, lease: str, output: Json) -> None:
        await self._about(run, "fail", {"lease_id": lease, "output": output})

    async def release(self, run: str, lease: str) -> None:
        await self._about(run, "release", {"lease_id": lease}, timeout_s=5.0)

    async def _about(self, run: str, what: str, body: Json, timeout_s: float = CALL_S) -> Json:
        return await self._post(f"/task-runs/{quote(run, safe='')}/{what}", body, timeout_s)

    async def _post(self, path: str, body: Json, timeout_s: float = CALL_S) -> Json:
        return _meant(await self._ask("POST", path, body, timeout_s), self._base)

    async def _ask(self, method: str, path: str, body: Json | None, timeout_s: float) -> Answer:
        content = b"" if body is None else encoded(body)
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        try:
            return await self._http.ask(method, self._base + path, headers=headers, body=content, timeout_s=timeout_s)
        except HttpFault as fault:
            raise Unreachable(f"The platform at {self._base} cannot be reached. {fault}") from fault


def moment(value: object) -> float:
    """Seconds since the epoch; 0 if the value is not a time."""
    try:
        said = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return 0.0
    if said is None:
        return 0.0
    return (said if said.tzinfo else said.replace(tzinfo=UTC)).timestamp()


def _meant(answer: Answer, base: str) -> Json:
    """The answer's object, or raise the refusal. Anything else, such as a proxy's error page, is retried."""
    status, said = answer.head.status, read_object(answer.body)
    if 200 <= status < 300 and said is not None:
        return said
    named = as_object((said or {}).get("error"))
    if 400 <= status < 500 and status not in _LATER and named is not None:
        kind = NotAccepted if status == 401 else Refused
        raise kind(status, str(named.get("code", "refused")), str(named.get("message", "The platform refused.")))
    message = str(named["message"]) if status in _LATER and named and "message" in named else _strange(answer, base)
    raise Unreachable(message, status=status, retry_after_s=_retry_after(answer))


def _strange(answer: Answer, base: str) -> str:
    status = answer.head.status
    if 300 <= status < 400:
        return f"The platform at {base} redirects to {answer.head.headers.get('location', 'nowhere')}."
    if status >= 500 or status in _LATER:
        return f"The platform at {base} is temporarily unavailable (status {status})."
    return f"The server at {base} is not a platform that a2a-runtime supports (status {status})."


def _retry_after(answer: Answer) -> float:
    said = answer.head.headers.get("retry-after", "")
    return min(float(said), 60.0) if said.isdigit() else 0.0


def _objects(said: Json, name: str) -> list[Json]:
    listed = as_list(said.get(name)) or []
    return [one for item in listed if (one := as_object(item)) is not None]


def _ids(said: Json, name: str) -> frozenset[str]:
    return frozenset(map(str, as_list(said.get(name)) or []))


def _task_run(said: Json) -> TaskRun:
    run = str(said.get("id", ""))
    payload = {
        "task_run_id": run,
        "conversation_id": said.get("conversation_id") or "",
        "workspace_id": said.get("workspace_id") or "",
        "task_type": said.get("task_type") or "chat",
        "input": said.get("input_snapshot") or {},
        "initiator_agent_id": said.get("initiator_agent_id") or "",
        "target_agent_id": said.get("target_agent_id") or "",
        "platform": _origin(said.get("platform")),
    }
    return TaskRun(run, str(said.get("lease_id", "")), moment(said.get("lease_expires_at")), payload)


def _origin(said: object) -> Json:
    """Only the public fields of what a platform reports about itself."""
    given = as_object(said) or {}
    return {name: given.get(name, "") for name in ("name", "origin")}
