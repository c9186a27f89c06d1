"""The local adapter contract: `a2a-runtime` as a process between a real server and a local endpoint. Everything that
the runtime sends to the platform is recorded on its way."""

import asyncio
import json
import shlex
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from edge.tests.programs import Ended, local_agent, run, runtime
from edge.tests.wire import Asked, Said
from parley.client import Client, message
from parley.testing.servers import Server, hosting, serving
from parley_edge.adapter import Adapter
from tests.contracts.literals import Json, assert_contains, assert_like, from_json, substituted
from tests.faces.pairing.conftest import edge
from tests.faces.pairing.runtime import attach, code_for, paired, web

DEFAULT_ENDPOINT = "http://localhost:18789/run-task"
OPENCLAW_ENDPOINT = "http://127.0.0.1:18789/execute"
REQUEST = """
POST /run-task
Content-Type: application/json
"""
REQUEST_BODY = """
{
  "task_run_id": "task_run_id",
  "conversation_id": "conversation_id",
  "workspace_id": "workspace_id",
  "task_type": "chat",
  "input": {
    "text": "user request"
  },
  "initiator_agent_id": "initiator_agent_id",
  "target_agent_id": "target_agent_id",
  "platform": {
    "name": "A2A",
    "origin": "ysee.tech"
  }
}
"""
ENVELOPE = """
{
  "success": true,
  "output": {
    "text": "result"
  }
}
"""
DIRECT = """
{
  "text": "result"
}
"""
COMPLETE = "POST /task-runs/{task_run_id}/complete"
FAILURE = """
{
  "success": false,
  "error": "failure reason"
}
"""
FAIL_BODY = """
{
  "output": {
    "error": "failure reason"
  }
}
"""
FAIL = "POST /task-runs/{task_run_id}/fail"
ARTIFACT_OUTPUT = """
{
  "success": true,
  "output": {
    "text": "short summary",
    "artifacts": [
      {
        "artifact_type": "report",
        "filename": "reports/result.md",
        "title": "Result Report",
        "summary": "short description",
        "keywords": ["optional"],
        "mime_type": "text/markdown",
        "content_text": "# Report content..."
      }
    ]
  }
}
"""
ARTIFACTS = "POST /task-runs/:taskRunId/artifacts"
PROFILE_FILE = "~/.a2a/runtime.json"
AGENT, CONVERSATION = "target_agent_id", "conversation_id"


