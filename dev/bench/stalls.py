"""Measures how long the worst inputs block a server for other clients: the longest wait for `/healthz` meanwhile, on an
open connection and on a new one. Each input is compared with one of half its size: a ratio of two means that the
wait grows linearly with the input, a ratio of four that it grows with its square.
"""

import gzip
import http.client
import json
import os
import selectors
import socket
import threading
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

from dev.bench import peers
from dev.bench.data import copied, filled, scratch
from dev.bench.rows import Case
from dev.bench.servers import PARLEY

AGENTS = str(Path(__file__).parent / "stall_agents.py")
EVERY_S = 0.002
AFTER_S = 0.3
LONGEST_S = 60.0
READERS = 250
READ_S = 8.0
TRIMMED_S = 40.0
"""Retention begins 30 seconds after the start."""
ANSWERS = 15

Inputs = Callable[[str, int], None]


@dataclass(frozen=True)
class Stall:
    """One kind of input: `send(url, size)` gives it to a server, which `runs` were written for beforehand."""

    full: int
    unit: str
    send: Inputs
    runs: Callable[[int], list[int]] | None = None
    env: tuple[tuple[str, str], ...] = ()
    remote: bool = False


class Waits:
    """Asks for `/healthz` again and again, in two threads, and keeps the longest wait of each."""

    def __init__(self, url: str) -> None:
        self._place = urlsplit(url).netloc
        self._over = threading.Event()
        self.open = self.new = 0.0
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._ask_on_one, self._ask_on_new)]

    def __enter__(self) -> "Waits":
        for thread in self._threads:
            thread.start()
        time.sleep(AFTER_S)
        self.open = self.new = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        time.sleep(AFTER_S)
        self._over.set()
        for thread in self._threads:
            thread.join(LONGEST_S)

    def _ask_on_one(self) -> None:
        connection = self._connected()
        while not self._over.is_set():
            self.open = max(self.open, self._asked(connection))
            time.sleep(EVERY_S)
        connection.close()

    def _ask_on_new(self) -> None:
        while not self._over.is_set():
            began = perf_counter()
            connection = self._connected()
            self._asked(connection)
            self.new = max(self.new, perf_counter() - began)
            connection.close()
            time.sleep(EVERY_S)

    def _connected(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._place, timeout=LONGEST_S)

    def _asked(self, connection: http.client.HTTPConnection) -> float:
        began = perf_counter()
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        return perf_counter() - began


def cases() -> list[Case]:
    return [_case(name, stall) for name, stall in STALLS.items()]


def _case(name: str, stall: Stall) -> Case:
    latest: dict[int, float] = {}

    def measured(size: int) -> float:
        waits = _measured(stall, size)
        latest[size] = waits.new * 1e3
        return waits.open * 1e3

    half = stall.full // 2
    return Case(
        f"stall.{name}", "ms", partial(measured, stall.full), f"{half:,} {stall.unit}", partial(measured, half),
        note=lambda _: f"new connection {latest[stall.full]:,.0f} ms, half {latest[half]:,.0f} ms",
    )  # fmt: skip


def _measured(stall: Stall, size: int) -> Waits:
    with _data(stall, size) as directory, _agents(stall, size) as more:
        arguments = ("serve", AGENTS, *more, "--data-dir", str(directory))
        with peers.running(PARLEY, *arguments, env=dict(stall.env)) as (url, _), Waits(url) as waits:
            stall.send(url.rstrip("/"), size)
    return waits


@contextmanager
def _data(stall: Stall, size: int) -> Generator[Path, None, None]:
    if stall.runs is None:
        with scratch() as directory:
            yield directory
        return
    lengths = stall.runs(size)
    log = filled(f"stall{len(lengths)}x{max(lengths)}", lengths)
    _LONGEST["run"] = log.run
    with copied(log) as directory:
        yield directory


_LONGEST: dict[str, str] = {}
"""The longest of the runs that were written beforehand."""


@contextmanager
def _agents(stall: Stall, size: int) -> Generator[list[str], None, None]:
    """Definitions beside the usual agents: an organisation, and a remote agent that compresses its answers."""
    with scratch() as folder:
        (folder / "org.yaml").write_text("driver: org\n", "utf-8")
        if not stall.remote:
            yield [str(folder)]
            return
        with _compressing(size) as url:
            (folder / "remote.yaml").write_text(f"driver: remote\nremote: {{url: {url}}}\n", "utf-8")
            yield [str(folder)]


