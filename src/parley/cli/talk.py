"""Talk to agents from the terminal."""

import asyncio
import json
from typing import Any

from rich.console import Console

from parley.cli.exits import NOT_COMPLETED, OK, WAITS
from parley.client import Client, Json

_COLOURS = {
    "COMPLETED": "green",
    "FAILED": "red",
    "REJECTED": "red",
    "CANCELED": "yellow",
    "INPUT_REQUIRED": "cyan",
}


def run_send(
    address: str, text: str, *, task: str | None, stream: bool, as_json: bool, token: str | None = None
) -> int:
    return asyncio.run(_send(Client(address, token=token), address, text, task, stream, as_json))


def run_tail(address: str, task: str, after: int | None, *, as_json: bool, token: str | None = None) -> int:
    return asyncio.run(_tail(Client(address, token=token), address, task, after, as_json))


async def _send(client: Client, address: str, text: str, task: str | None, stream: bool, as_json: bool) -> int:
    printer = _Printer(as_json)
    async with client:
        if stream:
            async for result in client.stream(text, task=task):
                printer.show(result)
        else:
            printer.show(await client.send(text, task=task))
    return printer.finish(address)


async def _tail(client: Client, address: str, task: str, after: int | None, as_json: bool) -> int:
    printer = _Printer(as_json)
    async with client:
        async for _, result in client.tail(task, after):
            printer.show(result)
    return printer.finish(address)


class _Printer:
    """Text as it comes on standard output, everything about it on standard error."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._notes = Console(stderr=True, highlight=False)
        self._mid_line = False
        self._task = ""
        self._state = ""

    def show(self, result: Json) -> None:
        if self._as_json:
            print(json.dumps(result, ensure_ascii=False), flush=True)
        if task := result.get("task"):
            self._see(task["id"], task["status"])
            for artifact in task.get("artifacts", []):
                self._artifact(artifact)
        elif update := result.get("statusUpdate"):
            self._see(update["taskId"], update["status"])
        elif update := result.get("artifactUpdate"):
            self._artifact(update["artifact"])
        elif message := result.get("message"):
            self._state = "COMPLETED"
            self._say(_text(message))

    def finish(self, address: str) -> int:
        if not self._as_json:
            self._break()
            colour = _COLOURS.get(self._state, "white")
            self._notes.print(f"[{colour}]{self._state.lower()}[/{colour}] [dim]{self._task}[/dim]")
            if self._state.endswith("REQUIRED"):
                self._notes.print(f"Answer: parley send {address} --task {self._task} 'your answer'", style="dim")
        if self._state.endswith("REQUIRED"):
            return WAITS
        return OK if self._state == "COMPLETED" else NOT_COMPLETED

    def _see(self, task: str, status: Json) -> None:
        self._task, self._state = task, str(status["state"]).removeprefix("TASK_STATE_")
        if not self._as_json and "message" in status:
            self._break()
            self._notes.print(f"[dim]{self._state.lower()}:[/dim] {_text(status['message'])}")

    def _artifact(self, artifact: Json) -> None:
        for part in artifact["parts"]:
            name = part.get("filename")
            if name and not self._as_json:
                self._break()
                self._notes.print(f"[dim]file {name}:[/dim]")
        self._say(_text(artifact))

    def _say(self, text: str) -> None:
        if text and not self._as_json:
            print(text, end="", flush=True)
            self._mid_line = not text.endswith("\n")

    def _break(self) -> None:
        if self._mid_line:
            print(flush=True)
            self._mid_line = False


def _text(holder: dict[str, Any]) -> str:
    return "".join(_part(part) for part in holder["parts"])


def _part(part: Json) -> str:
    if "text" in part:
        return str(part["text"])
    if "data" in part:
        return json.dumps(part["data"], ensure_ascii=False, indent=2) + "\n"
    return f"[{part.get('mediaType', 'bytes')}] {part.get('url', part.get('filename', ''))}\n"
