"""Other A2A servers next to ours: install them, start them, put the same load on them."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sdk.node import Node

HERE = Path(__file__).parent
START_TIMEOUT = 30.0
STOP_TIMEOUT = 5.0
WARMUP = 1.0
ENVIRONMENT = {"PARLEY_GRPC_PORT": "-1", "NODE_ENV": "production"}
"""Start without gRPC: no client uses it here, and the port after a free one may be taken. Express is slower unless it
is told that it serves production."""


def ensure_venv(name: str, requirements: Path, root: Path) -> Path:
    """The Python of `<root>/<name>`, installed anew only when the requirements have changed."""
    folder = root / name
    python = folder / "bin" / "python"
    stamp = folder / "installed.txt"
    wanted = requirements.read_text()
    if python.exists() and stamp.exists() and stamp.read_text() == wanted:
        return python
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, "-r", str(requirements)], check=True)
    # Written last, so that an interrupted install is not taken for a finished one.
    stamp.write_text(wanted)
    return python


def ensure_packages(name: str, packages: Mapping[str, str], root: Path, node: Node) -> Path:
    """The folder `<root>/<name>` with packages from npm, installed anew only when their versions have changed."""
    folder = root / name
    stamp = folder / "installed.json"
    manifest = json.dumps({"private": True, "dependencies": dict(packages)})
    if not stamp.exists() or stamp.read_text() != manifest:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "package.json").write_text(manifest)
        node.run(*node.npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", folder)
        stamp.write_text(manifest)
    return folder


@contextmanager
def start(python: Path | str, script: Path | str, *args: str) -> Generator[str, None, None]:
    """Run a server script on a free loopback port for as long as the block lasts."""
    with running(python, script, *args) as (url, _):
        yield url


@contextmanager
def running(
    python: Path | str, script: Path | str, *args: str, env: Mapping[str, str] | None = None
) -> Generator[tuple[str, int], None, None]:
    """The same, with the id of its process, and with more in its environment."""
    port = free_port()
    command = [str(python), str(script), "--port", str(port), *args]
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **ENVIRONMENT, **(env or {})}
        )
        try:
            wait_until_answering(port, process, output)
            yield f"http://127.0.0.1:{port}/", process.pid
        finally:
            stop(process)


def measure(
    url: str,
    mode: str,
    wire: str,
    clients: int,
    seconds: float,
    expect: str = "completed",
    warmup: float = WARMUP,
) -> dict[str, Any]:
    """Load the server from a process of its own, so that nothing here slows the client."""
    options = {
        "--url": url,
        "--mode": mode,
        "--wire": wire,
        "--clients": clients,
        "--seconds": seconds,
        "--warmup": warmup,
        "--expect": expect,
    }
    flags = [str(word) for option in options.items() for word in option]
    finished = subprocess.run(
        [sys.executable, str(HERE / "load.py"), *flags, "--json"],
        stdout=subprocess.PIPE,
        check=True,
        timeout=warmup + seconds + 15,
    )
    result: dict[str, Any] = json.loads(finished.stdout)
    return result


def cpu_seconds(pid: int) -> float:
    """Time for which the threads of a process have used a processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until_answering(port: int, process: subprocess.Popen[bytes], output: IO[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not answers(port):
        if process.poll() is not None or time.monotonic() > deadline:
            output.seek(0)
            raise RuntimeError(f"the server did not start:\n{output.read().decode()[-2000:]}")
        time.sleep(0.05)


def answers(port: int) -> bool:
    """Any reply will do: these servers refuse a GET here, but they refuse it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1)
    try:
        connection.request("GET", "/")
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True


def stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
