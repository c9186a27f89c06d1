"""The application object: served, mounted in another application, and asked in process."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from parley import Answer, ArtifactChunk, NeedInput, Parley, Settings, State, Text, Turn, agent
from parley.client import Client
from parley.errors import AgentNotFound, ConfigurationError
from parley.http.server import url_of

SERVER = """\
import sys
from parley import Parley, Text, agent

@agent("echo")
async def echo(turn):
    yield Text(turn.text)

Parley(agents=[echo], grpc_port=-1).run(port=0)
"""


@agent("echo")
async def echo(turn: Turn):
    """Repeats."""
    yield Text(turn.text)


@agent("greeter")
async def greeter(turn: Turn):
    if not turn.answers:
        yield NeedInput("What is your name?")
        return
    yield Text(f"Hello {turn.text}")


@agent("table")
async def table(turn: Turn):
    yield ArtifactChunk({"rows": 2}, name="table")


@agent("broken")
async def broken(turn: Turn):
    raise RuntimeError("a secret")
    yield


def memory(*agents: object, **settings: object) -> Parley:
    return Parley(agents=agents, store="memory", **settings)  # type: ignore[arg-type]


@asynccontextmanager
async def hosting(app: ASGIApp, lifespan: str = "on") -> AsyncGenerator[str, None]:
    """Serve an application with plain uvicorn, as users do."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, lifespan=lifespan, log_level="error", timeout_graceful_shutdown=2)  # type: ignore[arg-type]
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield url_of(listener)
    finally:
        server.should_exit = True
        await task
        assert server.started


async def asked(url: str, text: str = "hello") -> Answer:
    async with Client(url) as client:
        return await client.send(text)


async def test_an_agent_is_asked_without_a_socket() -> None:
    async with memory(echo, greeter, table) as app:
        answer = await app.ask("echo", "hi")
        assert (answer.state, answer.text, answer.question) == (State.COMPLETED, "hi", None)
        assert [part.text for one in answer.artifacts for part in one.parts] == ["hi"]
        question = await app.ask(greeter, "hello")
        assert (question.state, question.question) == ("input_required", "What is your name?")
        greeted = await app.ask(greeter, "Ada", task=question.run_id)
        assert (greeted.text, greeted.run_id) == ("Hello Ada", question.run_id)
        assert (await app.ask("table", "go")).data == {"rows": 2}
        again = await app.ask("echo", "more", context=answer.conversation)
        assert (again.conversation, again.run_id != answer.run_id) == (answer.conversation, True)


async def test_a_failure_has_a_code_and_a_reason_without_secrets() -> None:
    async with memory(broken) as app:
        answer = await app.ask("broken", "go")
        assert (answer.state, answer.code) == (State.FAILED, "agent_error")
        assert "RuntimeError" in answer.reason
        assert "secret" not in answer.reason
        with pytest.raises(AgentNotFound):
            await app.ask("nobody", "go")


async def test_the_application_can_be_started_again() -> None:
    app = memory(echo)
    for _ in range(2):
        async with app, app:
            assert (await app.ask("echo", "hi")).text == "hi"
    with pytest.raises(ConfigurationError, match="is not running"):
        await app.ask("echo", "hi")


async def test_work_is_kept_in_the_data_directory(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    async with Parley([greeter], settings) as app:
        question = await app.ask("greeter", "hi")
    async with Parley([greeter], settings) as app:
        assert (await app.ask("greeter", "Ada", task=question.run_id)).text == "Hello Ada"


async def test_definitions_are_agents_too(tmp_path: Path) -> None:
    (tmp_path / "words.yaml").write_text("command: wc -w\n")
    async with memory(tmp_path / "words.yaml", echo) as app:
        assert (await app.ask("words", "one two three")).text.strip() == "3"
        assert (await app.ask("echo", "hi")).text == "hi"


def test_what_is_not_an_agent_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"agents\[0\] is not an agent: decorate the function"):
        memory(lambda turn: "hi")
    with pytest.raises(ConfigurationError, match="not both: port"):
        Parley([echo], Settings(), port=1)
    with pytest.raises(ConfigurationError, match="Setting stroe"):
        memory(echo, stroe="memory")


