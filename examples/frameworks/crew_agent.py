"""A CrewAI crew at an A2A address: `parley serve crew_agent.py`."""

from crewai import LLM, Agent, Crew, Task

from parley import Text, Turn, agent

writer = Agent(role="Writer", goal="Write short texts", backstory="A poet.", llm=LLM("openai/gpt-5-mini"))
task = Task(description="Write about {topic}.", expected_output="One sentence.", agent=writer)


def work(topic: str) -> str:
    return Crew(agents=[writer], tasks=[task]).kickoff({"topic": topic}).raw


@agent("crew")
async def crew(turn: Turn):
    """Writes a sentence with a crew. A crash after the crew has finished does not start it again."""
    yield Text(await turn.step("crew", work, turn.text, retries=2))
