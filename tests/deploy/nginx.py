"""nginx with the configuration that is given to operators; only its addresses are others."""

import asyncio
import random
import re
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from parley.testing.processes import until

CONF = Path(__file__).parents[2] / "deploy" / "nginx" / "parley.conf"
MAIN = """
pid {folder}/pid;
error_log {folder}/error.log warn;
events {{}}
http {{
    access_log off;
    {paths}
    include {folder}/parley.conf;
}}
"""
KINDS = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


class Fronted(NamedTuple):
    url: str
    grpc: str
    said: Path
    """Its log of errors."""


def free_ports(count: int) -> list[int]:
    """Below those that a system hands out by itself, so that nobody beside gets one before it is used."""
    ports: list[int] = []
    for port in random.sample(range(20_000, 32_000), 12_000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
        if len(ports) == count:
            return ports
    raise RuntimeError("No port is free.")


@asynccontextmanager
async def fronting(folder: Path, http: list[int], grpc: list[int]) -> AsyncGenerator[Fronted, None]:
    """In front of replicas at these ports, until the block ends."""
    here, here_grpc = free_ports(2)
    text = CONF.read_text()
    for (number, port), port_grpc in zip(enumerate(http, 1), grpc, strict=True):
        text = text.replace(f"parley-{number}:8200", f"127.0.0.1:{port}")
        text = text.replace(f"parley-{number}:8201", f"127.0.0.1:{port_grpc}")
    text = text.replace("listen 8200", f"listen 127.0.0.1:{here}").replace(
        "listen 8201", f"listen 127.0.0.1:{here_grpc}"
    )
    assert not re.search(r"^\s*(listen 82|server parley)", text, re.MULTILINE)
    (folder / "parley.conf").write_text(text)
    paths = "\n    ".join(f"{kind}_temp_path {folder}/{kind};" for kind in KINDS)
    (folder / "nginx.conf").write_text(MAIN.format(folder=folder, paths=paths))
    process = await asyncio.create_subprocess_exec(
        "nginx", "-p", str(folder), "-c", str(folder / "nginx.conf"), "-g", "daemon off; master_process off;",
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        await until(lambda: process.returncode is not None or _listens(here))
        assert process.returncode is None, (folder / "error.log").read_text()
        yield Fronted(f"http://127.0.0.1:{here}", f"127.0.0.1:{here_grpc}", folder / "error.log")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
