"""Load an organisation from its folder. A broken or half-written file keeps its last good content."""

from pathlib import Path

from msgspec import Struct

from parley.orgkernel.definitions import (
    PASSTHROUGH,
    Domain,
    Organisation,
    OrganisationFile,
    Role,
    Workflow,
    read_domains,
    read_organisation,
    read_role,
    read_workflows,
)
from parley.orgkernel.graph import check_workflow
from parley.orgkernel.json_structs import Wrong, decoded, joined, members_of
from parley.orgkernel.names import plain_name

__all__ = ["OrganisationLoader", "OrganisationPaths"]

ACTIVE = "active.json"
LIBRARIES = ("workflows.json", "htn_plan_library.json")
DOMAINS = ("domains.json", "slot_taxonomy.json")
KERNEL_EXTENSIONS = ("python/extensions/before_main_llm_call", "extensions/before_main_llm_call")
KERNEL_LIBRARY, KERNEL_DOMAINS = "htn_plan_library.json", "slot_taxonomy.json"
MAX_FILE = 8 * 1024 * 1024


class LoadProblem(Struct, frozen=True):
    """A problem in a file, and its place. `kept`: the file's last good content is still used."""

    file: str
    path: str
    message: str
    kept: bool = False
    remark: bool = False
    """True if the organisation still works, and only a part of it cannot be used."""

    @property
    def text(self) -> str:
        at = f"{self.file}: {self.path}: " if self.path else f"{self.file}: "
        return f"{at}{self.message}{'; its last good content is still used' if self.kept else ''}"


class OrganisationPaths(Struct, frozen=True):
    """Paths of an organisation's files. A path that is None is below `folder`, under its usual name."""

    folder: Path
    roles: Path | None = None
    workflows: Path | None = None
    domains: Path | None = None
    reports: Path | None = None

    @property
    def active(self) -> Path:
        """File that names the active organisation."""
        return self.folder / ACTIVE

    @property
    def roles_folder(self) -> Path:
        """Folder of the roles."""
        return self.roles or self.folder / "roles"

    @property
    def reports_folder(self) -> Path:
        """Folder of the reports."""
        return self.reports or self.folder / "reports"

    def library(self) -> list[Path]:
        """Return the files of the workflow library: one file, and a folder next to it with one file for each workflow;
        if there are none, the library of the kernel."""
        if self.workflows is not None:
            return [self.workflows]
        single = [self.folder / name for name in LIBRARIES if (self.folder / name).is_file()]
        return [*single[:1], *_json_in(self.folder / "workflows")] or self._of_kernel(KERNEL_LIBRARY)

    def taxonomy(self) -> list[Path]:
        """Return the files of the taxonomy, in order of preference."""
        if self.domains is not None:
            return [self.domains]
        own = [self.folder / name for name in DOMAINS if (self.folder / name).is_file()]
        return own[:1] or self._of_kernel(KERNEL_DOMAINS)

    def _of_kernel(self, name: str) -> list[Path]:
        """Return a file of the kernel inside Agent-Zero. Its home is above the organisation's folder (`/a0/usr/…`)."""
        above = self.folder.absolute().parents[:2]
        places = (home / extensions / name for home in above for extensions in KERNEL_EXTENSIONS)
        return [path for path in places if path.is_file()][:1]


class LoadedOrganisation(Struct, frozen=True):
    """The result of loading. `organisation` is None if no organisation is active."""

    organisation: Organisation | None
    problems: tuple[LoadProblem, ...]


