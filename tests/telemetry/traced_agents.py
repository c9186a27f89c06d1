"""An agent that uses a tool and asks another agent, and one that is asked."""

from parley import Text, Turn, agent


@agent("desk", tools=("ledger",))
async def desk(turn: Turn):
    found = await turn.use("supabase-query", {"query": {"table": "financial_transactions", "limit": 1}})
    answer = await turn.ask("abroad", f"{found.status} {turn.text}")
    yield Text(answer.text)


@agent("clerk")
async def clerk(turn: Turn):
    yield Text(f"noted: {turn.text}")
