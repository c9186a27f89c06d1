"""`import parley` and the help load only what they need. Loaded modules are a more reliable measure than a clock on a
busy machine."""

import subprocess
import sys

import pytest

import parley
from parley import __all__ as names

HEAVY = {
    "a2a", "anthropic", "asyncpg", "cryptography", "grpc", "httpcore2", "httpx2", "jinja2", "joserfc", "langgraph",
    "mcp", "nh3", "obstore", "openai", "opentelemetry", "prometheus_client", "pydantic", "redis", "starlette",
    "structlog", "typst", "uvicorn", "uvloop", "watchfiles", "yaml",
}  # fmt: skip
LOOP = {"asyncio", "ssl", "sqlite3", "msgspec"}


def loaded(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print('modules', *sys.modules)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {name.partition(".")[0] for name in done.stdout.rpartition("modules ")[2].split()}


def loaded_of_ours(code: str) -> set[str]:
    code = f"{code}\nimport sys; print(*(name for name in sys.modules if name.startswith('parley')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_the_package_itself_loads_nothing() -> None:
    assert loaded_of_ours("import parley") == {"parley"}
    assert not (HEAVY | LOOP | {"typer", "rich"}) & loaded("import parley")


def test_what_an_agent_is_written_with_loads_no_server_and_no_client() -> None:
    # `Parley` is the server itself, which reads its settings with pydantic.
    of_agents = [name for name in names if name not in ("Parley", "Settings")]
    assert not (HEAVY | {"typer", "rich", "sqlite3"}) & loaded(f"from parley import {', '.join(of_agents)}")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["send", "--help"], ["keys", "create", "--help"]])
def test_help_loads_no_server_and_no_client(arguments: list[str]) -> None:
    code = f"""
import sys
from parley.cli import main

sys.argv = ["parley", *{arguments}]
try:
    main()
except SystemExit as end:
    assert not end.code
"""
    of_typer = {"pydantic"} if len(arguments) > 1 else set[str]()
    """It reads the parameters of a command with it."""
    assert not ((HEAVY | LOOP) - of_typer) & loaded(code)


def test_every_public_name_is_found_in_its_room() -> None:
    assert {name for name in names if getattr(parley, name).__name__ != name} == set()
    assert set(names) <= set(dir(parley))
    with pytest.raises(AttributeError, match="no attribute 'agents_of_yours'"):
        parley.__getattr__("agents_of_yours")
