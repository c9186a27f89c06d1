"""The script that counts the modules which a request enters."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dev.recorded import Chain
from dev.walks import entries

ROOT = Path(__file__).parents[2]
RECEIVED, STORED = ("parley.face", "receive"), ("parley.store", "write")
TICKED, SAMPLED = ("parley.engine", "tick"), ("parley.telemetry", "sample")


@pytest.fixture(scope="module")
def walks() -> dict[str, Any]:
    command = [sys.executable, "-m", "dev.walks", "--json"]
    return json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=120).stdout)


@pytest.mark.slow
def test_every_walk_enters_faces_and_the_store(walks: dict[str, Any]) -> None:
    assert list(walks) == ["send", "stream", "plan", "proxy", "paired"]
    for walk in walks.values():
        modules: list[str] = walk["modules"]
        assert walk["count"] == len(set(modules)) == len(modules) > 5
        assert all(module.startswith("parley.") for module in modules)
        assert any(module.startswith("parley.faces") for module in modules)
        assert any(module.startswith("parley.stores") and "sqlite" in module for module in modules)


@pytest.mark.slow
def test_each_walk_enters_modules_of_its_own(walks: dict[str, Any]) -> None:
    entered = {name: set(walk["modules"]) for name, walk in walks.items()}
    for name, modules in entered.items():
        if name not in ("send", "stream"):
            assert modules - entered["send"], name
    outside = ("parley.testing.", "parley.cli.")
    assert not any(module.startswith(outside) for walk in entered.values() for module in walk)


def test_calls_of_an_idle_server_do_not_count_unless_a_request_makes_them_too() -> None:
    tick: Chain = (TICKED, STORED)
    send: Chain = (RECEIVED, STORED)
    assert entries([[tick, (RECEIVED,), send]], {tick}) == dict([RECEIVED, STORED])
    assert entries([[tick, (RECEIVED,)]], {tick}) == dict([RECEIVED])


def test_a_module_counts_when_every_recording_enters_it() -> None:
    assert entries([[(RECEIVED,), (SAMPLED,)], [(RECEIVED,)]], set()) == dict([RECEIVED])