class OrganisationLoader:
    """Reads an organisation from its folder, and remembers the last good content of each file."""

    def __init__(self, places: OrganisationPaths) -> None:
        self.places = places
        self._good: dict[Path, object] = {}
        self._problems: list[LoadProblem] = []

    def read(self) -> LoadedOrganisation:
        """Read the files that have changed, and return the organisation."""
        self._problems = []
        file = self._organisation()
        found = self._whole(file) if file is not None else None
        return LoadedOrganisation(found, tuple(self._problems))

    def _whole(self, file: OrganisationFile) -> Organisation:
        roles = tuple(role for id_ in file.members if (role := self._role(id_, file)) is not None)
        workflows = tuple(one for path in self.places.library() for one in self._workflows(path))
        domains = tuple(one for path in self.places.taxonomy() for one in self._domains(path))
        name = file.org_name or plain_name(file.org_id)
        found = Organisation(
            file.org_id or name,
            name,
            file.description,
            file.version,
            file.mission.objective,
            roles,
            _known(domains, roles, workflows),
            workflows,
            file.domain_routing,
        )
        self._check(found)
        return found

    def _organisation(self) -> OrganisationFile | None:
        path = self.places.active
        value = self._value(path)
        if value is None:
            return None
        pointed = _pointer(value)
        if pointed is not None:
            path = self.places.folder / f"{pointed}.json"
            value = self._value(path)
            if value is None:
                self._wrong(self.places.active)("", f"names {pointed}, but {path.name} does not exist")
                return None
        found = read_organisation(value, self._wrong(path))
        return found if found.org_name or found.org_id else None

    def _role(self, id_: str, file: OrganisationFile) -> Role | None:
        path = self.places.roles_folder / f"{id_}.json"
        if path.parent != self.places.roles_folder:
            self._wrong(self.places.active)(f"hierarchy.{id_}", "is not a valid role name")
            return None
        value = self._value(path)
        if value is None:
            if not any(problem.file == str(path) for problem in self._problems):
                self._wrong(self.places.active)(f"hierarchy.{id_}", f"the file {path} does not exist")
            return None
        return read_role(value, id_, file.defaults, self._wrong(path))

    def _workflows(self, path: Path) -> tuple[Workflow, ...]:
        value = self._value(path)
        wrong = self._wrong(path)
        if value is None:
            return ()
        named = members_of(value)
        if not {"plans", "id"} & named.keys() and {"graph", "steps"} & named.keys():
            value = {"plans": {path.stem: value}}
        found = read_workflows(value, wrong)
        for workflow in found:
            check_workflow(workflow, lambda at, why, id_=workflow.id: wrong(joined(f"plans.{id_}", at), why))
        return found

    def _domains(self, path: Path) -> tuple[Domain, ...]:
        value = self._value(path)
        return read_domains(value, self._wrong(path)) if value is not None else ()

    def _value(self, path: Path) -> object:
        """Return a file's content, or its last good content; None if the file does not exist or was never valid."""
        try:
            if path.stat().st_size > MAX_FILE:
                raise ValueError(f"is larger than {MAX_FILE:,} bytes")
            self._good[path] = decoded(path.read_bytes())
        except FileNotFoundError:
            self._good.pop(path, None)
        except (OSError, ValueError) as error:
            why = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
            self._problems.append(LoadProblem(str(path), "", why, path in self._good))
        return self._good.get(path)

    def _wrong(self, path: Path) -> Wrong:
        def wrong(at: str, why: str) -> None:
            self._problems.append(LoadProblem(str(path), at, why))

        return wrong

    def _check(self, found: Organisation) -> None:
        wrong = self._wrong(self.places.active)
        for domain, roles in found.routing.items():
            for id_ in roles:
                if found.role(id_) is None:
                    wrong(f"domain_routing.{domain}", f"unknown role {id_!r}")
        remarks = [*([] if found.workflows else [self._without_workflows()]), *unresolved_references(found)]
        self._problems.extend(LoadProblem(str(self.places.active), at, why, remark=True) for at, why in remarks)

    def _without_workflows(self) -> tuple[str, str]:
        given = self.places.workflows
        looked = f"{given} does not exist" if given else f"neither {LIBRARIES[0]} nor {LIBRARIES[1]} was found"
        return "workflows", f"{looked}, so every task is one step; set plan_library_path or workflows to the library"


def unresolved_references(found: Organisation) -> list[tuple[str, str]]:
    """Return the domains that no role works in, and the workflows that roles name but that do not exist."""
    plans = {one.id for one in found.workflows}
    # If there are no workflows at all, that is reported once, not for each plan of each role.
    roles = found.roles if plans else ()
    orphans = [one.id for one in found.domains if one.id != PASSTHROUGH and not found.roles_for(one.id)]
    return [
        *((f"domains.{id_}", "no role works in this domain, so it is not offered") for id_ in orphans),
        *(
            (f"roles.{role.id}.capabilities.htn_plans", f"unknown workflow {plan!r}")
            for role in roles
            for plan in role.plans
            if plan not in plans
        ),
    ]


def _known(domains: tuple[Domain, ...], roles: tuple[Role, ...], workflows: tuple[Workflow, ...]) -> tuple[Domain, ...]:
    """Return the domains of the taxonomy, then the domains that only roles and workflows name."""
    known = {one.id: one for one in domains}
    for id_ in (*(one for role in roles for one in role.domains), *(one for flow in workflows for one in flow.domains)):
        known.setdefault(id_, Domain(id_, plain_name(id_)))
    return tuple(known.values())


def _pointer(value: object) -> str | None:
    """Return the name of the active organisation if `active.json` contains only that name."""
    if isinstance(value, str):
        return value if _is_name(value) else None
    named = members_of(value)
    if "hierarchy" in named:
        return None
    found = named.get("active") or named.get("org_id")
    return found if isinstance(found, str) and _is_name(found) else None


def _is_name(text: str) -> bool:
    return bool(text) and "/" not in text and "\\" not in text and not text.startswith(".")


def _json_in(folder: Path) -> list[Path]:
    try:
        return sorted(one for one in folder.iterdir() if one.suffix == ".json" and not one.name.startswith("."))
    except OSError:
        return []


Marks = tuple[tuple[str, int, int, int], ...]


def marks(places: OrganisationPaths) -> Marks:
    """Return cheap fingerprints of the files, used to detect changes."""
    paths = [
        places.active,
        *_json_in(places.folder),
        *_json_in(places.roles_folder),
        *places.library(),
        *places.taxonomy(),
    ]
    return tuple(mark for path in dict.fromkeys(paths) if (mark := _mark(path)) is not None)


def _mark(path: Path) -> tuple[str, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return str(path), found.st_ino, found.st_mtime_ns, found.st_size
