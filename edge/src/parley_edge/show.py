"""`a2a-runtime profiles`: which there are, without their tokens; which is meant; and one less."""

from parley_edge import profiles
from parley_edge.errors import EdgeError, WrongUse
from parley_edge.places import claim_of, forget
from parley_edge.shapes import Json


def listed() -> list[Json]:
    folder = profiles.home()
    known = profiles.read(folder)
    return [_listed(known.active == name, name, known) for name in known.names]


def _listed(active: bool, name: str, known: profiles.Profiles) -> Json:
    """One that is broken is listed too, or nobody would find it."""
    try:
        return {"profile": name, "active": active, **known.get(name).shown()}
    except EdgeError as error:
        return {"profile": name, "active": active, "error": error.message}


def listed_lines(found: list[Json]) -> list[str]:
    if not found:
        return ["There is no profile on this machine. Pair first: a2a-runtime pair --code CODE"]
    rows = [("*" if one["active"] else " ", one["profile"], _what(one)) for one in found]
    width = max(len(name) for _, name, _ in rows)
    return [f"{mark} {name:<{width}}  {what}" for mark, name, what in rows]


def _what(one: Json) -> str:
    return str(one.get("error") or f"{one['agent_id']} at {one['api_base']}, asked at {one['local_agent_endpoint']}")


def use(name: str) -> None:
    folder = profiles.home()
    profiles.read(folder).resolved(name)
    profiles.change(folder, lambda known: known.with_active(name))


def remove(name: str) -> None:
    """The token and what was kept for it; the platform forgets it at the next pairing."""
    folder = profiles.home()
    if name not in profiles.read(folder).names:
        profiles.read(folder).resolved(name)
    if (pid := claim_of(folder, name).holder()) is not None:
        raise WrongUse(f"A runtime with the profile '{name}' is running (process {pid}).", "Stop it first.")
    profiles.change(folder, lambda known: known.without(name))
    forget(folder, name)
