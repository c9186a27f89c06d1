"""`runtime.json`: the profiles of this machine (agent, platform, token). The only place where tokens are stored."""

import json
import os
import re
import stat
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

from parley_edge.errors import BrokenProfiles, WrongUse
from parley_edge.json_values import Json, as_object
from parley_edge.storage import files
from parley_edge.system import WINDOWS

DEFAULT_API_BASE = "http://127.0.0.1:8200"
DEFAULT_ENDPOINT = "http://localhost:18789/run-task"
PRESETS = {"openclaw": "http://127.0.0.1:18789/execute"}
FILE = "runtime.json"
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
_LIKE = "Examples: http://127.0.0.1:8200 or https://example.com/path."
_PAIR_FIRST = "Pair first: a2a-runtime pair --code CODE"


@dataclass(frozen=True, slots=True)
class Profile:
    """One paired runtime."""

    api_base: str
    runtime_token: str = field(repr=False)
    agent_id: str
    runtime_id: str
    local_agent_endpoint: str = DEFAULT_ENDPOINT
    platform: Json = field(default_factory=dict[str, Any])
    paired_at: str = ""
    agent_name: str = ""
    runtime_name: str = ""
    heartbeat_interval_seconds: float = 30.0
    pull_interval_seconds: float = 1.0

    def shown(self) -> Json:
        """All fields except the token."""
        return {name: value for name, value in asdict(self).items() if name != "runtime_token"}


@dataclass(frozen=True, slots=True)
class Profiles:
    """Content of the file. Unknown fields are kept."""

    raw: Json

    @property
    def active(self) -> str | None:
        name = self.raw.get("active_profile")
        return name if isinstance(name, str) and name in self.names else None

    @property
    def names(self) -> list[str]:
        return sorted(self.raw["profiles"])

    def get(self, name: str) -> Profile:
        return _profile(name, self.raw["profiles"][name])

    def resolved(self, wanted: str | None) -> tuple[str, Profile]:
        """The named profile, else the active one, else the only one; never any other (rule of pairing, 000)."""
        name = self._resolved_name(wanted)
        return name, self.get(name)

    def _resolved_name(self, wanted: str | None) -> str:
        names = self.names
        if wanted is not None:
            if wanted not in names:
                raise WrongUse(f"There is no profile '{wanted}'.", _known(names))
            return wanted
        if not names:
            raise WrongUse("There is no profile on this machine.", _PAIR_FIRST)
        if self.active is not None:
            return self.active
        if len(names) > 1:
            raise WrongUse(
                "There are several profiles, and none is active.", f"{_known(names)} Select one with --profile NAME."
            )
        return names[0]

    def with_profile(self, name: str, profile: Profile) -> "Profiles":
        """A copy with this profile added or replaced, and active."""
        known = {key: value for key, value in asdict(profile).items() if value not in ("", {})}
        return self._with({**self.raw["profiles"], name: known}, name)

    def with_active(self, name: str) -> "Profiles":
        return self._with(self.raw["profiles"], name)

    def without(self, name: str) -> "Profiles":
        left = {key: value for key, value in self.raw["profiles"].items() if key != name}
        return self._with(left, self.active if self.active != name else None)

    def _with(self, profiles: Json, active: str | None) -> "Profiles":
        return Profiles({**self.raw, "active_profile": active, "profiles": profiles})

    def name_for(self, api_base: str, agent_id: str) -> str:
        """The profile name for a pairing that names none: the agent's existing profile, else a free name."""
        for name in self.names:
            one = as_object(self.raw["profiles"][name]) or {}
            if (one.get("api_base"), one.get("agent_id")) == (api_base, agent_id):
                return name
        plain = re.sub(r"[^A-Za-z0-9._-]", "-", agent_id)[:56].lstrip(".-") or "agent"
        candidates = ("default", plain, *(f"{plain}-{number}" for number in range(2, len(self.names) + 3)))
        return next(name for name in candidates if name not in self.names)


def home() -> Path:
    """The folder for all files: `A2A_HOME`, else `~/.a2a`; on Windows `a2a` in `LOCALAPPDATA`."""
    named, local = os.environ.get("A2A_HOME"), os.environ.get("LOCALAPPDATA")
    if named:
        return Path(named).expanduser()
    usual = Path.home() / ".a2a"
    return Path(local) / "a2a" if WINDOWS and local and not usual.exists() else usual


