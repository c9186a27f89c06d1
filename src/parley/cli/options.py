"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from parley.cli.completing import agents

DEFAULT_URL = "http://127.0.0.1:8200"

Url = Annotated[str, typer.Option("--url", envvar="PARLEY_URL", help="The server's address.")]
Token = Annotated[
    str | None,
    typer.Option("--token", envvar="PARLEY_TOKEN", help="API key or token, for the server at --url only."),
]
GrpcPort = Annotated[
    int | None, typer.Option(help="Port for gRPC; the one after --port if left out, 0 a free one, -1 none.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Where the database lives.")]
RunArgument = Annotated[str, typer.Argument(help="The task's id.")]
AgentArgument = Annotated[str, typer.Argument(help="An agent's slug here, or any A2A address.", autocompletion=agents)]
EdgeArgument = Annotated[str, typer.Argument(help="The agent's slug; its driver is edge.", autocompletion=agents)]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        help="The agent's slug or address; needed only where --url is not the server.",
        autocompletion=agents,
    ),
]
Files = Annotated[
    list[str] | None, typer.Option("--file", help="Send this file too; may be repeated; - is standard input.")
]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the answer, or only until it is accepted.")]
