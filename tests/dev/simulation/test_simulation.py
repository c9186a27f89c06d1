"""Simulated worlds repeat themselves, hold their promises, and show when the engine breaks one of its rules."""

import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.simulation.scenario import plan, played
from dev.simulation.seeds import FAILED_ONCE, FIXED
from tests.dev.simulation.measure import MOST_SEEDS, seeds_needed
from tests.dev.simulation.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[3]
# A dead process runs nothing more: its coroutines wait in their `finally` blocks when they are collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
SECONDS = 5
"""`.ci/run` plays worlds for two minutes."""


@pytest.fixture(autouse=True)
def collected() -> Iterator[None]:
    """Worlds are full of cycles, and no garbage is collected while one is played."""
    yield
    gc.collect()


@pytest.mark.parametrize("seed", [*FIXED, *FAILED_ONCE])
def test_a_world_keeps_every_promise(seed: int) -> None:
    universe = played(plan(seed))
    assert list(map(str, universe.violations)) == []
    assert universe.runs > 200


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.__name__)
def test_a_planted_fault_is_found(mutation: Mutation) -> None:
    assert seeds_needed(mutation) is not None, f"{MOST_SEEDS} worlds do not show it."


@pytest.mark.slow
def test_the_command_plays_worlds_for_a_time() -> None:
    """A failure prints the shortest story that leads to it, and its seed."""
    found = simulation("--seconds", str(SECONDS))
    assert found.returncode == 0, found.stdout + found.stderr
    assert "without a violation" in found.stdout


@pytest.mark.slow
def test_a_seed_leads_to_the_same_world_in_any_process() -> None:
    """Byte for byte, whatever the hash seed."""
    first, second = (simulation("--seed", "42", "--commands", "40", hash_seed=one) for one in ("0", "12345"))
    assert first.returncode == 0, first.stdout + first.stderr
    assert first.stdout == second.stdout
    assert played(plan(42, 40)).trace in first.stdout
    assert played(plan(6, 40)).trace not in first.stdout


def simulation(*arguments: str, hash_seed: str = "random") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "dev.simulation", *arguments],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
