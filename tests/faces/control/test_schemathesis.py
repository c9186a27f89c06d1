"""Whatever the contract's document allows, and much that it does not: what is answered is what the document says."""

import asyncio
import os
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from parley import telemetry
from parley.client.control import Owner, RuntimeClient
from parley.testing.servers import serving
from tests.faces.control.conftest import AGENTS
from tests.faces.control.fuzzing import REACHED, RUNS, USER
from tests.faces.control.wire import SECRET, THREAD

ROOT = Path(__file__).parents[3]
CHECKS = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_headers_conformance",
    "response_schema_conformance", "allow_header_conformance", "unsupported_method", "negative_data_rejection",
)  # fmt: skip
EXAMPLES = 10


async def prepared(client: RuntimeClient) -> None:
    """Runs in several states, for requests to hit."""
    for run in RUNS:
        await client.create_run(THREAD, run=run, agent="echo")
        await client.say(run, THREAD, "hi")
    await client.finish("run_ended", THREAD)
    await client.cancel("run_canceled", THREAD)


async def fuzzed(url: str, document: Path, reached: Path) -> tuple[int, str]:
    """The same requests in every run."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "schemathesis.cli", "run", str(document), "--url", url, "--checks", ",".join(CHECKS),
        "--phases", "coverage,fuzzing", "--max-examples", str(EXAMPLES), "--generation-deterministic",
        "--generation-with-security-parameters", "false", "--continue-on-failure", "--no-color", "--warnings", "off",
        cwd=document.parent, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={
            **os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), REACHED: str(reached),
            "SCHEMATHESIS_HOOKS": "tests.faces.control.fuzzing",
        },
    )  # fmt: skip
    output, _ = await process.communicate()
    return process.returncode or 0, output.decode()


@pytest.mark.slow
async def test_every_answer_is_in_the_document(tmp_path: Path) -> None:
    crashes: list[object] = []
    detach = telemetry.attach(lambda name, fields: crashes.append(fields) if name == "http.crashed" else None)
    document, reached = tmp_path / "openapi.json", tmp_path / "reached"
    try:
        async with (
            serving(tmp_path / "data", AGENTS) as server,
            RuntimeClient(server.url, SECRET, owner=Owner(user_id=USER)) as client,
        ):
            await prepared(client)
            described = await client.openapi()
            document.write_bytes(msgspec.json.encode(described))
            code, output = await fuzzed(server.url, document, reached)
    finally:
        detach()
    assert code == 0, output
    assert crashes == []
    answers = Counter(reached.read_text().splitlines())
    for path in described["paths"].values():
        for operation in path.values():
            assert answers[f"{operation['operationId']} 200"] > 0, answers
