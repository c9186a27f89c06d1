"""Options that several commands share."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

# Shell completion of agent arguments: the slugs at --url, if a server answers within COMPLETION_S.

COMPLETION_S = 0.5
MAX_BYTES = 1 << 20


def agents(context: typer.Context, incomplete: str) -> list[str]:
    """Slugs that complete `incomplete`. None when no server answers: a shell must neither wait nor print errors."""
    try:
        found = _slugs(context.params["url"], context.params.get("token"))
    except (OSError, ValueError, LookupError, TypeError):
        return []
    return [slug for slug in found if slug.startswith(incomplete)]


def _slugs(url: str, token: str | None) -> list[str]:
    if not url.startswith(("http://", "https://")):
        return []
    from urllib.request import Request, urlopen

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urlopen(Request(url.rstrip("/") + "/", headers=headers), timeout=COMPLETION_S) as reply:
        return [str(agent["slug"]) for agent in json.loads(reply.read(MAX_BYTES))["agents"]]


DEFAULT_URL = "http://127.0.0.1:8200"

Url = Annotated[str, typer.Option("--url", envvar="PARLEY_URL", help="The server's address.")]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="PARLEY_TOKEN", help="API key or token, for the server at --url only."),
]
GrpcPort = Annotated[
    int | None, typer.Option(help="gRPC port; 0 picks a free port, -1 turns gRPC off. Default: --port + 1.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="The directory of the database.")]
RunArgument = Annotated[str, typer.Argument(help="The task's id.")]
AgentArgument = Annotated[
    str, typer.Argument(help="An agent's slug at --url, or any A2A address.", autocompletion=agents)
]
EdgeArgument = Annotated[str, typer.Argument(help="The slug of an agent with `driver: edge`.", autocompletion=agents)]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        help="The agent's slug or address; needed only if the task is not on the server at --url.",
        autocompletion=agents,
    ),
]
Files = Annotated[
    list[str] | None, typer.Option("--file", help="Attach this file; may be repeated; - reads standard input.")
]
Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait for the answer, or only until the task is accepted.")
]


# Exit codes of every command.

OK = 0
ERROR = 1
"""The server refused, or cannot be reached."""
USAGE = 2
NOT_COMPLETED = 3
"""The task ended in another state than completed."""
WAITS = 4
"""The task waits for an answer."""
INTERRUPTED = 130


class TemplateKind(StrEnum):
    """Templates of `parley new`."""

    AGENT = "agent"
    LLM = "llm"
    WORKFLOW = "workflow"
    NODE = "node"
    ADAPTER = "adapter"
    ORG = "org"
    PYDANTIC_AI = "pydantic-ai"
    OPENAI_AGENTS = "openai-agents"
    LANGGRAPH = "langgraph"