@contextmanager
def _compressing(size: int) -> Generator[str, None, None]:
    """A remote agent whose every answer is this long, and small on the wire."""
    text = "0" * size

    class Remote(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            here = f"http://{self.headers['host']}"
            interface = {"url": here, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            self._answer({
                "name": "r", "description": "r", "version": "1", "supportedInterfaces": [interface],
                "capabilities": {"streaming": False}, "defaultInputModes": ["text/plain"],
                "defaultOutputModes": ["text/plain"], "skills": [],
            })  # fmt: skip

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            said = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": text}]}
            self._answer({"jsonrpc": "2.0", "id": asked["id"], "result": {"message": said}})

        def _answer(self, value: dict[str, Any]) -> None:
            body = gzip.compress(json.dumps(value).encode())
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-encoding", "gzip")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Remote)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _asked(url: str, method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
    """Whatever the answer is: a refusal is a good one."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=LONGEST_S)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, path, body, {"A2A-Version": "1.0", "Content-Type": "application/json", **given})
        return connection.getresponse().read()
    except (http.client.HTTPException, OSError):
        return b""
    finally:
        connection.close()


def _sent(url: str, agent: str, text: str, **more: Any) -> dict[str, Any]:
    message = {"messageId": uuid.uuid4().hex, "role": "ROLE_USER", "parts": [{"text": text}], **more}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    answer = json.loads(_asked(url, "POST", f"/agents/{agent}", json.dumps(body).encode()) or b"{}")
    return answer.get("result", {}).get("task", {})


def cookie(url: str, size: int) -> None:
    _asked(url, "GET", "/console/inbox", Cookie='a="' + "\\" * size + '"')


def markdown(url: str, size: int) -> None:
    task = _sent(url, "shaped", f"nested {size}")
    _asked(url, "GET", f"/console/runs/{task['id']}")


def path_pattern(url: str, size: int) -> None:
    _sent(url, "org", "Fix the bug in the file " + "=/" * (size // 2))


def nested_json(url: str, depth: int) -> None:
    nested = b'{"a":' * depth + b"1" + b"}" * depth
    message = b'{"messageId":"m","role":"ROLE_USER","parts":[{"text":"hello"}],"metadata":%s}' % nested
    body = b'{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":%s}}' % message
    for _ in range(20):
        _asked(url, "POST", "/agents/bench", body)


def compressed(url: str, size: int) -> None:
    _sent(url, "remote", "hello")


def slow_readers(url: str, size: int) -> None:
    """All from the first event on, each reading a little at a time."""
    place = urlsplit(url)
    request = (
        f"POST /agents/bench/tasks/{_LONGEST['run']}:subscribe HTTP/1.1\r\nHost: {place.netloc}\r\nA2A-Version: 1.0\r\n"
        "Content-Type: application/json\r\nLast-Event-ID: 0\r\nContent-Length: 2\r\n\r\n{}"
    ).encode()
    with selectors.DefaultSelector() as selector:
        for _ in range(READERS):
            reader = socket.create_connection((place.hostname, place.port))
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.sendall(request)
            selector.register(reader, selectors.EVENT_READ)
        until = perf_counter() + READ_S
        while perf_counter() < until and selector.get_map():
            for key, _ in selector.select(0.05):
                one = key.fileobj
                assert isinstance(one, socket.socket)
                if not one.recv(2048):
                    selector.unregister(one)
            time.sleep(0.01)
        for key in list(selector.get_map().values()):
            os.close(key.fd)


def get_task(url: str, size: int) -> None:
    _asked(url, "GET", f"/agents/bench/tasks/{_LONGEST['run']}")


def fork(url: str, size: int) -> None:
    _asked(url, "POST", f"/agents/bench/tasks/{_LONGEST['run']}:fork", b"{}")


def run_page(url: str, size: int) -> None:
    _asked(url, "GET", f"/console/runs/{_LONGEST['run']}")


def conversation(url: str, size: int) -> None:
    context = uuid.uuid4().hex
    for _ in range(ANSWERS):
        _sent(url, "shaped", f"prose {size}", contextId=context)
    _asked(url, "GET", f"/console/conversations/{context}")


def retention(url: str, size: int) -> None:
    time.sleep(TRIMMED_S)


STALLS = {
    "cookie": Stall(64_000, "backslashes", cookie),
    "markdown": Stall(7_000, "characters", markdown),
    "path-pattern": Stall(10_000, "characters", path_pattern),
    "nested-json": Stall(965, "levels", nested_json),
    "compressed": Stall(32_000_000, "bytes", compressed, remote=True),
    "slow-readers": Stall(20_000, "events", slow_readers, lambda size: [size]),
    "get-task": Stall(100_000, "events", get_task, lambda size: [size]),
    "fork": Stall(100_000, "events", fork, lambda size: [size]),
    "run-page": Stall(100_000, "events", run_page, lambda size: [size]),
    "conversation": Stall(60_000, "characters", conversation),
    "retention": Stall(
        100_000, "runs", retention, lambda size: [6] * size, (("PARLEY_KEEP_DAYS", "0.00001"),)
    ),
}  # fmt: skip
