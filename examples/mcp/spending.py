"""An agent that uses tools of MCP servers: it reads data, draws a chart and reports the result."""

from collections import defaultdict

from parley import AgentError, ArtifactChunk, Status, Text, Turn


async def spending(turn: Turn):
    """Tells what was spent and earned in a quarter such as 2025-Q1, with a chart."""
    year, _, quarter = turn.text.strip().partition("-Q")
    if not (year.isdigit() and quarter in {"1", "2", "3", "4"}):
        raise AgentError("Name a quarter, such as 2025-Q1.")
    first = int(quarter) * 3 - 2
    where = {"date_gte": f"{year}-{first:02}-01", "date_lte": f"{year}-{first + 2:02}-31"}
    yield Status("Looking at the accounts")
    rows = (await _used(turn, "supabase-query", {"query": {"table": "financial_transactions", "where": where}}))["rows"]
    sums: dict[str, float] = defaultdict(float)
    for row in rows:
        sums[row["category"]] += row["amount"]
    yield Status("Drawing them")
    bars = [{"category": name, "amount": amount} for name, amount in sorted(sums.items())]
    drawn = await _used(turn, "chart-generator", {"rows": bars, "x": "category", "y": "amount", "title": turn.text})
    yield ArtifactChunk(drawn["svg"], id="chart", filename="chart.svg", media_type="image/svg+xml")
    yield Text("".join(f"{bar['category']}: {bar['amount']:,.2f}\n" for bar in bars))


async def _used(turn: Turn, tool: str, given: dict):
    """Call a tool. A turn that is restarted after a crash gets the earlier result and does not call it twice."""
    done = await turn.use(tool, given)
    if done.status != "completed":
        raise AgentError(f"{tool}: {done.message}")
    return done.output
