"""Plans (the actions contract, 002), read or edited as fast as they are answered, each client in its own conversation.

Standard library only, as `load.py`, so that the client stays much cheaper than what it measures.
"""

import argparse
import asyncio
import gc
import http.client
import json
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from load import Reply, load

PREFIX = "/api/agent2agent"
CONTENT = "# Tides\n\n" + "They come and go. " * 56
"""About a kilobyte."""


@dataclass(frozen=True)
class Plan:
    """The same request again and again."""

    host: str
    port: int
    whole: bytes

    def request(self, prefix: bytes, number: int) -> bytes:
        return self.whole

    def accepts(self, reply: Reply) -> bool:
        return reply.status == b"200" and b'"completed"' in reply.body and b"They come and go." in reply.body


def asked(action: str) -> dict[str, str]:
    return {"mode": "plan", "action": action, "agentSlug": "echo"}


def prepared(host: str, port: int, action: str) -> Plan:
    """A conversation of its own with a plan in it."""
    connection = http.client.HTTPConnection(host, port, timeout=20)

    def post(path: str, body: object) -> dict[str, str]:
        connection.request("POST", PREFIX + path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        answer = reply.read()
        if reply.status not in (200, 201):
            raise RuntimeError(f"HTTP {reply.status}: {answer[:500]!r}")
        return json.loads(answer)

    path = f"/conversations/{post('/conversations', {'agentSlug': 'echo'})['conversationId']}/tasks"
    post(path, {**asked("create"), "message": "Tides"})
    edit = {**asked("edit"), "editedContent": CONTENT}
    post(path, edit)
    connection.close()
    body = json.dumps(edit if action == "edit" else asked("read")).encode()
    head = f"POST {PREFIX}{path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    return Plan(host, port, f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--action", choices=["read", "edit"], required=True)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warmup", type=float, default=1)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    gc.disable()
    parts = urlsplit(given.url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    targets = [prepared(host, port, given.action) for _ in range(given.clients)]
    print(json.dumps(asyncio.run(load(targets, given.seconds, given.warmup))))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
