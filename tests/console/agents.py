"""Agents for the console's demo data."""

import asyncio
import struct
import zlib
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta, Raw

from parley import ArtifactChunk, Done, NeedInput, Skill, Status, Text, Turn, agent
from parley.demo import echo, relay, writer
from parley.runs.rules.content import Part, text_part

__all__ = [
    "author",
    "booking",
    "careful",
    "chatty",
    "describer",
    "echo",
    "evil",
    "fussy",
    "lecturer",
    "painter",
    "relay",
    "sleeper",
    "slow",
    "writer",
]

EVIL = (
    "<script>window.pwned = 1; alert('script')</script><img src=/console/evil-image onerror=alert(2)>\n\n"
    "[a link](javascript:alert(3)) ![picture](/console/evil-picture) <iframe src=/console/evil-frame></iframe>\n\n"
    "[data](data:text/html,<script>alert(4)</script>) "
    "\U0001f469\u200d\U0001f467 Z\u0351\u036b\u0343\u0328 "
    "\x00\x07\x1b[31m\x7f \u202eright to left\u202c \u05d0\u05d1\u05d2\n\n"
    "<style>body{display:none}</style></div></li></main><h1 id=content>taken over</h1>"
)


@agent("sleeper", name="Sleeper", max_concurrent=2, max_queued=5, timeout_s=3600)
async def sleeper(turn: Turn):
    """Works until it is canceled."""
    yield Status("Counting sheep")
    await asyncio.Event().wait()


@agent("slow", name="Slow", skills=[Skill("count", "Count", "Counts slowly.", ("demo",), ("12",))])
async def slow(turn: Turn):
    """Counts to what it is told, word by word."""
    for number in range(1, int(turn.text) + 1):
        yield Text(f"w{number} ")
        await asyncio.sleep(0.1)
    yield ArtifactChunk({"counted": int(turn.text)}, id="result", name="Result")


@agent("chatty", name="Chatty")
async def chatty(turn: Turn):
    """Says more than fits on a page."""
    for number in range(1, 151):
        yield Status(f"remark {number}.")
    yield Done("That was all.")


