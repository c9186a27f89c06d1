"""Tests of the simulated database run on the seeded event loop."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from parley.testing.simulation.loop import SeededLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"seeded": lambda: SeededLoop(7, max_steps=50_000_000)}