class Recorder:
    """Passes requests on to the platform, and remembers those about task runs with their bodies."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.calls: list[tuple[str, Json]] = []
        self.tokens: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = bytearray()

        async def noted() -> Message:
            message = await receive()
            body.extend(message.get("body", b""))
            return message

        await self._app(scope, noted, send)
        if scope["type"] == "http" and scope["path"].startswith("/task-runs/"):
            self.calls.append((f"{scope['method']} {scope['path']}", json.loads(bytes(body))))
            self.tokens.append(dict(scope["headers"]).get(b"x-runtime-token", b"").decode())


class Site:
    """A platform, a machine with a runtime on it, and what goes between them."""

    def __init__(self, server: Server, recorder: Recorder, url: str, home: Path, http: httpx2.AsyncClient) -> None:
        self.server = server
        self.recorder = recorder
        self.url = url
        self.home = home
        self.http = http

    async def command(self, line: str, *more: str, home: Path | None = None, **env: str) -> Ended:
        """A command as the contract writes it."""
        name, *words = shlex.split(line)
        assert name == "a2a-runtime"
        return await run(home or self.home, *words, *more, **env)

    async def pair(self, *more: str, agent: str = AGENT, home: Path | None = None) -> Ended:
        code = await code_for(self.http, self.url, agent)
        done = await self.command("a2a-runtime pair", "--code", code, "--api-base", self.url, *more, home=home)
        assert done.code == 0, done.err
        return done

    def profile(self, name: str = "default") -> Json:
        return json.loads((self.home / "runtime.json").read_text())["profiles"][name]

    async def work(self, endpoint: str, *start: str) -> Json:
        """A task run on a machine that is paired already: what `pair` does has tests of its own."""
        attached = (await attach(self.http, self.url, await code_for(self.http, self.url, AGENT))).json()
        names = ("runtime_token", "runtime_id", "agent_id", "platform")
        profile = {"api_base": self.url, "local_agent_endpoint": endpoint, **{name: attached[name] for name in names}}
        self.home.mkdir(mode=0o700, exist_ok=True)
        (self.home / "runtime.json").write_text(json.dumps({"profiles": {"default": profile}}))
        (self.home / "runtime.json").chmod(0o600)
        return await self.asked(*start)

    async def asked(self, *start: str, **env: str) -> Json:
        """The contract's request as one task run, from a client's message to its end: the A2A task."""
        async with Client(self.server.agent(AGENT)) as client, runtime(self.home, *start, **env):
            said = {**message(from_json(REQUEST_BODY)["input"]["text"]), "contextId": CONVERSATION}
            return (await client.call("SendMessage", {"message": said}))["task"]

    def sent(self, request: str, task: Json) -> list[Json]:
        """Bodies of a request that the runtime made about a task run."""
        path = substituted(request, {name: task["id"] for name in ("{task_run_id}", ":taskRunId") if name in request})
        return [body for made, body in self.recorder.calls if made == path]


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    platform = from_json(REQUEST_BODY)["platform"]
    named = {"platform_name": platform["name"], "platform_origin": platform["origin"]}
    async with AsyncExitStack() as stack:
        opening = serving(tmp_path / "data", [edge(AGENT), edge("another")], store="memory", **named)
        server = await stack.enter_async_context(opening)
        recorder = Recorder(server.app)
        url = await stack.enter_async_context(hosting(recorder))
        yield Site(server, recorder, url, tmp_path / "a2a", await stack.enter_async_context(web()))


def state(task: Json) -> str:
    return task["status"]["state"].removeprefix("TASK_STATE_").lower()


def texts(task: Json) -> list[str]:
    return [part.get("text", "") for made in task.get("artifacts", []) for part in made["parts"]]


async def test_environment_binding_api_base_rule(site: Site, tmp_path: Path) -> None:
    """A pairing token counts at the API that issued it; `start` and `status` use the API that was paired."""
    async with serving(tmp_path / "elsewhere", [edge(AGENT)], store="memory") as other:
        code = await code_for(site.http, site.url, AGENT)
        mixed = await site.command("a2a-runtime pair", "--code", code, "--api-base", other.url)
    assert (mixed.code, "Invalid pairing token" in mixed.err) == (4, True)
    elsewhere = {"A2A_API_BASE": "http://127.0.0.1:9"}
    async with local_agent(from_json(ENVELOPE)) as agent:
        here = ("--api-base", site.url, "--endpoint", agent.endpoint)
        assert (await site.command("a2a-runtime pair", "--code", code, *here)).code == 0
        assert site.profile()["api_base"] == site.url
        status = await site.command("a2a-runtime status", "--json", **elsewhere)
        assert (status.code, status.json["api_base"], status.json["remote"]["agent_id"]) == (0, site.url, AGENT)
        assert state(await site.asked(**elsewhere)) == "completed"


async def test_official_runtime_default(site: Site) -> None:
    await site.pair()
    assert site.profile()["local_agent_endpoint"] == DEFAULT_ENDPOINT
    async with local_agent(from_json(ENVELOPE)) as agent:
        await site.pair("--endpoint", agent.endpoint)
        assert site.profile()["local_agent_endpoint"] == agent.endpoint


async def test_profile_resolution_explicit_then_active_then_only(site: Site) -> None:
    await site.pair()
    assert (await site.command("a2a-runtime status", "--json")).json["agent_id"] == AGENT, "the only profile"
    await site.pair("--profile", "second", agent="another")
    assert (await site.command("a2a-runtime status", "--json")).json["agent_id"] == "another", "the newly paired one"
    explicit = await site.command("a2a-runtime status", "--profile", "default", "--json")
    assert explicit.json["agent_id"] == AGENT
    file = site.home / "runtime.json"
    said = json.loads(file.read_text())
    assert said.pop("active_profile") == "second"
    file.write_text(json.dumps(said))
    for command in ("a2a-runtime start", "a2a-runtime status"):
        ambiguous = await site.command(command)
        assert (ambiguous.code, "--profile" in ambiguous.err) == (2, True)


async def test_openclaw_compatibility(site: Site) -> None:
    await site.pair("--endpoint", OPENCLAW_ENDPOINT)
    assert site.profile()["local_agent_endpoint"] == OPENCLAW_ENDPOINT
    await site.pair("--preset", "openclaw")
    assert site.profile()["local_agent_endpoint"] == OPENCLAW_ENDPOINT
    async with local_agent(from_json(ENVELOPE)) as agent:
        task = await site.work(f"{agent.wire.origin}/execute")
    assert ([asked.path for asked in agent.asked], state(task)) == (["/execute"], "completed")


async def test_request(site: Site) -> None:
    """The runtime sends the members of the example and no others, with the contract's values where possible."""
    async with local_agent(from_json(ENVELOPE)) as agent:
        task = await site.work(agent.endpoint)
    (asked,) = agent.asked
    method, path = REQUEST.split()[:2]
    assert (asked.method, asked.path, asked.headers["content-type"]) == (method, path, "application/json")
    sent, shown = json.loads(asked.body), from_json(REQUEST_BODY)
    assert set(sent) == set(shown)
    assert_like(shown, sent)
    own = {"task_run_id": task["id"], "workspace_id": sent["workspace_id"], "initiator_agent_id": ""}
    assert sent == {**shown, **own}


