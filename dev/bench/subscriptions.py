"""Thousands of open streams of one task: what each costs in memory, and how long until the last one has an event."""

import http.client
import json
import subprocess
import sys
from typing import Any
from urllib.parse import urlsplit

from dev.bench import peers
from dev.bench.data import scratch
from dev.bench.rows import Case
from dev.bench.servers import HERE, PARLEY

COUNT = 5000
EVENTS = 12
ALLOWED_KB = 15.0
TIMEOUT_S = 120.0

Figures = dict[str, Any]


def cases() -> list[Case]:
    return [
        Case(f"subscriptions.{COUNT}", "ms", lambda: ours(EVENTS)["reach_ms"], "bare server",
             lambda: bare()["reach_ms"], "max", 2.0,
             note=lambda value: f"{value * 1000 / COUNT:.1f} µs per stream; p50 of {EVENTS - 1} events"),
        Case("subscriptions.memory", "kB", lambda: ours(0)["kb_each"], "allowed", lambda: ALLOWED_KB, "max", 1.0,
             note=lambda _: f"resident, per stream, {COUNT:,} open"),
    ]  # fmt: skip


def ours(events: int) -> Figures:
    agent = str(HERE / "pulse_agent.py")
    with scratch() as directory, peers.running(PARLEY, "serve", agent, "--data-dir", str(directory)) as (url, pid):
        address = f"{url}agents/pulse"
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "go"}]}
        begun = asked(address, "SendMessage", message=message, configuration={"returnImmediately": True})
        return _measured(address, pid, _request("SubscribeToTask", id=begun["task"]["id"]), events)


def bare() -> Figures:
    with peers.running(sys.executable, HERE / "peers" / "bare_server.py") as (url, pid):
        return _measured(url, pid, _request("SubscribeToTask", id="any"), EVENTS)


def _measured(url: str, pid: int, request: str, events: int) -> Figures:
    options = {"--url": url, "--pid": pid, "--body": request, "--count": COUNT, "--events": events}
    flags = [str(word) for option in options.items() for word in option]
    command = [sys.executable, str(HERE / "subscribers.py"), *flags]
    finished = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=TIMEOUT_S)
    result: Figures = json.loads(finished.stdout)
    return result


def _request(method: str, **params: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


def asked(url: str, method: str, **params: object) -> dict[str, Any]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_S)
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    connection.request("POST", parts.path, _request(method, **params), headers)
    reply: dict[str, Any] = json.load(connection.getresponse())
    connection.close()
    result: dict[str, Any] = reply["result"]
    return result