@agent("painter", name="Painter")
async def painter(turn: Turn):
    """Makes a file of every kind: a picture, Markdown, code, data, bytes."""
    yield Text("Here is **everything**:\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    yield ArtifactChunk(Part(raw=png(), media_type="image/png", filename="square.png"), id="picture", name="Picture")
    yield ArtifactChunk("# Heading\n\n- one\n- two\n", id="notes", filename="notes.md", media_type="text/markdown")
    yield ArtifactChunk("def f():\n    return 42\n", id="code", filename="f.py", media_type="text/x-python")
    yield ArtifactChunk({"count": 42, "nested": {"list": [1, 2, 3]}}, id="data", name="Data")
    yield ArtifactChunk(Part(raw=bytes(range(256)), filename="bytes.bin"), id="bytes", name="Bytes")
    yield Done("All of it is there.")


@agent("evil", name="<b>Evil</b>\u202e", skills=[Skill("<i>x</i>", EVIL, EVIL, (EVIL,), (EVIL,))])
async def evil(turn: Turn):
    """<script>alert('card')</script>"""
    yield Status(EVIL)
    for piece in EVIL:
        yield Text(piece)
    yield Text("x" * 300_000)
    yield ArtifactChunk(Part(text=EVIL, filename=f"{EVIL}.md", media_type="text/markdown"), id=EVIL, name=EVIL)
    yield ArtifactChunk(Part(raw=b"<svg onload=alert(5)>", media_type="image/svg+xml", filename="x.svg"), id="svg")
    yield ArtifactChunk(Part(raw=b"<script>alert(6)</script>", media_type="text/html", filename="x.html"), id="html")
    yield ArtifactChunk(Part(url="javascript:alert(7)", filename=EVIL), id="url")
    yield ArtifactChunk({EVIL: EVIL}, id="data")
    yield NeedInput(EVIL)


@dataclass
class Passenger:
    name: Annotated[str, Meta(title="Name", description="As in the passport.", min_length=1)]
    age: Annotated[int, Meta(ge=0, le=130)]
    seat: Literal["aisle", "window"] = "aisle"
    luggage: bool = False
    weight: Annotated[float | None, Meta(description="Of the luggage, in kg.")] = None


@dataclass
class Stops:
    cities: list[str]


@agent("booking", name="Booking")
async def booking(turn: Turn):
    """Asks for a flight, the passenger and the stops; with `details`, for the passenger at once."""
    if turn.number == 1 and turn.text == "hostile":
        choices = [EVIL.translate(dict.fromkeys(range(32)))[:400].replace("\x7f", ""), "<script>alert(8)</script>"]
        yield NeedInput("Which one?", choices=choices)
    elif turn.number == 1 and "details" in turn.text:
        yield NeedInput("Who flies?", schema=Passenger)
    elif turn.number == 1:
        yield NeedInput("Which flight?", choices=["AF 12 at 08:30", "BA 7 at 11:15", "Neither"])
    elif turn.number == 2:
        yield Status(f"You chose {turn.answer}.")
        yield NeedInput("Who flies?", schema=Passenger)
    elif turn.number == 3:
        yield Status(f"{turn.answer_as(Passenger)}")
        yield NeedInput("Where do you stop?", schema=Stops)
    else:
        yield Done(f"By way of {' and '.join(turn.answer_as(Stops).cities)}.")


@agent("author", name="Author", skills=[Skill("write", "Write", "Writes plans and pages.", ("demo",), ("A picnic",))])
async def author(turn: Turn):
    """Writes down what it is asked for, and numbers what it has written."""
    words = turn.text.strip().splitlines()
    number = sum(said.role == "user" for said in turn.history)
    lines = ["# A picnic by the river", "", f"Draft after {len(words)} lines.", "", "## Steps", ""]
    lines += ["1. Find a place in the shade", "2. Ask who comes", f"3. Carry {number + 4} baskets", ""]
    for line in lines:
        yield Text(f"{line}\n")


@agent("careful", name="Careful")
async def careful(turn: Turn):
    """Asks for approval before it does anything."""
    if turn.number > 1:
        yield Done(f"You said {turn.text}.")
        return
    yield Text("The archive has **12 files**.")
    wanted = Raw(b'{"approval": [{"tool": "files/delete", "input": {"path": "/archive/2019"}, "digest": "d"}]}')
    yield NeedInput([text_part("May I call files/delete?"), Part(data=wanted)])


@agent("describer", name="Describer", input_modes=("text/plain", "image/png"))
async def describer(turn: Turn):
    """Lists the files that it is given."""
    files = [part for part in turn.inputs[-1].parts if part.raw is not None]
    yield Done("\n".join(f"- {part.filename} {part.media_type} {len(part.raw or b'')}" for part in files))


@agent("lecturer", name="Lecturer")
async def lecturer(turn: Turn):
    """Says the same formatted sentence and code until it is canceled."""
    yield Text("```python\nprint(1)\n```\n\n")
    while True:
        yield Text("Some **bold** words. ")
        await asyncio.sleep(0.05)


_refused: set[str] = set()
REDACTED_KEY = "abcdef0123456789"


@agent("fussy", name="Fussy")
async def fussy(turn: Turn):
    """Refuses what it hears for the first time, and waits where it is told to."""
    if "slowly" in turn.text:
        await asyncio.sleep(2)
    if "fail" in turn.text and turn.text not in _refused:
        _refused.add(turn.text)
        raise ValueError(f"Not this time. token={REDACTED_KEY}")
    yield Text("A room above the harbour.")


def png(size: int = 48) -> bytes:
    """A small picture, so that no file has to lie here."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\x00" + bytes((20, 96 + y, 95)) * size for y in range(size))
    head = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
