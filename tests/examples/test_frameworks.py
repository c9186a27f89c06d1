"""Agents of other frameworks, each in an environment of its own, with a model server that speaks the vendor's wire."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parley.client import Client, Json
from parley.testing.processes import ServerProcess
from parley.testing.waiting import until
from tests.models.vendors import Asked, OpenAi, Reply, Vendor, serving_vendor

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "frameworks"
ENVIRONMENTS = ROOT / "build" / "environments"

pytestmark = pytest.mark.slow


def program_of(name: str) -> str:
    program = ENVIRONMENTS / name / "bin" / "parley"
    if not (ENVIRONMENTS / name / ".installed").exists():
        pytest.skip(f"the environment of {name} is not built; make environments builds it")
    return str(program)


@asynccontextmanager
async def served(program: str, example: str, folder: Path, **env: str) -> AsyncIterator[str]:
    """Serve an example with the program of its environment; the URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [program, "serve", str(EXAMPLES / example), "--port", str(port)]
    given = {**os.environ, "PARLEY_STORE": "memory", "PARLEY_GRPC_PORT": "-1", "HOME": str(folder), **env}
    given.pop("PYTHONPATH", None)
    log = folder / "log"
    with log.open("w") as out:
        server = await asyncio.create_subprocess_exec(*command, cwd=folder, env=given, stdout=out, stderr=out)
    try:
        await until(lambda: "Parley listens on" in log.read_text() or server.returncode is not None, 60)
        assert server.returncode is None, log.read_text()
        yield f"http://127.0.0.1:{port}"
    finally:
        if server.returncode is None:
            server.terminate()
        await asyncio.wait_for(server.wait(), 20)


def text_of(task: Json) -> str:
    return "".join(part.get("text", "") for one in task["artifacts"] for part in one["parts"])


class Gemini(Vendor):
    """Google's streamed answers."""

    def reply_to(self, asked: Asked) -> Reply:
        assert ":streamGenerateContent" in asked.path
        return Reply((self._chunk("Go "), self._chunk("north.", finishReason="STOP")))

    @staticmethod
    def _chunk(text: str, **more: str) -> bytes:
        content = {"role": "model", "parts": [{"text": text}]}
        usage = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
        chunk = {"candidates": [{"content": content, "index": 0, **more}], "usageMetadata": usage}
        return b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n"


@pytest.mark.parametrize("example", ["adk_agent.py", "crew_agent.py", "sdk_executor.py"])
def test_the_page_shows_the_whole_example(example: str) -> None:
    page = (ROOT / "docs" / "howto" / "other-frameworks.md").read_text()
    _, _, program = (EXAMPLES / example).read_text().partition('"""\n\n')
    assert f"```python\n# {example}\n{program}```\n" in page


async def test_a_google_adk_agent_streams_and_reports_its_usage(tmp_path: Path) -> None:
    program = program_of("google-adk")
    async with serving_vendor(Gemini()) as model:
        env = {"GOOGLE_API_KEY": "k", "GOOGLE_GEMINI_BASE_URL": model.url}
        async with served(program, "adk_agent.py", tmp_path, **env) as url, Client(f"{url}/agents/guide") as client:
            task = (await client.send("Where to?"))["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task["status"]
    assert text_of(task) == "Go north."
    assert task["metadata"]["usage"]["outputTokens"] == 7


class Completions(Vendor):
    """OpenAI's answers in one piece."""

    def reply_to(self, asked: Asked) -> Reply:
        message = {"role": "assistant", "content": "Snow falls."}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
        body = {"id": "c-1", "object": "chat.completion", "created": 1, "model": "gpt-test", "choices": [choice]}
        assert asked.path == OpenAi.path
        return Reply((json.dumps({**body, "usage": usage}).encode(),), kind="application/json")


async def test_a_crew_writes_once(tmp_path: Path) -> None:
    program = program_of("crewai")
    async with serving_vendor(Completions()) as model:
        env = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": model.url, "CREWAI_DISABLE_TELEMETRY": "true",
               "OTEL_SDK_DISABLED": "true", "CREWAI_TRACING_ENABLED": "false"}  # fmt: skip
        async with served(program, "crew_agent.py", tmp_path, **env) as url, Client(f"{url}/agents/crew") as client:
            task = (await client.send("winter"))["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED", task["status"]
    assert text_of(task) == "Snow falls."
    assert len(model.asked) == 1


async def test_an_executor_of_the_official_sdk_is_served(tmp_path: Path) -> None:
    server = await ServerProcess.start([EXAMPLES / "sdk_executor.py"], tmp_path)
    try:
        async with Client(f"{server.url}/agents/echo") as client:
            task = (await asyncio.wait_for(client.send("hello"), 20))["task"]
    finally:
        await server.kill()
    assert text_of(task) == "hello"
