"""Page of an organisation: roles, the running workflow with its current node, PACE level and SALUTE report."""

import asyncio

from markupsafe import Markup
from msgspec import Struct

from parley.console.request import ConsoleContext, Page, PageRequest
from parley.console.responses import PageReply, plain
from parley.drivers.org.driver import OrgDriver
from parley.errors import AgentNotFound, RunNotFound
from parley.ids import RunId
from parley.orgkernel.definitions import Organisation, Workflow
from parley.orgkernel.pictures import figure
from parley.orgkernel.salute import FoundReport, ReportFolder, percent, status_text
from parley.orgkernel.steps import WorkflowState, unpacked
from parley.runs.listing import newest
from parley.runs.rules.access import Principal, may_use
from parley.runs.rules.state import Run
from parley.runs.store import Listing

RECENT = 10


class Now(Struct, frozen=True):
    """Current state of an organisation, from its newest task and the reports of its roles."""

    run: Run | None
    state: WorkflowState | None
    workflow: Workflow | None
    picture: Markup
    reports: list[FoundReport]
    said: str = ""
    """Latest report as a sentence."""
    percent: int = 0

    @property
    def level(self) -> str:
        return self.state.level if self.state else "primary"


class OrganisationPages:
    def __init__(self, desk: ConsoleContext) -> None:
        self._desk = desk

    def pages(self) -> list[Page]:
        return [
            Page("GET", "/organisation", self.list),
            Page("GET", "/organisation/{slug}/now", self.now),
            Page("GET", "/organisation/{slug}", self.show),
        ]

    async def list(self, visit: PageRequest) -> PageReply:
        drivers = self._drivers(visit.principal)
        if len(drivers) == 1:
            return await self._shown(visit, drivers[0], alone=True)
        organised = [(one.agent, one.reading.organisation) for one in drivers]
        return visit.page("organisations.html", title="Organisation", organised=organised)

    async def show(self, visit: PageRequest) -> PageReply:
        return await self._shown(visit, self._driver(visit), alone=False)

    async def now(self, visit: PageRequest) -> PageReply:
        """The part of the page that changes while a task runs."""
        driver = self._driver(visit)
        return visit.fragment("_organisation.html", now=await self._now(visit, driver), agent=driver.agent)

    async def _shown(self, visit: PageRequest, driver: OrgDriver, *, alone: bool) -> PageReply:
        organisation = driver.reading.organisation
        name = organisation.name if organisation else driver.agent.name
        return visit.page(
            "organisation.html",
            title=name,
            agent=driver.agent,
            organisation=organisation,
            now=await self._now(visit, driver),
            problems=driver.reading.problems[:20],
            crumbs=[] if alone else [("Organisation", "/organisation")],
        )

    async def _now(self, visit: PageRequest, driver: OrgDriver) -> Now:
        listing = Listing(self._desk.owner(visit.principal), driver.agent.slug, limit=RECENT)
        runs = (await newest(self._desk.exchange.store, listing)).runs
        run = next((one for one in runs if not one.ended), runs[0] if runs else None)
        state = unpacked(run.notes.get("org", "")) if run else None
        organisation = driver.reading.organisation
        reports = await self._reports(visit.principal, driver)
        workflow = _workflow(organisation, state, reports)
        lit = state.node if state and run and not run.ended else ""
        picture = Markup(figure(workflow, lit)) if workflow else Markup()
        latest = reports[0].report if reports else None
        return Now(
            run,
            state,
            workflow,
            picture,
            reports,
            plain(status_text(latest, workflow)) if latest else "",
            percent(latest.status.progress) if latest else 0,
        )

    async def _reports(self, principal: Principal, driver: OrgDriver) -> "list[FoundReport]":
        """The reports about runs that a principal may see; administrators see all reports."""
        found = await asyncio.to_thread(ReportFolder(driver.setup.places.reports_folder).since, 0.0)
        if principal.may("admin"):
            return found
        return [one for one in found if await self._may_see(principal, driver.run_of(one.report))]

    async def _may_see(self, principal: Principal, run_id: RunId | None) -> bool:
        if run_id is None:
            return False
        try:
            await self._desk.exchange.visible(run_id, principal)
        except RunNotFound:
            return False
        return True

    def _drivers(self, principal: Principal) -> "list[OrgDriver]":
        drivers = [self._desk.exchange.driver(agent.slug) for agent in self._desk.agents(principal)]
        return [one for one in drivers if isinstance(one, OrgDriver)]

    def _driver(self, visit: PageRequest) -> OrgDriver:
        driver = self._desk.exchange.driver(visit.path["slug"])
        if not isinstance(driver, OrgDriver) or not may_use(visit.principal, driver.agent):
            raise AgentNotFound("There is no such organisation.")
        return driver


def _workflow(
    organisation: Organisation | None, state: WorkflowState | None, reports: list[FoundReport]
) -> Workflow | None:
    """The workflow that runs or ran last; else the organisation's first workflow."""
    if organisation is None:
        return None
    named = [state.plan if state else "", *(one.report.activity.htn_plan for one in reports)]
    found = next((flow for name in named if (flow := organisation.workflow(name))), None)
    return found or next(iter(organisation.workflows), None)