async def test_request_to_an_adapter() -> None:
    """The same body, byte for byte, to the adapter of the runtime's own package."""
    async with Adapter(lambda task: from_json(ENVELOPE)["output"]["text"]).listening(0) as url, web() as http:
        assert url.endswith(REQUEST.split()[1])
        headers = {"Content-Type": "application/json"}
        reply = await http.post(url, content=REQUEST_BODY, headers=headers)
        assert (reply.status_code, reply.json()) == (200, from_json(ENVELOPE))
        old = {name: value for name, value in from_json(REQUEST_BODY).items() if name != "platform"}
        assert (await http.post(url, json=old)).json() == from_json(ENVELOPE)


async def test_platform_origin_field(site: Site) -> None:
    async with local_agent(from_json(ENVELOPE)) as agent:
        await site.work(agent.endpoint)
    (asked,) = agent.asked
    assert json.loads(asked.body)["platform"] == from_json(REQUEST_BODY)["platform"]
    secret = site.profile()["runtime_token"]
    assert all(word not in asked.body.decode() for word in (secret, site.url, "api_base", "runtime_token"))
    assert secret not in str(asked.headers)


@pytest.mark.parametrize("shape", [ENVELOPE, DIRECT], ids=["explicit-envelope", "legacy-direct-output"])
async def test_successful_response(site: Site, shape: str) -> None:
    async with local_agent(shape.encode()) as agent:
        task = await site.work(agent.endpoint)
    assert (state(task), texts(task)) == ("completed", ["result"])
    (body,) = site.sent(COMPLETE, task)
    assert body["output"] == from_json(shape).get("output", from_json(shape))


async def test_failed_response(site: Site) -> None:
    async with local_agent(FAILURE.encode()) as agent:
        task = await site.work(agent.endpoint)
    assert (state(task), task["status"]["message"]["parts"]) == ("failed", [{"text": "failure reason"}])
    (body,) = site.sent(FAIL, task)
    assert_contains(from_json(FAIL_BODY), body)
    assert site.sent(COMPLETE, task) == []


@pytest.mark.parametrize(
    ("status", "body", "media"),
    [
        (500, ENVELOPE.encode(), "application/json"),
        (200, b"result", "text/plain"),
        (200, b'["result"]', "application/json"),
    ],
    ids=["non-2xx", "non-json", "non-object"],
)
async def test_failed_response_fails_the_task_when_it(site: Site, status: int, body: bytes, media: str) -> None:
    async with local_agent(body, status=status, media_type=media) as agent:
        task = await site.work(agent.endpoint)
    assert (state(task), len(site.sent(FAIL, task)), site.sent(COMPLETE, task)) == ("failed", 1, [])


