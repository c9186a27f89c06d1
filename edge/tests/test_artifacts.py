"""Files that a local agent makes: the platform keeps them, the result only names them."""

import json
from typing import Any

import pytest

from edge.tests.conftest import Pair
from edge.tests.platform import Platform, Run
from edge.tests.programs import local_agent, runtime

Json = dict[str, Any]
REPORT = {
    "artifact_type": "report", "filename": "reports/result.md", "title": "Result Report",
    "summary": "short description", "keywords": ["optional"], "mime_type": "text/markdown",
    "content_text": "# Report content...",
}  # fmt: skip
REF = {
    "artifact_id": "artifact-1", "filename": "reports/result.md", "title": "Result Report",
    "mime_type": "text/markdown", "artifact_type": "report", "summary": "short description",
}  # fmt: skip


async def made(platform: Platform, paired: Pair, answer: Json) -> Run:
    async with local_agent(answer) as agent, runtime(await paired(agent.endpoint)):
        return await platform.ended(platform.ask("report"))


def files(*names: str) -> list[Json]:
    return [{"filename": name, "content_text": f"content of {name}"} for name in names]


@pytest.mark.parametrize("alias", ["artifacts", "artifact_writes"])
async def test_an_artifact_is_written_and_referred_to(platform: Platform, paired: Pair, alias: str) -> None:
    run = await made(platform, paired, {"success": True, "output": {"text": "short summary", alias: [REPORT]}})
    assert run.output == {
        "text": "short summary",
        "parts": [{"type": "artifact_ref", **REF}],
        "artifact_refs": [REF],
    }
    written = {name: value for name, value in run.artifacts[0].items() if name in REPORT}
    assert written == REPORT


async def test_many_artifacts_keep_their_order_and_the_parts_there_were(platform: Platform, paired: Pair) -> None:
    parts = [{"type": "text", "text": "first"}]
    run = await made(platform, paired, {"text": "three", "parts": parts, "artifacts": files("a.md", "b.csv", "c")})
    assert run.output is not None
    assert run.output["parts"][0] == parts[0]
    assert [part["filename"] for part in run.output["parts"][1:]] == ["a.md", "b.csv", "c"]
    assert [one["index"] for one in run.artifacts] == [0, 1, 2]
    assert [one["mime_type"] for one in run.artifacts] == ["text/markdown", "text/csv", "text/plain"]


async def test_content_never_leaves_with_the_result(platform: Platform, paired: Pair) -> None:
    output = {"text": "ok", "deep": [{"content_text": "secret", "kept": 1}], "artifacts": [REPORT], "content_text": "x"}
    run = await made(platform, paired, {"success": True, "output": output})
    assert "content_text" not in json.dumps(run.output)
    assert run.output is not None
    assert run.output["deep"] == [{"kept": 1}]


@pytest.mark.parametrize("none", [[], None])
async def test_no_artifacts_is_a_plain_result(platform: Platform, paired: Pair, none: Any) -> None:
    run = await made(platform, paired, {"success": True, "output": {"text": "ok", "artifacts": none}})
    assert run.output == {"text": "ok"}


async def test_a_write_that_is_refused_fails_the_task_and_leaves_the_earlier_ones(
    platform: Platform, paired: Pair
) -> None:
    platform.fault("/artifacts", status=400, skip=1)
    run = await made(platform, paired, {"text": "ok", "artifacts": files("a.md", "b.md", "c.md")})
    assert run.state == "failed"
    assert run.output is not None
    assert run.output["code"] == "ARTIFACT_WRITE_FAILED"
    assert "b.md" in run.output["error"]
    assert [one["filename"] for one in run.artifacts] == ["a.md"]
    assert platform.called("/complete") == []


async def test_a_write_that_the_platform_has_a_lasting_fault_with_fails_the_task(
    platform: Platform, paired: Pair
) -> None:
    platform.fault("/artifacts", times=99, status=500, skip=1)
    run = await made(platform, paired, {"text": "ok", "artifacts": files("a.md", "b.md", "c.md")})
    assert run.output is not None
    assert run.output["code"] == "ARTIFACT_WRITE_FAILED"
    assert len(platform.called("/artifacts")) == 1 + 3
    assert platform.called("/complete") == []


@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 500}, {}, {"after": True}])
async def test_a_passing_fault_does_not_hurt_a_write(platform: Platform, paired: Pair, fault: Json) -> None:
    platform.fault("/artifacts", times=2, skip=1, **fault)
    run = await made(platform, paired, {"text": "ok", "artifacts": files("a.md", "b.md", "c.md")})
    assert run.state == "completed"
    assert [one["filename"] for one in run.artifacts] == ["a.md", "b.md", "c.md"]


async def test_a_bad_filename_fails_before_anything_is_written(platform: Platform, paired: Pair) -> None:
    run = await made(platform, paired, {"text": "ok", "artifacts": files("good.md", "../bad.md")})
    assert run.output is not None
    assert run.output["code"] == "ARTIFACT_WRITE_FAILED"
    assert platform.called("/artifacts") == []


async def test_the_agent_cannot_choose_an_artifacts_id(platform: Platform, paired: Pair) -> None:
    run = await made(platform, paired, {"text": "ok", "artifacts": [{**REPORT, "artifact_id": "mine"}]})
    assert run.output is not None
    assert run.output["artifact_refs"] == [REF]


async def test_a_lease_that_is_lost_between_two_files_ends_the_delivery(platform: Platform, paired: Pair) -> None:
    async with local_agent({"text": "ok", "artifacts": files("a.md", "b.md")}) as agent:
        home = await paired(agent.endpoint)
        platform.fault("/artifacts", times=1, status=503, skip=1)
        async with runtime(home) as program:
            run = platform.ask("report")
            await program.says("delivery.waits")
            run.state, run.lease = "claimed", "somebody else's"
            await program.says("task.lost")
    assert platform.called("/complete") == platform.called("/fail") == []
