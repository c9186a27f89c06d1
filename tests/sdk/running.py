"""The package's own tests, run by Node.js."""

import asyncio
import os
from pathlib import Path

import pytest

from sdk.node import Node
from sdk.package import HOME

TESTS = HOME / "build" / "test"
NODE_S = 120.0
"""Time limit of one test file."""


async def run_tests(node: Node, file: Path, *only: str, **told: str) -> None:
    """Run a file of compiled tests, which find `told` in their environment; failures are shown as Node.js does."""
    command = [str(node.program), "--test", "--test-reporter=spec", *(f"--test-name-pattern={one}" for one in only)]
    process = await asyncio.create_subprocess_exec(
        *command, str(file), env={**os.environ, **told},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        said, _ = await asyncio.wait_for(process.communicate(), NODE_S)
    except TimeoutError:
        process.kill()
        await process.communicate()
        pytest.fail(f"{file.name} did not end within {NODE_S:.0f} s.")
    if process.returncode:
        pytest.fail(said.decode())
