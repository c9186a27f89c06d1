"""What the wire can do to the SDK, against a small server that does it: cuts, refusals, silence, broken frames."""

import pytest

from sdk.node import Node
from tests.sdk.running import TESTS, run_tests


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sse", "timing", "http", "following", "api"])
async def test_the_package_stands_its_own_tests(node: Node, name: str) -> None:
    await run_tests(node, TESTS / f"{name}.test.js")
