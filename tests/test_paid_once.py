"""Nothing is paid twice: a server is killed at every step of a function agent, of a model's tool rounds, and of the
agents of three frameworks."""

import sys
from pathlib import Path

import pytest

from tests.paid import pay
from tests.paid_agents import STEPS

HERE = Path(__file__).parent
TOOLS = HERE / "tools" / "mcp" / "hostile.py"
CHAT = """
slug: chat
model: openai:chat
llm:
  base_url: {url}
  key_from: TEST_KEY
  retries: 0
  max_rounds: 20
mcp:
  - name: s
    run: [{python}, {tools}]
"""
FRAMEWORKS = ("pydantic-ai", "openai-agents", "langgraph")
PACKAGES = ("pydantic_ai.models.openai", "agents", "langchain.agents", "parley.drivers.graph")


@pytest.fixture(params=["sqlite", "postgres"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    if request.param == "sqlite":
        return {}
    database = request.getfixturevalue("database")
    return {"PARLEY_STORE": "postgres", "PARLEY_POSTGRES_URL": database, "PARLEY_BLOBS": str(tmp_path / "blobs"),
            "PARLEY_LEASE_S": "1"}  # fmt: skip


@pytest.mark.slow
async def test_a_model_is_paid_again_only_for_a_call_in_flight(tmp_path: Path, env: dict[str, str]) -> None:
    def definitions(url: str) -> list[Path]:
        chat = tmp_path / "chat.yaml"
        chat.write_text(CHAT.format(url=url, python=sys.executable, tools=TOOLS))
        return [HERE / "paid_agents.py", chat]

    _, ends = await pay(tmp_path, ("stepper", "chat"), definitions, env)
    assert ends[0]["artifacts"][0]["parts"][0]["text"] == " ".join(f"answer-{step}" for step in range(1, STEPS + 1))


@pytest.mark.slow
async def test_the_model_of_a_framework_is_paid_again_only_for_a_call_in_flight(
    tmp_path: Path, env: dict[str, str]
) -> None:
    model, ends = await pay(tmp_path, FRAMEWORKS, lambda url: [HERE / "paid_frameworks.py"], env, PACKAGES)
    assert [end["artifacts"][0]["parts"][0]["text"] for end in ends] == ["Done."] * len(FRAMEWORKS)
    # A tool call may be in flight when the server is killed too.
    assert len(model.tools) == len(FRAMEWORKS) * (STEPS - 1)
    assert all(count <= 2 for count in model.tools.values())
