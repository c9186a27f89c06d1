"""Results of the conformance kits as rows, and as a page that explains each miss."""

from pathlib import Path

import msgspec
from msgspec import Struct

ROOT = Path(__file__).parents[2]
JSON = ROOT / "build" / "conformance.json"
PAGE = ROOT / "docs" / "conformance.md"


class Row(Struct, frozen=True):
    kit: str
    configuration: str
    binding: str
    passed: int
    failed: int
    skipped: int
    xfailed: int = 0
    misses: list[str] = []


REASONS: list[tuple[str, str, str]] = [
    (
        "1.0-dev", "test_agent_card_validates_against_schema",
        "The kit reads the card without saying that it speaks 1.0, and takes no field that 1.0 lacks. Who says nothing "
        "may be a client of 0.3, so such a card carries the fields of both generations. With `A2A-Version: 1.0` in the "
        "request, or with the setting `cards = \"1.0\"`, it holds those of 1.0 alone, and the test passes.",
    ),
    (
        "1.0-dev", "TestRestStreaming::test_streaming_content_type",
        "The test opens a stream also where the card says that the agent does not stream. It is refused with "
        "UNSUPPORTED_OPERATION, as the specification asks (§3.3.4); the kit closes that reply and then tries to read "
        "its body, which fails in its own client whatever a server sends.",
    ),
    (
        "1.0-dev", "CARD-EXT-00",
        "The kit asks for the extended card without credentials, has no option to send any, and expects the card. The "
        "specification requires authentication for it (§13.3), so the answer is 401.",
    ),
    *(
        (
            "1.0-dev", test,
            "The kit is pinned to 1.0.0, which answers UNIMPLEMENTED here; since 1.0.1 it is FAILED_PRECONDITION.",
        )
        for test in (
            "test_version_not_supported_returns_unimplemented", "test_push_not_supported_grpc",
            "test_push_not_supported_returns_unimplemented", "test_streaming_not_supported_grpc",
            "test_unsupported_operation_returns_unimplemented", "test_unsupported_version_returns_error_grpc",
        )
    ),
    (
        "0.3.x", "test_agent_interfaces_structure",
        "The test wants every address in `additionalInterfaces` to begin with http. gRPC is listed as `host:port`, "
        "which is what gRPC clients of 0.3 open (a2a-sdk 0.3.26 does); they cannot open a web address. Cards list gRPC "
        "only where it was asked for, as it is for this kit.",
    ),
    (
        "0.3.x", "test_task_state_transitions",
        "The test expects a blocking `message/send` to return before the task has got anywhere; 0.3 leaves that to the "
        "server, and here it waits until the task ends or asks.",
    ),
]  # fmt: skip
"""Kit, part of a test's name, and why it is missed."""


def reason(row: Row, miss: str) -> str | None:
    return next((why for kit, name, why in REASONS if kit == row.kit and name in miss), None)


def line(row: Row) -> str:
    return (
        f"{row.kit:<8} {row.configuration:<28} {row.binding:<10} "
        f"{row.passed} passed, {row.failed} failed, {row.skipped} skipped, {row.xfailed} xfailed"
    )


def write(kit: str, rows: list[Row]) -> None:
    """Replace what is known of this kit; the other's rows stay."""
    kept = msgspec.json.decode(JSON.read_bytes(), type=list[Row]) if JSON.is_file() else []
    every = sorted(
        [row for row in kept if row.kit != kit] + rows, key=lambda row: row.kit == "0.3.x"
    )  # fmt: skip
    JSON.parent.mkdir(exist_ok=True)
    JSON.write_bytes(msgspec.json.format(msgspec.json.encode(every), indent=2))
    PAGE.write_text(page(every), "utf-8")


def page(rows: list[Row]) -> str:
    table = [
        f"| {row.kit} | {row.configuration} | {row.binding} | {row.passed} | {row.failed} | {row.skipped} | "
        f"{row.xfailed} |"
        for row in rows
    ]
    reasons = {(row.kit, miss): reason(row, miss) or "Not explained yet." for row in rows for miss in row.misses}
    misses = [f"- **{kit}** `{miss}`: {why}" for (kit, miss), why in sorted(reasons.items())]
    return "\n".join([_HEAD, *table, "", "## Misses", "", *(misses or ["None."]), "", _SKIPS, _DRAFT])


_HEAD = """# Conformance

The public kit of the A2A project (`a2aproject/a2a-tck`), run against `parley conformance` by
`make conformance KIT=DIR`: branch `1.0-dev` for A2A 1.0, branch `0.3.x` for 0.3. Both are served by the same process
at the same address. This page is written by that command.

| kit | configuration | binding | passed | failed | skipped | expected to fail |
|---|---|---|---|---|---|---|"""

_SKIPS = """## Skips

The kit for 1.0 skips what a configuration cannot show: that push, streaming or the extended card is refused needs them
turned off (each has a configuration above), a required extension must be declared (likewise, and there only its own
tests are run, because no other test names the extension), and three of its tests have no requirement to check. The kit
for 0.3 skips what the card does not declare, and what its other transports would show.
"""

_DRAFT = """## A2A 1.1

No kit tests the draft yet. `dev/conformance/a2a11/cases.yaml` holds cases of our own for generations, long polls and
guarded sends: for each step, what is sent and what must hold. `python -m dev.conformance.a2a11 URL`, with the URL of an
agent, carries them out on every binding that its card offers for 1.1. The agent may be any server's: it needs the four
behaviours that the file names, which the first words of a message select. Our test suite runs the cases too.

## Requirements that no kit tests

`tests/faces/a2a/test_requirements.py` has cases for what the specification 1.0.1 requires and the kits leave out, on
three bindings, for 1.0 and 1.1: history of length 0, contexts that clients make, required and unknown fields, pages,
order of lists and events, pushed updates, streams, bindings that show the same, credentials, versions, extensions.
Signatures, extended cards and what other callers may see have tests of their own.
"""
