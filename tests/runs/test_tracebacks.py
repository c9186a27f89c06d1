"""Tracebacks are stored without secrets, for administrators, as long as their run."""

import pytest
from msgspec.structs import replace

from parley.records import Record
from parley.runs.rules.access import Principal
from parley.runs.rules.events import Failed, Started
from parley.runs.rules.state import Run
from parley.runs.tracebacks import MAX_CHARACTERS, Tracebacks, written
from parley.stores.records import MemoryRecords
from parley.testing.logs import LogWriter


def failed() -> Run:
    log = LogWriter(principal="user:1")
    log.start()
    log.append(Started(1, "r"), Failed("agent_error", "It stopped."))
    assert log.run is not None
    return log.run


def raised(text: str) -> Exception:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


async def test_administrators_read_what_was_raised() -> None:
    tracebacks, run = Tracebacks(MemoryRecords()), failed()
    await tracebacks.raised(run, raised("password: hunter2"))
    found = await tracebacks.read(run, Principal.parse("local"))
    assert "test_tracebacks.py" in found
    assert "hunter2" not in found
    assert await tracebacks.read(run, Principal.parse("user:1")) == ""
    assert await tracebacks.read(replace(run, code="other"), Principal.parse("local")) == ""
    await tracebacks.forget(run.id)
    assert await tracebacks.read(run, Principal.parse("local")) == ""


def test_a_long_traceback_is_cut_after_secrets_are_removed() -> None:
    text = written(raised("x" * 100_000 + "\nAuthorization: Bearer abc.def.ghi " * 10))
    assert len(text) <= MAX_CHARACTERS
    assert "abc.def" not in text


async def test_a_run_fails_also_if_its_traceback_cannot_be_stored() -> None:
    class Broken(MemoryRecords):
        async def put(self, record: Record) -> None:
            raise OSError("The disk is full.")

    await Tracebacks(Broken()).raised(failed(), raised("x"))


async def test_an_exception_that_cannot_be_printed_does_no_harm() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    await Tracebacks(MemoryRecords()).raised(failed(), Unprintable())
    with pytest.raises(RuntimeError):
        str(Unprintable())
