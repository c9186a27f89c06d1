"""Network faults for the SDK, made by a small server: cut connections, refusals, silence, broken frames."""

import pytest

from sdk.node import Node
from tests.sdk.running import TESTS, run_tests


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sse", "timing", "http", "following", "api", "options"])
async def test_the_package_stands_its_own_tests(node: Node, name: str) -> None:
    await run_tests(node, TESTS / f"{name}.test.js")
