"""Clients that cannot live in our own environment: installed once under `build/`, run as processes."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sdk.node import find
from sdk.package import alone

HERE = Path(__file__).parent
BUILD = HERE.parent.parent / "build" / "interop"
CLIENT_S = 60.0
"""Time limit of a client for all its work."""


def python_client(*requirements: str) -> Path:
    """The interpreter of an environment that holds these requirements."""
    name = "-".join(requirements).replace("==", "-")
    place = _once(name, " ".join(requirements), lambda place: _venv(place, requirements))
    return place / "bin" / "python"


def node_client(package: str, version: str) -> Path:
    """A folder whose scripts may import this package."""
    manifest = {"private": True, "type": "module", "dependencies": {package: version}}
    return _once(f"node-{version}", json.dumps(manifest), lambda place: _npm(place, manifest))


async def run_client(*command: str | Path) -> Any:
    """The client's last output line, as JSON; its library may have printed other lines before."""
    process = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), CLIENT_S)
    except TimeoutError:
        process.kill()
        await process.communicate()
        pytest.fail(f"The client {command[1]} did not end within {CLIENT_S:.0f} s.")
    if process.returncode:
        pytest.fail(f"The client {command[1]} ended with {process.returncode}:\n{err.decode()}")
    return json.loads(out.splitlines()[-1])


def _once(name: str, content: str, build: Callable[[Path], None]) -> Path:
    """A stamp that is written last says what a folder holds, so that half of it is never taken for the whole."""
    place = BUILD / name
    stamp = place / "complete"
    with alone(BUILD / f"{name}.lock"):
        if not stamp.is_file() or stamp.read_text() != content:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
            build(place)
            stamp.write_text(content)
    return place


def _venv(place: Path, requirements: Sequence[str]) -> None:
    _run(sys.executable, "-m", "venv", place)
    _run(place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)


def _npm(place: Path, manifest: dict[str, Any]) -> None:
    (place / "package.json").write_text(json.dumps(manifest))
    node = find()
    node.run(*node.npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--prefix", place)


def _run(*command: str | Path) -> None:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
