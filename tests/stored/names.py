"""List every name that is stored or on a wire, read from the code; `names.json` holds the list as it was.

`python -m tests.stored.names` takes additions over. It refuses where something is gone or has another form: that would
be unreadable for stored data, or for clients. Where code moved, correct `tests/stored/places.py` instead.
"""

import ast
import asyncio
import hashlib
import json
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import httpx2
import typer
from msgspec import Struct, inspect

from parley.client.control import RuntimeClient
from parley.stores.postgres_pool import connect
from parley.testing.databases import fresh_database, postgres_server
from parley.testing.servers import serving
from tests.permissions.walk import asked_of
from tests.stored import places
from tests.stored.expected import missing

FILE = Path(__file__).with_name("names.json")
Json = dict[str, Any]
_COLUMNS = """
SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns
WHERE table_schema = 'public' ORDER BY table_name, ordinal_position"""


def found(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def load_all() -> None:
    for package in places.PACKAGES:
        for module in walk_packages(import_module(package).__path__, f"{package}."):
            if not module.name.endswith("__main__"):
                import_module(module.name)


def subclasses(of: type) -> Iterator[type]:
    for one in type.__subclasses__(of):
        yield one
        yield from subclasses(one)


def shape(about: inspect.Type, above: tuple[type, ...] = ()) -> Any:
    """A type by what can be read and written; nested structs by their members, never by their names."""
    match about:
        case inspect.StructType():
            if about.cls in above:
                return "itself"
            inner = (*above, about.cls)
            members = [[one.encode_name, shape(one.type, inner), one.required] for one in about.fields]
            return {"tag": about.tag, "array": about.array_like, "members": members}
        case inspect.UnionType():
            return {"one of": sorted((shape(one, above) for one in about.types), key=str)}
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return {"list of": shape(about.item_type, above)}
        case inspect.TupleType():
            return {"tuple of": [shape(one, above) for one in about.item_types]}
        case inspect.DictType():
            return {"names to": shape(about.value_type, above)}
        case inspect.LiteralType():
            return {"values": list(about.values)}
        case inspect.EnumType():
            return {"values": [one.value for one in about.cls]}
        case inspect.Metadata():
            return shape(about.type, above)
        case _:
            return type(about).__name__.removesuffix("Type").lower()


def structs() -> Json:
    return {name: shape(inspect.type_info(found(place))) for name, place in places.STRUCTS.items()}


def arrays() -> list[list[str]]:
    """Members of all structs that are written without their names, in their order."""
    load_all()
    own = (one for one in subclasses(Struct) if one.__module__.startswith(places.PACKAGES))
    return sorted(list(one.__struct_encode_fields__) for one in own if one.__struct_config__.array_like)


def words() -> Json:
    return {name: _plain(found(place)) for name, place in places.WORDS.items()}


def _plain(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else dict(value) if isinstance(value, dict) else value


def errors() -> list[str]:
    load_all()
    return sorted({str(one.code) for one in (found(places.ERROR), *subclasses(found(places.ERROR)))})


def drivers() -> Json:
    kind_of = found(places.DRIVER_KIND)
    kinds = sorted(kind_of(_empty(found(place))) for place in places.DRIVERS)
    return {"told": kinds, "defined": sorted(found(places.DEFINED_KINDS))}


def _empty(cls: type) -> object:
    """An object of which only the class matters."""
    return cls(**dict.fromkeys(cls.__struct_fields__)) if issubclass(cls, Struct) else object.__new__(cls)


def settings() -> Json:
    return {name: list(found(place).model_fields) for name, place in places.SETTINGS.items()}


def commands() -> list[str]:
    """Each command, and each of its arguments and options."""
    apps = {name: typer.main.get_command(found(place)) for name, place in places.COMMANDS.items()}
    return sorted({line for name, app in apps.items() for line in _command(app, name)})


def _command(command: Any, path: str) -> Iterator[str]:
    if inner := getattr(command, "commands", None):
        for name, one in inner.items():
            yield from _command(one, f"{path} {name}")
    else:
        yield path
        yield from (f"{path} {word}" for one in command.params for word in (*one.opts, *one.secondary_opts))


def _trees() -> Iterator[ast.AST]:
    for package in places.PACKAGES:
        for file in Path(str(files(package))).rglob("*.py"):
            yield ast.parse(file.read_text("utf-8"))


def told() -> list[str]:
    """Names of telemetry: what is told, and what is timed."""
    return sorted({name for tree in _trees() for node in ast.walk(tree) for name in _told(node)})


def _told(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in places.TOLD_BY and node.args:
        for one in ast.walk(node.args[0]):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                yield one.value


def migrations() -> Json:
    """Each file by its digest: what was applied somewhere is never changed."""
    listed = found(places.MIGRATIONS)
    return {
        f"{dialect} {one.id}": hashlib.sha256(one.sql.encode()).hexdigest()
        for dialect in ("sqlite", "postgres")
        for one in listed(dialect)
    }


def sqlite_tables() -> Json:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        found(places.MIGRATE_SQLITE)(connection)
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        names = [row[0] for row in listed]
        return {name: [list(row[1:]) for row in connection.execute(f"PRAGMA table_info({name})")] for name in names}


async def postgres_tables(url: str) -> Json:
    connection = await connect(url)
    try:
        tables: Json = {}
        for table, *column in await connection.fetch(_COLUMNS):
            tables.setdefault(table, []).append(column)
        return tables
    finally:
        await connection.close()


async def served() -> Json:
    """Routes of a server, its metrics, and the types of its OpenAPI documents."""
    with tempfile.TemporaryDirectory() as folder:
        async with serving(Path(folder), (), store="memory") as server, httpx2.AsyncClient() as http:
            shown = (await http.get(f"{server.url}/metrics")).text
            figures = sorted(line.split()[2] for line in shown.splitlines() if line.startswith("# TYPE parley_"))
            documents = {path: (await http.get(server.url + path)).json() for path in places.DOCUMENTS}
            async with RuntimeClient(server.url, next(iter(found(places.DEVELOPMENT_KEYS).values()))) as control:
                documents["/internal/v1/openapi.json"] = await control.openapi()
            types = [f"{path} {name}" for path, one in documents.items() for name in one["components"]["schemas"]]
            return {"routes": sorted(asked_of(server.app)), "metrics": figures, "types": sorted(types)}


async def current() -> Json:
    """All but PostgreSQL's tables."""
    return {
        "structs": structs(),
        "arrays": arrays(),
        "words": words(),
        "errors": errors(),
        "drivers": drivers(),
        "settings": settings(),
        "commands": commands(),
        "told": told(),
        "migrations": migrations(),
        "sqlite": sqlite_tables(),
        **await served(),
        "actions": [f"{one.mode}.{one.name} {one.capability}" for one in found(places.ACTIONS)],
        "codes of actions": dict(found(places.ACTION_CODES)),
    }


def kept() -> Json:
    return json.loads(FILE.read_text("utf-8"))


def taken_away(before: Json, after: Json) -> list[str]:
    """Names that are gone or changed. New members of a struct that is written by names are an addition, at its
    end or not; in one without names only at its end, and with a default."""
    exact = (line for name in _EXACT if name in before for line in missing(before[name], after.get(name), name))
    return [*_lists_lost(before, after), *exact]


_EXACT = ("words", "migrations", "codes of actions")
_LISTS = ("errors", "told", "metrics", "commands", "routes", "actions", "types")


def _lists_lost(before: Json, after: Json) -> Iterator[str]:
    for name in _LISTS:
        lost = set(before.get(name, ())) - set(after.get(name, ()))
        yield from (f"{name}: {one} is gone" for one in sorted(lost))
    for name in ("settings", "drivers"):
        for part, listed in before.get(name, {}).items():
            yield from (f"{name} {part}: {one} is gone" for one in listed if one not in after[name].get(part, ()))
    for name in ("sqlite", "postgres"):
        for table, columns in before.get(name, {}).items():
            there = after.get(name, {}).get(table, [])
            yield from (f"{name}: {table} {column} is gone" for column in columns if column not in there)
    for array in before.get("arrays", ()):
        if not any(one[: len(array)] == array for one in after["arrays"]):
            yield f"arrays: {array} is gone"
    for name, one in before.get("structs", {}).items():
        yield from _members_lost(one, after["structs"].get(name), f"structs: {name}")


def _members_lost(before: Any, after: Any, at: str) -> Iterator[str]:
    if isinstance(before, dict) and "members" in before and isinstance(after, dict) and "members" in after:
        there = {name: (form, required) for name, form, required in after["members"]}
        if (before["tag"], before["array"]) != (after["tag"], after["array"]):
            yield f"{at} has another tag or form"
        for name, form, _ in before["members"]:
            if name not in there:
                yield f"{at}.{name} is gone"
            else:
                yield from _members_lost(form, there[name][0], f"{at}.{name}")
        known = {name for name, _, _ in before["members"]}
        yield from (f"{at}.{name} has no default" for name, (_, must) in there.items() if must and name not in known)
    elif isinstance(before, dict) and "one of" in before and isinstance(after, dict) and "one of" in after:
        for one in before["one of"]:
            if not any(not list(_members_lost(one, other, "")) for other in after["one of"]):
                yield f"{at}: {str(one)[:120]} is gone"
    elif isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys() and "values" in before:
        yield from (f"{at}: {one!r} is gone" for one in before["values"] if one not in after["values"])
    elif isinstance(before, dict) and isinstance(after, dict) and before.keys() == after.keys():
        for name, one in before.items():
            yield from _members_lost(one, after[name], at)
    elif before != after:
        yield f"{at} was {str(before)[:120]} and is {str(after)[:120]}"


async def with_postgres() -> Json:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, postgres_server(Path(folder)) as server:
        return {**await current(), "postgres": await postgres_tables(await fresh_database(server))}


def main() -> int:
    names = asyncio.run(with_postgres())
    problems = taken_away(kept(), names) if FILE.exists() else []
    if not problems:
        FILE.write_text(json.dumps(names, indent=1, sort_keys=True) + "\n", "utf-8")
    print("\n".join(problems), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
