"""The conformance cases for A2A 1.1 hold for this server, and notice servers that break them."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dev.conformance.a2a11 import runner
from dev.conformance.a2a11.runner import Case, cases, run
from dev.conformance.a2a11.wires import Wire, wires_of
from parley.testing.conformance_agent import conformance
from parley.testing.servers import serving


@pytest.fixture
async def wires(tmp_path: Path) -> AsyncIterator[list[Wire]]:
    async with serving(tmp_path / "data", [conformance()], grpc_port=0) as server:
        found = await wires_of(server.agent("conformance"))
        yield found
        for wire in found:
            await wire.close()


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.id)
async def test_a_case_holds_on_every_binding(wires: list[Wire], case: Case) -> None:
    assert {wire.name: await run(case, wire) for wire in wires} == {"JSON-RPC": [], "HTTP+JSON": [], "gRPC": []}


async def test_cases_notice_a_server_without_generations(wires: list[Wire]) -> None:
    wire = next(one for one in wires if one.name == "JSON-RPC")
    wire.version = "1.0"
    failed = {case.id for case in cases() if await run(case, wire)}
    assert failed >= {"GEN-001", "GEN-002", "GEN-003", "SEND-002", "SEND-003", "SEND-005"}


async def test_cases_notice_a_generation_that_repeats(wires: list[Wire], monkeypatch: pytest.MonkeyPatch) -> None:
    def repeated(frame: dict[str, Any]) -> dict[str, Any]:
        kind = next(iter(frame))
        return {**frame[kind], "generation": 1}

    monkeypatch.setattr(runner, "update_in", repeated)
    found = {case.id: case for case in cases()}
    assert await run(found["GEN-002"], wires[0])
