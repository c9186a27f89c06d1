"""`a2a-runtime profiles`: list profiles (without tokens), select the active one, remove one."""

from parley_edge.errors import EdgeError, WrongUse
from parley_edge.json_values import Json
from parley_edge.runtime.places import claim_of, forget
from parley_edge.storage import profiles


def listed() -> list[Json]:
    folder = profiles.home()
    known = profiles.read(folder)
    return [_listed(known.active == name, name, known) for name in known.names]


def _listed(active: bool, name: str, known: profiles.Profiles) -> Json:
    """The entry of a profile; a broken profile is listed with its error."""
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
    return str(
        one.get("error") or f"{one['agent_id']} at {one['api_base']}, local agent at {one['local_agent_endpoint']}"
    )


def use(name: str) -> None:
    folder = profiles.home()
    profiles.read(folder).resolved(name)
    profiles.change(folder, lambda known: known.with_active(name))


def remove(name: str) -> None:
    """Remove a profile with its token and files. The platform revokes the token at the next pairing."""
    folder = profiles.home()
    if name not in profiles.read(folder).names:
        profiles.read(folder).resolved(name)
    if (pid := claim_of(folder, name).holder()) is not None:
        raise WrongUse(f"A runtime with the profile '{name}' is running (process {pid}).", "Stop it first.")
    profiles.change(folder, lambda known: known.without(name))
    forget(folder, name)