def read(folder: Path) -> Profiles:
    """Read the profiles; empty if there is no file. A broken file raises and is not changed."""
    path = folder / FILE
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return Profiles({"active_profile": None, "profiles": {}})
    except OSError as error:
        raise BrokenProfiles(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise _broken(path, "is not JSON") from error
    known = as_object(content)
    if known is None or as_object(known.get("profiles")) is None:
        raise _broken(path, "has no profiles")
    return Profiles(known)


def change(folder: Path, how: Callable[[Profiles], Profiles]) -> Profiles:
    """Read, change and write the file under a lock, so that concurrent changes do not overwrite each other."""
    prepare(folder)
    try:
        with files.locked(folder / "runtime.lock"):
            changed = how(read(folder))
            content = json.dumps(changed.raw, indent=2, ensure_ascii=False) + "\n"
            file = (folder / FILE).resolve()
            files.sweep(file.parent, file.name)
            files.write(file, content.encode("utf-8", "replace"))
    except OSError as error:
        raise BrokenProfiles(f"{folder / FILE} cannot be written: {error.strerror}.") from error
    return changed


def prepare(folder: Path) -> None:
    """Create the folder and make it private. The mode of an existing folder named by `A2A_HOME` is not changed."""
    try:
        files.make_private_folder(folder)
        if "A2A_HOME" not in os.environ and _is_readable_by_others(folder):
            folder.chmod(0o700)
    except OSError as error:
        raise BrokenProfiles(f"{folder} cannot be created: {error.strerror}.") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BrokenProfiles(f"{folder} is not writable.", "Change its owner, or set A2A_HOME to another folder.")


def complaints(folder: Path) -> list[str]:
    """Warnings about file modes that let other users read the token."""
    found: list[str] = []
    for path, mode in ((folder, 0o700), (folder / FILE, 0o600)):
        if path.exists() and _is_readable_by_others(path):
            found.append(f"{path} can be read by other users; run: chmod {mode:o} {path}")
    return found


def checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise WrongUse(f"'{name}' is not a valid profile name.", "Use at most 64 letters, digits, '.', '_' and '-'.")
    return name


def checked_url(url: str, what: str) -> str:
    """Check the URL of a platform; returns it without a slash at the end, because paths are appended to it."""
    return _checked(url, what, "the platform's paths are appended to it").rstrip("/")


def checked_endpoint(url: str, what: str = "an endpoint") -> str:
    """Check the URL of a local agent; returns it unchanged, because a slash at the end may matter."""
    return _checked(url, what, "it is shown in logs and lists, and tasks are posted to the path only")


def _checked(url: str, what: str, why: str) -> str:
    """Check that a URL is http or https, without credentials, query or fragment."""
    from urllib.parse import urlsplit

    given = url.strip()
    try:
        parts = urlsplit(given)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise WrongUse(f"'{url}' is not valid as {what}.", _LIKE) from None
    if not good or not given.isascii() or " " in given:
        raise WrongUse(f"'{url}' is not valid as {what}.", _LIKE)
    named = what[:1].upper() + what[1:]
    if parts.username is not None:
        raise WrongUse(f"{named} must not contain a user name or password.", _LIKE)
    for mark, name in (("?", "query"), ("#", "fragment")):
        if mark in given:
            shown = given.partition(mark)[0]
            raise WrongUse(f"{named} must not have a {name}: {why}.", f"Remove everything from {mark} on: {shown}")
    return given


def _profile(name: str, raw: Any) -> Profile:
    known = [one.name for one in fields(Profile)]
    given = {key: value for key, value in (as_object(raw) or {}).items() if key in known}
    missing = [key for key in ("api_base", "runtime_token", "agent_id", "runtime_id") if not _is_text(given.get(key))]
    if missing:
        raise BrokenProfiles(f"The profile '{name}' lacks {', '.join(missing)}.", "Pair it again with --profile.")
    try:
        return Profile(**{key: _fitting(key, value) for key, value in given.items()})
    except (TypeError, ValueError) as error:
        raise BrokenProfiles(
            f"The profile '{name}' contains invalid values.", "Pair it again with --profile."
        ) from error


def _fitting(key: str, value: Any) -> Any:
    if key.endswith("_seconds"):
        return float(value)
    kind = dict if key == "platform" else str
    if not isinstance(value, kind):
        raise TypeError(key)
    return cast(Any, value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _known(names: list[str]) -> str:
    return f"Known profiles: {', '.join(names)}." if names else _PAIR_FIRST


def _broken(path: Path, what: str) -> BrokenProfiles:
    return BrokenProfiles(f"{path} {what}; it was not changed.", "Repair it, or move it away and pair again.")


def _is_readable_by_others(path: Path) -> bool:
    """True if other users can read the file. Always False on Windows, where access lists protect a user's folders."""
    return not WINDOWS and bool(stat.S_IMODE(path.stat().st_mode) & 0o077)
