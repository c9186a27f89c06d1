"""Whatever the contract's document allows, and much that it does not: what is answered is what the document says."""

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

import httpx2
import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from parley import Text, Turn, agent, telemetry
from parley.testing.databases import fresh_database
from parley.testing.servers import serving
from tests.faces.actions.agents import AGENTS
from tests.faces.actions.desk import Desk
from tests.faces.actions.fuzzing import KNOWN, REACHED
from tests.tools.mcp.conftest import server as tool_server

ROOT = Path(__file__).parents[3]
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "allow_header_conformance", "unsupported_method", "negative_data_rejection",
)  # fmt: skip
EXAMPLES = 20


@agent("caller", mcp=(tool_server(),))
async def caller(turn: Turn):
    """Has tools."""
    yield Text("none")


async def prepared(desk: Desk) -> dict[str, list[str]]:
    conversation, first, second = await desk.planned("plan")
    await desk.planned("build", conversation)
    read = await desk.ask(conversation, "plan", "read")
    called = await desk.ask(conversation, "tool", "execute", "caller", toolName="echo", input={"n": 1})
    begun = await desk.ask(conversation, "orchestrate", "create", message="Go")
    empty = await desk.begin()
    return {
        "conversations": [conversation, conversation, empty],
        "versions": [first, second],
        "tasks": [first, second, read.task, called.task],
        "executions": [called.task],
        "orchestrations": [begun.result["orchestration"]["id"]],
    }


async def fuzzed(url: str, document: Path, reached: Path, known: dict[str, list[str]]) -> tuple[int, str]:
    """The same requests in every run."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "schemathesis.cli", "run", str(document), "--url", url, "--checks", ",".join(CHECKS),
        "--phases", "coverage,fuzzing", "--max-examples", str(EXAMPLES), "--generation-deterministic",
        "--generation-with-security-parameters", "false", "--continue-on-failure", "--no-color", "--warnings", "off",
        cwd=document.parent, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={
            **os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), REACHED: str(reached),
            KNOWN: msgspec.json.encode(known).decode(), "SCHEMATHESIS_HOOKS": "tests.faces.actions.fuzzing",
        },
    )  # fmt: skip
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


@pytest.mark.slow
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
async def test_every_answer_is_in_the_document(request: pytest.FixtureRequest, tmp_path: Path, store: str) -> None:
    crashes: list[object] = []
    detach = telemetry.attach(lambda name, fields: crashes.append(fields) if name == "http.crashed" else None)
    document, reached = tmp_path / "openapi.json", tmp_path / "reached"
    settings: dict[str, object] = {"store": store}
    if store == "postgres":
        settings["postgres_url"] = await fresh_database(request.getfixturevalue("postgres"))
    try:
        async with (
            serving(tmp_path / "data", [*AGENTS, caller], **settings) as server,
            httpx2.AsyncClient(base_url=server.url, timeout=20) as http,
        ):
            desk = await Desk.open(http)
            known = await prepared(desk)
            document.write_bytes(msgspec.json.encode(desk.document))
            code, output = await fuzzed(server.url, document, reached, known)
    finally:
        detach()
    assert code == 0, output
    assert crashes == []
    answers = Counter(reached.read_text().splitlines())
    for path in desk.document["paths"].values():
        for operation in path.values():
            assert answers[f"{operation['operationId']} 200"] > 0, answers
    for status in (202, 400, 404, 409):
        assert answers[f"performAction {status}"] > 0, answers


async def test_the_document_is_valid_and_has_a_schema_for_each_action(tmp_path: Path) -> None:
    async with serving(tmp_path, (), store="memory") as server, httpx2.AsyncClient(base_url=server.url) as http:
        document = (await Desk.open(http)).document
    validate(document, cls=OpenAPIV31SpecValidator)
    schemas = document["components"]["schemas"]
    for row in document["x-actions"]:
        chosen = schemas[row["request"]]["properties"]
        assert (chosen["mode"]["enum"], chosen["action"]["enum"]) == ([row["mode"]], [row["action"]])
        assert row["result"] in schemas
