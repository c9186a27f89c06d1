import pytest

from sdk.node import Node
from sdk.package import compiled


@pytest.fixture(scope="session")
def node() -> Node:
    """Node.js, after the package and its tests have been compiled."""
    return compiled("tsconfig.test.json")
