"""The driver `org` in a definition: which folder holds the organisation, and what it may touch."""

from importlib.resources import files
from pathlib import Path

from msgspec import Struct

from parley.core.agents import Agent
from parley.definitions.kind import Site
from parley.drivers.org import OrgDriver, Setup
from parley.engine.ports import Llm
from parley.errors import Invalid
from parley.models.names import Access, open_model
from parley.models.offline import NAME as OFFLINE
from parley.models.offline import OfflineModel
from parley.orgkernel.card import blank_agent
from parley.orgkernel.reading import Places

SAMPLE = "software_dev"


class OrgOptions(Struct, frozen=True):
    folder: str | None = None
    """Where `active.json` is, relative to the definition; the sample organisation of this package if left out."""
    work: str = "org"
    """Tasks have their folders below it, and it is always a root; relative to the definition, made when missing."""
    roots: tuple[str, ...] = ()
    """Further folders whose files may be read, changed and delivered; they must exist."""
    roles: str | None = None
    workflows: str | None = None
    domains: str | None = None
    reports: str | None = None
    """Where these are, if not below `folder` under their usual names."""
    base_url: str | None = None
    key_from: str | None = None
    """As for `llm`."""


def sample_folder() -> Path:
    """The organisation that comes with the package."""
    return Path(str(files("parley.orgkernel") / "sample" / SAMPLE))


def start_organisation(slug: str, options: OrgOptions, site: Site) -> Agent:
    return blank_agent(slug)


def build_organisation(agent: Agent, options: OrgOptions, site: Site) -> OrgDriver:
    folder = _folder(site, options.folder, "folder") if options.folder is not None else sample_folder()
    work = (site.folder / options.work).absolute()
    reports = _optional(site, options.reports) or (work / "reports" if options.folder is None else None)
    places = Places(
        folder, _optional(site, options.roles), _optional(site, options.workflows), _optional(site, options.domains),
        reports,
    )  # fmt: skip
    roots = tuple(_folder(site, one, "roots") for one in options.roots)
    return OrgDriver(agent, Setup(places, work / "tasks", roots), _model(agent, options))


def _model(agent: Agent, options: OrgOptions) -> Llm:
    """Without a model, the offline one, which does not keep anybody waiting here."""
    if agent.model in (None, OFFLINE):
        return OfflineModel(0)
    return open_model(agent.model, Access(options.base_url, options.key_from))


def _folder(site: Site, name: str, field: str) -> Path:
    path = (site.folder / name).absolute()
    if not path.is_dir():
        raise Invalid(f"there is no folder {path}", field=field)
    return path


def _optional(site: Site, name: str | None) -> Path | None:
    return None if name is None else (site.folder / name).absolute()
