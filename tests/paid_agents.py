"""Agent of ten durable steps, each of which asks a model that counts."""

import os

import httpx2

from parley import Text, Turn, agent

STEPS = 10


async def ask_model(step: int) -> str:
    async with httpx2.AsyncClient(timeout=60) as http:
        return (await http.post(f"{os.environ['MODEL_URL']}/steps", json={"step": step})).text


@agent("stepper")
async def stepper(turn: Turn):
    """Asks the model ten times."""
    answers = [await turn.step("ask", ask_model, step) for step in range(1, STEPS + 1)]
    yield Text(" ".join(answers))