async def test_failed_response_cannot_be_reached(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    task = await site.work(f"http://127.0.0.1:{port}/run-task")
    assert (state(task), len(site.sent(FAIL, task))) == ("failed", 1)


async def test_failed_response_times_out(site: Site) -> None:
    async def never(asked: Asked) -> Said:
        await asked.hung_up.wait()
        return Said()

    async with local_agent(answering=never) as agent:
        task = await site.work(agent.endpoint, "--timeout", "0.3")
    assert (state(task), len(site.sent(FAIL, task))) == ("failed", 1)


@pytest.mark.parametrize("name", ["artifacts", "artifact_writes"])
async def test_adapter_artifact_output_shape(site: Site, name: str) -> None:
    answer = substituted(ARTIFACT_OUTPUT, {'"artifacts"': f'"{name}"'})
    async with local_agent(answer.encode()) as agent:
        task = await site.work(agent.endpoint)
    (wanted,) = from_json(ARTIFACT_OUTPUT)["output"]["artifacts"]
    (report,) = [one for one in task["artifacts"] if one["name"] == wanted["title"]]
    assert report["description"] == wanted["summary"]
    (part,) = report["parts"]
    assert (part["text"], part["filename"]) == (wanted["content_text"], wanted["filename"])
    assert part["mediaType"] == wanted["mime_type"]
    assert state(task) == "completed"


async def test_runtime_materialization(site: Site) -> None:
    async with local_agent(ARTIFACT_OUTPUT.encode()) as agent:
        task = await site.work(agent.endpoint)
    (wanted,) = from_json(ARTIFACT_OUTPUT)["output"]["artifacts"]
    (written,) = site.sent(ARTIFACTS, task)
    assert_contains(wanted, written)
    assert set(site.recorder.tokens) == {site.profile()["runtime_token"]}
    (completed,) = site.sent(COMPLETE, task)
    output = completed["output"]
    assert output["text"] == "short summary"
    assert not {"artifacts", "artifact_writes"} & set(output)
    assert wanted["content_text"] not in json.dumps(completed)
    (part,) = output["parts"]
    assert (part["type"], part["filename"]) == ("artifact_ref", wanted["filename"])
    assert part["artifact_id"] in {one["artifactId"] for one in task["artifacts"]}
    assert [made.rpartition("/")[2] for made, _ in site.recorder.calls] == ["artifacts", "complete"]


async def test_runtime_materialization_write_fails(site: Site) -> None:
    """The platform refuses a media type that is none."""
    answer = substituted(ARTIFACT_OUTPUT, {"text/markdown": "no media type"})
    async with local_agent(answer.encode()) as agent:
        task = await site.work(agent.endpoint)
    (body,) = site.sent(FAIL, task)
    assert body["output"]["code"] == "ARTIFACT_WRITE_FAILED"
    assert (state(task), len(site.sent(ARTIFACTS, task)), site.sent(COMPLETE, task)) == ("failed", 1, [])


@pytest.mark.parametrize(
    ("request_", "text", "status"),
    [(COMPLETE, json.dumps({"output": from_json(ENVELOPE)["output"]}), "completed"), (FAIL, FAIL_BODY, "failed")],
    ids=["complete", "fail"],
)
async def test_task_run_bodies(site: Site, request_: str, text: str, status: str) -> None:
    """Any runtime may send the contract's bodies as they stand: token and task run say who sends them."""
    raw = await paired(site.http, site.server.url, AGENT)
    async with Client(site.server.agent(AGENT)) as client:
        asked = asyncio.create_task(client.send("user request"))
        (work,) = await raw.pull(10_000)
        if status == "completed":
            path = substituted(ARTIFACTS, {":taskRunId": work.id}).split()[1]
            (wanted,) = from_json(ARTIFACT_OUTPUT)["output"]["artifacts"]
            assert (await raw.post(path, wanted)).status_code == 201
        path = substituted(request_, {"{task_run_id}": work.id}).split()[1]
        ended = await raw.post(path, from_json(text))
        assert (ended.status_code, ended.json()["status"]) == (200, status)
        assert state((await asked)["task"]) == status


async def test_security_boundary(site: Site, tmp_path: Path) -> None:
    """The adapter listens on this machine only; the token is in the profile file, which is its owner's alone."""
    async with Adapter(lambda task: "result").listening(0) as url:
        assert url.startswith("http://127.0.0.1:")
    exposed = await site.command("a2a-runtime adapter --command cat --port 0 --host 0.0.0.0")
    assert exposed.code != 0
    code = await code_for(site.http, site.url, AGENT)
    done = await run(tmp_path, "pair", "--code", code, "--api-base", site.url, HOME=str(tmp_path), A2A_HOME="")
    assert done.code == 0, done.err
    mode, said = kept(Path(substituted(PROFILE_FILE, {"~": str(tmp_path)})))
    assert mode == 0o600
    assert said["profiles"]["default"]["runtime_token"]


def kept(file: Path) -> tuple[int, Json]:
    return file.stat().st_mode & 0o777, json.loads(file.read_text())
