"""A Google ADK agent at an A2A address: `parley serve adk_agent.py`."""

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.runners import InMemoryRunner
from google.genai.types import Content, Part

from parley import Text, Turn, Usage, agent

runner = InMemoryRunner(LlmAgent(name="guide", model="gemini-2.5-flash", instruction="Be brief."), app_name="guide")
runner.auto_create_session = True


@agent("guide")
async def guide(turn: Turn):
    """Answers with a Google ADK agent. Its words are streamed, and a cancel stops it."""
    message = Content(role="user", parts=[Part(text=turn.text)])
    mode = RunConfig(streaming_mode=StreamingMode.SSE)
    caller = {"user_id": str(turn.principal), "session_id": turn.conversation}
    async for event in runner.run_async(**caller, new_message=message, run_config=mode):
        if event.partial and event.content:
            yield Text("".join(part.text or "" for part in event.content.parts or []))
        elif used := event.usage_metadata:
            yield Usage("gemini-2.5-flash", used.prompt_token_count or 0, used.candidates_token_count or 0)