async def test_uvicorn_serves_the_application_at_its_own_address() -> None:
    app = memory(echo)
    async with hosting(app.asgi()) as url:
        async with Client(f"{url}/agents/echo") as client:
            card = await client.card()
            assert card["supportedInterfaces"][0]["url"] == f"{url}/agents/echo"
        assert (await asked(f"{url}/agents/echo")).text == "hello"
        assert (await app.ask("echo", "beside")).text == "beside"
    with pytest.raises(ConfigurationError):
        _ = app.exchange


@pytest.mark.parametrize("path", ["/agents-server", ""])
@pytest.mark.parametrize("attended", [True, False])
async def test_starlette_mounts_the_application(path: str, attended: bool) -> None:
    app = memory(echo, greeter)

    async def page(request: Request) -> PlainTextResponse:
        return PlainTextResponse((await app.ask("echo", "from a page")).text)

    routes = [Route("/page", page), Mount(path or "/", app.asgi())]
    parent = Starlette(routes=routes, lifespan=app.lifespan if attended else None)
    async with hosting(parent) as url:
        at = f"{url}{path}/agents/greeter"
        async with Client(at) as client:
            card = await client.card()
            assert card["supportedInterfaces"][0]["url"] == at
            question = await client.send("hi")
            assert question.question == "What is your name?"
            events = [event async for event in client.stream("Ada", task=question.run_id)]
            assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        async with httpx2.AsyncClient() as http:
            assert (await http.get(f"{url}/page")).text == "from a page"
            assert (await http.get(f"{url}{path}/readyz")).status_code == 200
            assert (await http.get(f"{url}{path}/nothing")).json()["error"]["code"] == "not_found"


async def test_a_public_url_is_shown_in_cards() -> None:
    app = memory(echo, public_url="https://agents.example.com/a2a/")
    async with hosting(Starlette(routes=[Mount("/a2a", app.asgi())], lifespan=app.lifespan)) as url:
        async with Client(f"{url}/a2a/agents/echo") as client:
            card = await client.card()
        assert card["supportedInterfaces"][0]["url"] == "https://agents.example.com/a2a/agents/echo"


async def test_only_this_machine_is_served_without_authentication() -> None:
    """The server that hosts the application may listen anywhere, so each request is checked."""
    statuses: list[int] = []

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])  # type: ignore[arg-type]

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    for auth, server in [("local", ("192.0.2.1", 80)), ("local", None), ("local", ("127.0.0.1", 80)), ("none", None)]:
        app = memory(echo, auth=auth)
        scope = {
            "type": "http", "method": "GET", "path": "/readyz", "headers": [(b"host", b"localhost")], "server": server,
            "query_string": b"",
        }  # fmt: skip
        async with app:
            await app.asgi()(scope, receive, send)  # type: ignore[arg-type]
    assert statuses == [403, 403, 200, 200]


async def test_an_application_that_cannot_start_says_why() -> None:
    app, told = Parley([echo], store="postgres"), list[dict[str, object]]()

    async def receive() -> dict[str, object]:
        return {"type": "lifespan.startup"}

    async def send(message: dict[str, object]) -> None:
        told.append(message)

    await app.asgi()({"type": "lifespan"}, receive, send)  # type: ignore[arg-type]
    why = "The store postgres needs the setting postgres_url."
    assert told == [{"type": "lifespan.startup.failed", "message": why}]
    with pytest.raises(ConfigurationError, match="postgres_url"):
        await app.__aenter__()


@pytest.fixture
async def program(tmp_path: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    (tmp_path / "main.py").write_text(SERVER)
    made = await asyncio.create_subprocess_exec(
        sys.executable, "main.py", cwd=tmp_path, stderr=subprocess.PIPE, env={**os.environ, "PARLEY_LOG_LEVEL": "error"}
    )
    yield made
    if made.returncode is None:
        made.kill()
        await made.wait()


async def test_run_serves_until_it_is_stopped(program: asyncio.subprocess.Process, tmp_path: Path) -> None:
    assert program.stderr is not None
    url = ""
    async for line in program.stderr:
        if b"listens on" in line:
            url = line.decode().split()[-1]
            break
    assert (await asked(f"{url}/agents/echo")).text == "hello"
    program.send_signal(signal.SIGTERM)
    assert await program.wait() == 0
    assert (tmp_path / ".parley").is_dir()
